// Command generate writes the committed traces, or checks that they are what
// the generator makes. Run it from the repository's root.
package main

import (
	"flag"
	"fmt"
	"os"

	"sluis/gate/sandbox/trace"
)

func main() {
	dir := flag.String("dir", "gate/sandbox/trace/testdata", "where the traces are")
	write := flag.Bool("write", false, "write them")
	check := flag.Bool("check", false, "fail when a committed one differs")
	flag.Parse()
	if err := run(*dir, *write, *check); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(dir string, write, check bool) error {
	if write == check {
		return fmt.Errorf("give -write or -check")
	}
	if write {
		return trace.WriteAll(dir)
	}
	return trace.CheckAll(dir)
}
