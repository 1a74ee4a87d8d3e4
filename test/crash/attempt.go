package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/intercept"
)

// outcome is what slurmd sees of a hook.
type outcome struct {
	exit   int // -1: ended by a signal
	output string
}

// tooLong is more than any hook here, and what it has started, may take: the sum of its deadlines.
const tooLong = 5 * time.Minute

// call runs a step's hook to its end, and with decide to that of all it started, as slurmd does: in a process group of
// its own, with one pipe for all output.
func (n *node) call(s step, kinds []intercept.Kind, decide func(hook int, c intercept.Call) intercept.Answer) (outcome, error) {
	cmd := exec.Command(filepath.Join(n.programs, "bookend-"+string(s.hook)))
	var output bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = s.run.environ(n, s.hook), "/", &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	wait, err := start(cmd, kinds, decide)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", s.name, err)
	}
	var late atomic.Bool
	over := time.AfterFunc(tooLong, func() {
		late.Store(true)
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	})
	err = wait()
	over.Stop()
	if ended := new(exec.ExitError); err != nil && !errors.As(err, &ended) {
		return outcome{}, fmt.Errorf("%s: %w", s.name, err)
	}
	if late.Load() {
		return outcome{}, fmt.Errorf("%s: it, or a child of it, was still there after %v", s.name, tooLong)
	}
	return outcome{cmd.ProcessState.ExitCode(), output.String()}, nil
}

func start(cmd *exec.Cmd, kinds []intercept.Kind, decide func(int, intercept.Call) intercept.Answer) (wait func() error, err error) {
	if decide == nil {
		return cmd.Wait, cmd.Start()
	}
	watch, err := intercept.Start(cmd, kinds, func(c intercept.Call) intercept.Answer { return decide(cmd.Process.Pid, c) })
	if err != nil {
		return nil, err
	}
	return watch.Wait, nil
}

// begin makes the node as it is when a step's hook starts.
func (n *node) begin(s step) error {
	if s.arrange != nil {
		if err := s.arrange(n); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := s.world(n); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}
