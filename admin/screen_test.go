package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onTerminal runs the command line on a terminal of so many columns and returns what that got.
func onTerminal(t *testing.T, n testNode, width uint16, env []string, args ...string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	defer master.Close()
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	must(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: width}))
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	program := filepath.Join(n.dir, "bin/bookend")
	if _, err := os.Stat(program); err != nil {
		program = standIn(t, n.dir)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append([]string{"BOOKEND_CONFIG=" + n.config}, env...)
	cmd.Stdout, cmd.Stderr = terminal, terminal
	must(t, cmd.Start())
	must(t, terminal.Close())
	var out bytes.Buffer
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(&out, master) // ends with EIO once nobody has the other end any more
		close(done)
	}()
	_ = cmd.Wait()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the terminal is still open")
	}
	return strings.ReplaceAll(out.String(), "\r\n", "\n")
}

// Colour is for terminals that take it and people who want it; lines are as wide as the terminal is.
func TestTerminals(t *testing.T) {
	n := busy(t)
	const red = "\x1b[31m"
	for name, tt := range map[string]struct {
		env    []string
		colour bool
	}{
		"a terminal":        {[]string{"TERM=xterm"}, true},
		"NO_COLOR":          {[]string{"TERM=xterm", "NO_COLOR=1"}, false},
		"an empty NO_COLOR": {[]string{"TERM=xterm", "NO_COLOR="}, true},
		"dumb":              {[]string{"TERM=dumb"}, false},
		"no TERM":           {nil, false},
	} {
		got := onTerminal(t, n, 80, tt.env, "show", "42")
		if strings.Contains(got, red) != tt.colour || !strings.Contains(got, "BKD-ORPHAN") || !tt.colour &&
			strings.Contains(got, "\x1b") {
			t.Errorf("%s: %q", name, got)
		}
	}
	piped := bookend(0, n.config, "explain", "orphan")
	if strings.Contains(piped.out, "\x1b") {
		t.Errorf("a pipe: %q", piped.out)
	}
}
