package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/slurm"
	"bookend/test/build"
	"bookend/test/cluster"
	"bookend/test/intercept"
	"bookend/test/rig"
)

// bench is the folder in which everything happens: root's all the way up, as root's hooks demand, and in memory.
type bench struct {
	dir   string
	count int
}

func newBench() (*bench, error) {
	if err := cluster.SweepDead(); err != nil {
		return nil, err
	}
	dir, err := cluster.Scratch()
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return nil, fmt.Errorf("mount a file system of memory on %q: %w", dir, err)
	}
	return &bench{dir: dir}, nil
}

// remove removes the folder; what is mounted on it ends with this process.
func (b *bench) remove() { _ = cluster.Remove(b.dir) }

// folder makes a new one.
func (b *bench) folder(name string) (string, error) {
	b.count++
	path := filepath.Join(b.dir, name+"-"+strconv.Itoa(b.count))
	return path, os.Mkdir(path, 0o755)
}

// folders are so many new ones.
func (b *bench) folders(name string, count int) (all []string, err error) {
	for range count {
		path, failed := b.folder(name)
		all, err = append(all, path), errors.Join(err, failed)
	}
	return all, err
}

// build builds the hooks and the backend; with an overlay, as they are with that.
func (b *bench) build(overlay string) (programs string, err error) {
	if programs, err = b.folder("programs"); err != nil {
		return "", err
	}
	return programs, build.Programs(programs, overlay, "bookend-prolog", "bookend-epilog", rig.Backend)
}

// outcome is what slurmd sees of a hook.
type outcome struct {
	exit   int // -1: ended by a signal
	output string
}

// decision is asked before a call of a hook, or of what it has started.
type decision func(hook int, c intercept.Call) intercept.Answer

// tooLong is more than any hook here, and what it has started, may take: the sum of its deadlines.
const tooLong = 5 * time.Minute

// call runs a step's hook to its end, and with decide to that of all it started, as slurmd does: in a process group of
// its own, with one pipe for all output.
func (n *node) call(s step, kinds []intercept.Kind, decide decision) (outcome, error) {
	cmd := exec.Command(filepath.Join(n.programs, "bookend-"+string(s.hook)))
	var output bytes.Buffer
	context := map[hookName]slurm.Context{prolog: slurm.Prolog, epilog: slurm.Epilog}[s.hook]
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = s.run.job().Environ(n.in("bookend.yaml"), context), "/", &output, &output
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

func start(cmd *exec.Cmd, kinds []intercept.Kind, decide decision) (wait func() error, err error) {
	if decide == nil {
		return cmd.Wait, cmd.Start()
	}
	watch, err := intercept.Start(cmd, kinds, func(c intercept.Call) intercept.Answer {
		return decide(cmd.Process.Pid,
			c)
	})
	if err != nil {
		return nil, err
	}
	return watch.Wait, nil
}

// begin makes the node as it is when a step's hook starts.
func (n *node) begin(s step) error {
	var err error
	if s.arrange != nil {
		err = s.arrange(n)
	}
	if err == nil {
		err = s.world(n)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// whole runs a step to its end without a fault.
func (n *node) whole(s step) (outcome, error) {
	if err := n.begin(s); err != nil {
		return outcome{}, err
	}
	return n.call(s, nil, nil)
}

// look reads what the hooks keep by now, as files and as the next hook would read them.
func (n *node) look() (now image, is states, err error) {
	if now, err = capture(n.dir); err != nil {
		return nil, is, err
	}
	is, err = now.decode(n.dir + "-decoded")
	return now, is, err
}
