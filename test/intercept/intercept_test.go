package intercept

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Serve()
	os.Exit(m.Run())
}

// What comes of the first call on a file is what was answered, and the program goes on from there. Processes that it
// starts are asked about too; calls below a bound are not.
func TestAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a file")
	opens, reads := []Kind{{Number: unix.SYS_OPENAT}}, []Kind{{Number: unix.SYS_READ, FromFD: 3}}
	writes := []Kind{{Number: unix.SYS_WRITE, FromFD: 1}}
	const digits = "0123456789"
	replace := func(c Call) Answer {
		if cmd := c.Command(); len(cmd) != 2 || cmd[1] != path || c.PID() == 0 {
			t.Errorf("asked by %q, process %d", cmd, c.PID())
		}
		if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
			t.Error(err)
		}
		return Pass()
	}
	with := func(a Answer) func(Call) Answer { return func(Call) Answer { return a } }
	read := []string{"/bin/cat", path}
	write := []string{"/bin/sh", "-c", "printf " + digits + " | dd of='" + path + "' 2>/dev/null; cat '" + path + "'"}
	for name, c := range map[string]struct {
		command []string
		kinds   []Kind
		first   func(Call) Answer
		asked   int
		out     string
		ends    string
	}{
		"before":      {read, opens, replace, 1, "new", "exit status 0"},
		"fail":        {read, opens, with(Fail(unix.EIO)), 1, "", "exit status 1"},
		"kill":        {read, opens, with(Kill()), 1, "", "signal: killed"},
		"short read":  {read, reads, with(Short(3)), 3, digits, "exit status 0"},
		"short write": {write, writes, with(Short(3)), 2, digits, "exit status 0"},
		"from fd":     {write, []Kind{{unix.SYS_WRITE, 2, 0}}, with(Fail(unix.EIO)), 0, digits, "exit status 0"},
		"from bytes":  {write, []Kind{{unix.SYS_WRITE, 0, 11}}, with(Fail(unix.EIO)), 0, digits, "exit status 0"},
	} {
		if err := os.WriteFile(path, []byte(digits), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd := exec.Command(c.command[0], c.command[1:]...)
		cmd.Stdout = &out
		asked := 0
		w, err := Start(cmd, c.kinds, func(call Call) Answer {
			opened := call.Number == unix.SYS_OPENAT && call.Text(1) == path
			if !opened && call.File(0) != path {
				return Pass()
			}
			if asked++; asked > 1 {
				return Pass()
			}
			return c.first(call)
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Wait() // its state tells the same
		got := fmt.Sprintf("%v, asked %d times, with %q", cmd.ProcessState, asked, out.String())
		if want := fmt.Sprintf("%s, asked %d times, with %q", c.ends, c.asked, c.out); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
