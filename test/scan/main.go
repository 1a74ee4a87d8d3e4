// Command scan measures the search for holders: it starts thousands of real processes with open descriptors, lets a
// few of them hold fake device nodes, and fails when the search is slow or names others than those.
//
//	make bench-scan SCAN="-processes 20000 -fds 50 -cpus 4 -max 2s"
//
// It needs only the nursery, which lies beside it, so that both can be carried to another machine. Its exit code is 1
// when the search was too slow or wrong, 2 when it could not be measured.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// options say what to start, and how fast it must be found.
type options struct {
	Processes, FDs, Maps int
	CPUs                 int
	Runs                 int
	Max                  time.Duration
	Nursery              string // the program that starts the processes
}

func main() {
	var o options
	flag.IntVar(&o.Processes, "processes", 20000, "processes to start")
	flag.IntVar(&o.FDs, "fds", 50, "descriptors that each has open")
	flag.IntVar(&o.Maps, "maps", 20, "mappings that each has, beside those of its program")
	flag.IntVar(&o.CPUs, "cpus", 4, "CPUs that the search may use")
	flag.IntVar(&o.Runs, "runs", 3, "searches; the slowest counts")
	flag.DurationVar(&o.Max, "max", 2*time.Second, "time that a search may take")
	beside := filepath.Join(filepath.Dir(os.Args[0]), "nursery")
	flag.StringVar(&o.Nursery, "nursery", beside, "program that starts the processes")
	flag.Parse()
	exit(bench(o, os.Stdout))
}

// errFailed says that the search was measured and found wanting.
var errFailed = errors.New("failed")

func exit(err error) {
	switch {
	case err == nil:
		os.Exit(0)
	case errors.Is(err, errFailed):
		fmt.Fprintln(os.Stderr, "scanbench:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "scanbench: cannot measure:", err)
	os.Exit(2)
}
