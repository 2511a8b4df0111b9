package trace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// committed are the traces by file name.
var committed = map[string]func() *Trace{
	"care-incident.jsonl.zst": CareIncident,
	"care-clock.jsonl.zst":    ClockTrouble,
}

// WriteAll writes the committed traces into dir.
func WriteAll(dir string) error {
	for name, generate := range committed {
		var out bytes.Buffer
		z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBestCompression))
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := errors.Join(generate().Write(z), z.Close()); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// CheckAll reports every committed trace in dir whose content is not what the
// generator makes. The compressed bytes may differ: they depend on the
// compressor's version.
func CheckAll(dir string) error {
	var errs error
	for name, generate := range committed {
		var want, got bytes.Buffer
		errs = errors.Join(errs, generate().Write(&want))
		t, err := Open(filepath.Join(dir, name))
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		if errs = errors.Join(errs, t.Write(&got)); !bytes.Equal(want.Bytes(), got.Bytes()) {
			errs = errors.Join(errs, fmt.Errorf("%s is not what the generator makes: run it with -write", name))
		}
	}
	return errs
}
