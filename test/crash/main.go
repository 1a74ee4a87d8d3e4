// Command crash asks whether what the hooks keep survives whatever becomes of a hook: it runs the built hooks, as they
// are shipped, through a history of jobs on fake GPUs, and makes one system call at a time fail, do less than it was
// asked to, or be the last one before SIGKILL. After each it reads everything as the next hook would, and lets that
// hook run. At last it plants mistakes in the code, one at a time, of which each must be noticed.
//
//	crash [--only TEXT]
//
// It is run as root in the root of the tree. Exit codes: 0 all was as it must be, 1 something was not, 64 usage, or
// something that keeps the run from being made.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"bookend/test/faultinject"
	"bookend/test/rig"
)

func main() {
	faultinject.Serve()
	rig.Program("crash", work)
}

type bench struct{ *rig.Bench }

// programs builds the hooks and the backend, with a mistake where one is named.
func (b bench) programs(m faultinject.Mutant) (folder string) {
	return rig.Have(b.Build(m, "bookend-prolog", "bookend-epilog", rig.Backend))
}

// workers are nodes side by side: most of a hook's time is waiting.
var workers = 3 * runtime.NumCPU()

func work(on *rig.Bench, args []string) error {
	flags := flag.NewFlagSet("crash", flag.ContinueOnError)
	only := flags.String("only", "", "try the faults and mutants alone whose name contains `TEXT`")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read arguments: %w", err)
	}
	b, began := bench{on}, time.Now()
	programs, t := b.programs(faultinject.Mutant{}), newTally()
	b.faults(*only, workers, programs, t)
	if *only == "" {
		b.twoEnds(programs, t)
	}
	t.print(os.Stdout)
	fmt.Printf("%.0f s\n", time.Since(began).Seconds())
	if len(t.failed) > 0 || !faultinject.EachMutant(plantings, *only, b.notice) {
		return rig.ErrWrong
	}
	return nil
}
