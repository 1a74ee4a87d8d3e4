// Command demo tells what Bookend does, on a private Slurm of its own: jobs that leave their GPU clean or not, what
// their users read in their logs, what the admin sees, and how a node is drained and resumed. It believes nothing:
// before and after each job it looks itself for processes on the card, works out from that what Bookend must say,
// and fails where Bookend says something else.
//
//	go run ./test/demo                                   all of it
//	go run ./test/demo -observe orphan,heir,clean        other jobs, in any order and number
//	go run ./test/demo -pause                            wait before each job: time to end a process by hand
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/cluster"
)

func main() {
	o := options{Out: os.Stdout, In: os.Stdin, Colour: isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == ""}
	observe := flag.String("observe", "clean,oom,pool,orphan,heir,stranger", "jobs in observe mode, in this order, any number of each:"+explained())
	flag.StringVar(&o.Programs, "programs", "bin", "folder with the built programs")
	flag.StringVar(&o.GPUs, "gpus", "auto", "auto, fake or real")
	flag.BoolVar(&o.Pause, "pause", false, "wait for Enter before each job")
	flag.BoolVar(&o.ObserveOnly, "observe-only", false, "leave enforce mode out")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), `usage: make demo DEMO="FLAGS"`)
		flag.PrintDefaults()
	}
	flag.Parse()
	if *observe != "" {
		o.Observe = strings.Split(*observe, ",")
	}
	if err := perform(o); err != nil {
		fmt.Fprintf(os.Stderr, "demo: FAILED: %v\n", err)
		os.Exit(1)
	}
}

// perform runs the demonstration and takes everything down, also when it is interrupted.
func perform(o options) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := cluster.SweepDead(); err != nil { // what a killed demonstration left
		return err
	}
	began := time.Now()
	d, err := begin(o)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(stop)
	told := make(chan error, 1)
	go func() { told <- d.tell() }()
	select {
	case err = <-told:
	case s := <-stop:
		return errors.Join(fmt.Errorf("ended by %v", s), d.end())
	}
	if err := errors.Join(err, d.end()); err != nil {
		return err
	}
	d.say("All %d expectations held, in %.0f s.", d.held, time.Since(began).Seconds())
	return nil
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
