// Package intercept runs an unmodified program and is asked before each system call of chosen kinds that it, or a
// process it starts, makes: let it pass, fail it, cut a write or read short, kill the caller, or do something first,
// while the caller stands still. It is how tests put a fault, or a swap, between two given steps of a program.
//
// It uses seccomp's user notifications (Linux 5.19 for SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) and needs root. The
// program that uses it calls Serve first of all: it starts itself once more to put the filter on.
package intercept

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Kind is a kind of system call to be asked about.
type Kind struct {
	Number uintptr
	// FromFD, where it is not 0, asks only about calls whose first argument is a descriptor of at least this number.
	FromFD uint32
	// FromBytes, where it is not 0, asks only about calls whose third argument is at least this. Go's runtime writes 8
	// bytes to wake itself, and interrupts a thread that stands still there with signal after signal: leave those
	// alone.
	FromBytes uint32
}

// Answer is what becomes of a call. The zero Answer lets it pass.
type Answer struct {
	errno unix.Errno
	short bool
	bytes int
	kill  bool
}

// Pass lets the call happen.
func Pass() Answer { return Answer{} }

// Fail makes the call end with errno; nothing happens.
func Fail(errno unix.Errno) Answer { return Answer{errno: errno} }

// Short makes a write, pwrite64 or read do only its first n bytes, really, and return how many it did.
func Short(n int) Answer { return Answer{short: true, bytes: n} }

// Kill ends the calling process by SIGKILL before the call happens.
func Kill() Answer { return Answer{kill: true} }

// Watch is a running program that is being asked about.
type Watch struct {
	cmd      *exec.Cmd
	listener int
	done     chan error
}

// Start starts cmd so that decide is asked about each call of these kinds, one after another, by one goroutine; the
// calling thread stands still meanwhile. Processes that cmd starts are asked about too. cmd must not have been
// started, and its Path must be absolute; its ExtraFiles are not passed on.
func Start(cmd *exec.Cmd, kinds []Kind, decide func(Call) Answer) (*Watch, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	defer theirs.Close()
	if err := launchFirst(cmd, kinds, theirs); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %q: %w", cmd.Path, err)
	}
	theirs.Close()
	listener, err := receive(ours)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("start %q: %w", cmd.Path, err)
	}
	w := &Watch{cmd: cmd, listener: listener, done: make(chan error, 1)}
	go func() { w.done <- w.serve(decide) }()
	return w, nil
}

// Wait waits for the program's end, then for that of all it started: while one of them lives decide may be asked.
// It returns the program's own error, as exec.Cmd.Wait does, joined with one of the watching.
func (w *Watch) Wait() error {
	ended := w.cmd.Wait()
	watched := <-w.done
	_ = unix.Close(w.listener)
	return errors.Join(ended, watched)
}

// Serve serves as the launcher, and does not return, where this process was started as one.
func Serve() {
	if len(os.Args) > 0 && os.Args[0] == launcher {
		fmt.Fprintln(os.Stderr, launch(os.Args[1:]))
		os.Exit(127)
	}
}
