package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// servant is this program started again as the user. It is told a line, and answers with a line.
type servant struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *bufio.Reader
}

func startAsUser() (*servant, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args[0] = "torture"
	cmd.Stderr = os.Stderr
	cmd.Dir, cmd.Env = "/", []string{asUser + "=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user},
		Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &servant{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

// asUser marks the environment of this program started again as the user.
const asUser = "BOOKEND_TORTURE_AS_USER"

// serveAsUser does not return where this process was started as the user.
func serveAsUser() {
	if os.Getenv(asUser) == "" {
		return
	}
	trace(os.Stdin, os.Stdout)
	os.Exit(0)
}

func (s *servant) ask(line string) (string, error) {
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		return "", err
	}
	answer, err := s.answers.ReadString('\n')
	return strings.TrimSpace(answer), err
}

func (s *servant) close() {
	_ = s.in.Close()
	_ = s.cmd.Wait()
}
