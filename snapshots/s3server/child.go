package s3server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3api"
)

const (
	childEnv   = "SLUIS_S3_CHILD"
	answerFd   = 3 // the pipe on which the child says one line
	stopGrace  = time.Second
	ready      = "READY"
	maxClients = 512
)

// orders are what the parent tells the child, as one JSON value on standard
// input, where no other user can read the secret.
type orders struct {
	Dir, Addr            string
	AccessKey, SecretKey string
}

// ChildMain runs the server and ends the process when this process is the child
// of Start; otherwise it returns at once. Call it first in main and in TestMain.
func ChildMain() {
	if os.Getenv(childEnv) == "" {
		return
	}
	answer := os.NewFile(answerFd, "answer")
	if err := serve(answer); err != nil {
		fmt.Fprintln(answer, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(answer io.Writer) error {
	decoder := json.NewDecoder(os.Stdin)
	var o orders
	if err := decoder.Decode(&o); err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	orphaned := make(chan struct{})
	go func() {
		defer close(orphaned)
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the parent stops us or has ended
	}()
	lock, err := takeDir(ctx, o.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	store, err := newLockedStore(objectsDir(o.Dir), versionsDir(o.Dir), time.Now)
	if err != nil {
		return err
	}
	if err := store.reapplyLocks(ctx); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- embedgw.RunVersityGW(ctx, store, gateway(o, answer)) }()
	select {
	case err := <-ended:
		return errors.Join(errors.New("the gateway ended by itself"), err)
	case <-orphaned:
	}
	// Each write was on the disk before it was answered, so nothing is lost by
	// not waiting for connections that stay open.
	cancel()
	select {
	case <-ended:
	case <-time.After(stopGrace):
	}
	return nil
}

func gateway(o orders, answer io.Writer) *embedgw.Config {
	return &embedgw.Config{
		RootUserAccess: o.AccessKey, RootUserSecret: o.SecretKey, Region: region,
		Ports: []string{o.Addr}, MaxConnections: maxClients, MaxRequests: maxClients,
		MultipartMaxParts: 1, Quiet: true, KeepAlive: true,
		S3Options: []s3api.Option{s3api.WithOnListen(func() { fmt.Fprintln(answer, ready) })},
	}
}
