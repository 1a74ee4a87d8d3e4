package fakegpu

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Program is a running fakecuda.
type Program struct {
	PID      int   // of the process that took memory; with --orphan not the one started
	Children []int // of --fork-hold and --workers
	cmd      *exec.Cmd
	out      io.ReadCloser
	orphan   bool // what was started has ended
	killed   bool // its PID may be another's by now
}

// Start runs fakecuda with these arguments, an empty environment and the caller's rights, and returns when it is
// ready. The caller ends it.
func (w *World) Start(args ...string) (*Program, error) { return w.StartAs(nil, nil, args...) }

// StartAs is Start as another user (nil: the caller's) and with an environment.
func (w *World) StartAs(user *syscall.Credential, env []string, args ...string) (*Program, error) {
	cmd := exec.Command(w.FakeCUDA(), args...)
	cmd.Env = append([]string{}, env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	var complaint strings.Builder
	cmd.Stderr = &complaint
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Program{cmd: cmd, out: out}
	if err := p.awaitReady(); err != nil {
		_ = cmd.Process.Kill()
		return nil, errors.Join(err, cmd.Wait(), errors.New(strings.TrimSpace(complaint.String())))
	}
	if p.orphan = slices.Contains(args, "--orphan"); p.orphan {
		return p, cmd.Wait()
	}
	return p, nil
}

func (p *Program) awaitReady() error {
	stop := time.AfterFunc(5*time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer stop.Stop()
	line, err := bufio.NewReader(p.out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("fakecuda was not ready: %q: %w", line, err)
	}
	for field := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(field, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "pid":
			p.PID = n
		case "child":
			p.Children = append(p.Children, n)
		}
	}
	if p.PID == 0 {
		return fmt.Errorf("fakecuda said %q", line)
	}
	return nil
}

// Kill ends the process that holds by SIGKILL, and reaps it if it is the caller's child. Its children stay.
func (p *Program) Kill() error {
	if p.killed {
		return nil
	}
	p.killed = true
	err := syscall.Kill(p.PID, syscall.SIGKILL)
	if !p.orphan {
		_ = p.cmd.Wait() // says that it was killed
	}
	return err
}

// End kills all that is left of the program.
func (p *Program) End() {
	for _, child := range p.Children {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	_ = p.Kill()
}
