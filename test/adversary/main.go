// Command adversary tries the shipped hooks against a hostile user and a failing machine. A watcher (test/faultinject)
// holds the unchanged programs still before chosen system calls, and a plan says what happens then:
//
//	adversary swap [--writes N] [--reads N] [--swaps N] [--seed S] [--only TEXT] [--replay N [--guard NAME]]
//	adversary fault [--only TEXT]
//
// swap replaces files and directories between look-up and use, as the job's user could, while a process of that user's
// tries to trace and to signal the hook's children: an epilog must never read or write what is not that user's own.
// fault runs the hooks through a history of jobs on fake GPUs, and lets one system call at a time fail, do less than it
// was asked to, or be the last before SIGKILL. It reads all that the hooks keep after each, and runs the next hook.
//
// Then each plan plants mistakes in the code, one at a time, and must notice every one of them.
//
// It is run as root in the root of the tree; swap needs FUSE. Exit status: 0 all is right, 1 something is not, 64 usage
// or a trial that does not work here.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/build"
	"bookend/test/faultinject"
	"bookend/test/rig"
)

func main() {
	faultinject.Serve()
	plan := map[string]func(*flag.FlagSet, []string) (right bool){"swap": swapPlan, "fault": faultPlan}
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	if name == "swap" {
		spare()
	}
	right := false
	err := rig.Attempt(func() {
		if plan[name] == nil {
			rig.Try(errors.New("want swap or fault"))
		}
		rig.Try(rig.OwnMounts())
		rig.Try(unix.Mount("none", bench, "tmpfs", 0, "mode=0755"))
		right = plan[name](flag.NewFlagSet(name, flag.ContinueOnError), os.Args[2:])
	})
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "adversary:", err)
		os.Exit(64)
	case !right:
		os.Exit(1)
	}
}

// spare keeps this process, and all that it starts, to every second processor. A process that waits for the end of
// another one is busy as long as an interrupted reader of /proc has that one open: without a free processor, hooks and
// everything that reads all of /proc take ten times as long. It must be called before rig.OwnMounts.
func spare() {
	runtime.LockOSThread() // the choice is this thread's, and its program's after exec
	var all, second unix.CPUSet
	_ = unix.SchedGetaffinity(0, &all)
	for cpu := 1; cpu < len(all)*64; cpu += 2 {
		if all.IsSet(cpu) {
			second.Set(cpu)
		}
	}
	if second.Count() > 0 {
		_ = unix.SchedSetaffinity(0, &second) // without it the trial is slower, and as right
	}
}

// bench is where a file system in memory is mounted, in this mount namespace: root's all the way up, as root's hooks
// demand. It hides a directory that is everywhere and empty.
const bench = "/mnt"

// newDir makes a new directory on the bench.
func newDir(name string) string {
	path := rig.Have(os.MkdirTemp(bench, name+"-"))
	rig.Try(os.Chmod(path, 0o755))
	return path
}

// programs builds programs as the Makefile does, with a mistake if m names one, and returns their directory.
func programs(m faultinject.Mutant, names ...string) string {
	dir, overlay := newDir("programs"), ""
	if m.File != "" {
		overlay = rig.Have(m.Overlay(rig.Have(rig.Module()), dir))
	}
	rig.Try(build.Programs(dir, overlay, names...))
	return dir
}

// each gives what next returns to the workers, until there is no more or a trial has failed to work.
func each[W, T any](workers []W, next func() (T, bool), try func(W, T)) {
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	draw := func() (item T, more bool) {
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			item, more = next()
		}
		return item, more
	}
	for _, w := range workers {
		all.Go(func() {
			for item, more := draw(); more; item, more = draw() {
				if err := rig.Attempt(func() { try(w, item) }); err != nil {
					mu.Lock()
					failed = errors.Join(failed, fmt.Errorf("%v: %w", item, err))
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	rig.Try(failed)
}

// watch runs a program until it and all that it started have ended, and returns its output. decide is called before the
// selected calls.
func watch(cmd *exec.Cmd, limit time.Duration, calls []faultinject.Filter,
	decide func(faultinject.Call) faultinject.Answer) (output string, late bool) {
	var out strings.Builder
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", &out, &out
	late, err := faultinject.Run(cmd, limit, calls, decide)
	rig.Try(err)
	return out.String(), late
}
