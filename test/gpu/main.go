// Command gpu-lane runs Bookend on real GPUs under a real Slurm and judges it: small programs leave memory behind
// in known ways, jobs run as an unprivileged user, and what Bookend says of each is compared with what is true.
//
//	gpu-lane [--out FOLDER] [--programs FOLDER] [--runs N] [--only NAME,...] [--budget 9m]
//	         [--fake N [--fake-nodes N]]
//	gpu-lane --story NAME,... [--fake N]  the demonstration: what happens in a few scenarios, and what users and
//	                                      admins see of it; all else goes to lane.log. "help" lists the names
//
// --only takes names of scenarios and of groups: base (who left what), why (why a job ran out of memory), probe (test
// allocations, their cost, the cards' condition), check (the health check, between jobs and beside them), programs
// (out of memory in PyTorch, JAX, CuPy, numba, Triton, ONNX Runtime and plain CUDA), multi (all that needs several
// GPUs). With three runs each of base, and why and probe together, take some eight minutes on a real GPU; one run of
// check takes a minute and a half.
//
// It needs root, Slurm 22.05 or later in /usr, the programs of "make build" and those of build.sh beside them, and the
// GPUs for itself. It takes memory by plain allocations only and changes no setting of a GPU. Records go to FOLDER:
// one file of runs, one of timings, and on failure the daemons' logs. With --fake it rehearses with N fake GPUs
// instead; such records are marked and never published.
//
// Exit codes: 0 all right, 1 something was wrong or could not be run, 3 no GPU on this machine, 4 this machine
// cannot run the lane, 64 usage.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	exitRight = 0
	exitWrong = 1
	exitNoGPU = 3
	exitUnfit = 4
	exitUsage = 64
)

type options struct {
	out, programs string
	runs          int
	fake          int // cards of each node of a rehearsal, 0 where the GPUs are real
	fakeNodes     int
	only          []string
	story         bool // tells what users and admins see
	list          bool // lists the stories
	budget        time.Duration
}

func main() {
	o, err := parse(os.Args[1:])
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "gpu-lane:", err)
		os.Exit(exitUsage)
	case o.list:
		fmt.Print(listedTales())
		return
	}
	os.Exit(lead(o))
}

func parse(args []string) (options, error) {
	var o options
	var only, story string
	flags := flag.NewFlagSet("gpu-lane", flag.ContinueOnError)
	flags.StringVar(&o.out, "out", "build/gpu-records", "directory for the records")
	flags.StringVar(&o.programs, "programs", "bin", "directory with Bookend's programs and cudajob")
	flags.StringVar(&only, "only", "", "names of scenarios and groups (base, why, probe, check, hidden, recorded, "+
		"faults, programs, multi) and of benchmarks (timings, hook-cost, row-cost, record-cost); default all")
	flags.IntVar(&o.runs, "runs", 3, "how often each scenario runs")
	flags.IntVar(&o.fake, "fake", 0, "rehearse with this many fake GPUs")
	flags.IntVar(&o.fakeNodes, "fake-nodes", 1, "and this many nodes, at work side by side")
	flags.StringVar(&story, "story", "", "tell what users and admins see of `NAMES`, once and without controls; help "+
		"lists them")
	flags.DurationVar(&o.budget, "budget", 9*time.Minute, "no run begins after this time")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.story = story != ""; o.story {
		var err error
		if o.runs, o.list = 1, story == "help"; !o.list {
			o.only, err = askedTales(story)
		}
		return o, err
	}
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	if flags.NArg() > 0 || o.runs < 1 || o.fake < 0 || o.fake > 16 || o.fakeNodes < 1 || o.fakeNodes > 8 {
		return o, errors.New("want no arguments, at least one run, at most 16 fake GPUs and 8 nodes")
	}
	return o, checkNames(o.only)
}

func lead(o options) int {
	err := os.MkdirAll(o.out, 0o755)
	log, opened := os.Create(filepath.Join(o.out, "lane.log"))
	if err = cmp.Or(err, opened); err != nil {
		fmt.Fprintln(os.Stderr, "gpu-lane:", err)
		return exitUnfit
	}
	defer log.Close()
	l := &lane{options: o, node: firstNode, oneGPU: "gpu:1", say: io.MultiWriter(os.Stdout, log), tale: io.Discard,
		began: time.Now(), book: &book{}}
	if o.story {
		l.say, l.tale = log, os.Stdout
		fmt.Println("Starting a private Slurm with Bookend...")
	}
	if err = attempt(l.up); err != nil {
		l.complain("gpu-lane: %v", err)
		_ = l.close()
		if errors.Is(err, errNoGPU) {
			return exitNoGPU
		}
		return exitUnfit
	}
	l.endOnSignal()
	l.everything()
	return l.finish()
}

// endOnSignal takes the cluster down when the lane is told to end; what was recorded so far is on disk already.
func (l *lane) endOnSignal() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		l.complain("gpu-lane: ended by %v", <-told)
		l.keepLogs()
		_ = l.close()
		os.Exit(exitWrong)
	}()
}

// finish says how it went, and keeps the logs where it did not go well.
func (l *lane) finish() int {
	exit := exitRight
	if !l.summary() {
		exit = exitWrong
		l.keepLogs()
	}
	if err := l.close(); err != nil {
		l.complain("gpu-lane: take down: %v", err)
		exit = exitWrong
	}
	l.epilogue()
	return exit
}
