package intercept

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Serve()
	os.Exit(m.Run())
}

var opens = []Kind{{Number: unix.SYS_OPENAT}}

func run(t *testing.T, cmd *exec.Cmd, kinds []Kind, decide func(Call) Answer) (out string, err error) {
	t.Helper()
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	w, err := Start(cmd, kinds, decide)
	if err != nil {
		t.Fatal(err)
	}
	err = w.Wait()
	return both.String(), err
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What is done while a call waits has happened before it.
func TestBefore(t *testing.T) {
	path := file(t, "old")
	asked := 0
	out, err := run(t, exec.Command("/bin/cat", path), opens, func(c Call) Answer {
		if c.Text(1) == path {
			asked++
			if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
				t.Error(err)
			}
			if cmd := c.Command(); len(cmd) != 2 || cmd[1] != path || c.PID() == 0 {
				t.Errorf("asked by %q, process %d", cmd, c.PID())
			}
		}
		return Pass()
	})
	if err != nil || out != "new" || asked != 1 {
		t.Errorf("%q, %v, asked %d times", out, err, asked)
	}
}

func TestFail(t *testing.T) {
	path := file(t, "text")
	out, err := run(t, exec.Command("/bin/cat", path), opens, func(c Call) Answer {
		if c.Text(1) == path {
			return Fail(unix.EIO)
		}
		return Pass()
	})
	if err == nil || !strings.Contains(out, "Input/output error") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestKill(t *testing.T) {
	path := file(t, "text")
	_, err := run(t, exec.Command("/bin/cat", path), opens, func(c Call) Answer {
		if c.Text(1) == path {
			return Kill()
		}
		return Pass()
	})
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("%v", err)
	}
}

// A short write leaves just what it says, and the writer goes on behind it. Grandchildren are asked about too.
func TestShort(t *testing.T) {
	path := file(t, "")
	writes := 0
	cmd := exec.Command("/bin/sh", "-c", "printf 0123456789 | dd of='"+path+"' 2>/dev/null")
	_, err := run(t, cmd, []Kind{{Number: unix.SYS_WRITE, FromFD: 1}}, func(c Call) Answer {
		if c.File(0) != path {
			return Pass()
		}
		if writes++; writes == 1 {
			return Short(3)
		}
		return Pass()
	})
	text, _ := os.ReadFile(path)
	if err != nil || string(text) != "0123456789" || writes != 2 {
		t.Errorf("%q after %d writes, %v", text, writes, err)
	}
}

// A short read gives just what it says, and the reader goes on behind it.
func TestShortRead(t *testing.T) {
	path, reads := file(t, "0123456789"), 0
	out, err := run(t, exec.Command("/bin/cat", path), []Kind{{Number: unix.SYS_READ, FromFD: 3}}, func(c Call) Answer {
		if c.File(0) != path {
			return Pass()
		}
		if reads++; reads == 1 {
			return Short(3)
		}
		return Pass()
	})
	if err != nil || out != "0123456789" || reads != 3 {
		t.Errorf("%q after %d reads, %v", out, reads, err)
	}
}

func TestFromFD(t *testing.T) {
	out, err := run(t, exec.Command("/bin/echo", "said"), []Kind{{Number: unix.SYS_WRITE, FromFD: 2}}, func(Call) Answer {
		return Fail(unix.EIO)
	})
	if err != nil || out != "said\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestFromBytes(t *testing.T) {
	for bytes, want := range map[uint32]bool{5: false, 6: true} {
		out, err := run(t, exec.Command("/bin/echo", "said"), []Kind{{Number: unix.SYS_WRITE, FromBytes: bytes}}, func(Call) Answer {
			return Fail(unix.EIO)
		})
		if (err == nil && out == "said\n") != want {
			t.Errorf("from %d bytes: %q, %v", bytes, out, err)
		}
	}
}
