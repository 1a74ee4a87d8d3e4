package faultinject_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/faultinject"
	"bookend/test/must"
	"bookend/test/rig"
)

func TestMain(m *testing.M) {
	faultinject.Serve()
	rig.Main(m, nil)
}

// The first call on a file gets the answer, and the program goes on from there. Processes that the program starts are
// watched too; calls that no filter selects are not.
func TestAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a file")
	const digits = "0123456789"
	replace := func(c faultinject.Call) faultinject.Answer {
		if cmd := c.Command(); len(cmd) != 2 || cmd[1] != path || c.PID() == 0 {
			t.Errorf("called by %q, process %d", cmd, c.PID())
		}
		must.Do(t, os.WriteFile(path, []byte("new"), 0o600))
		return faultinject.Answer{}
	}
	with := func(a faultinject.Answer) func(faultinject.Call) faultinject.Answer {
		return func(faultinject.Call) faultinject.Answer { return a }
	}
	fails := with(faultinject.Answer{Errno: unix.EIO})
	opens, reads := faultinject.Filter{Number: unix.SYS_OPENAT}, faultinject.Filter{Number: unix.SYS_READ, When: []faultinject.Arg{faultinject.AtLeast(0, 3)}}
	writes := func(when faultinject.Arg) faultinject.Filter {
		return faultinject.Filter{Number: unix.SYS_WRITE, When: []faultinject.Arg{when}}
	}
	read := []string{"/bin/cat", path}
	write := []string{"/bin/sh", "-c", "printf " + digits + " | dd of='" + path + "' 2>/dev/null; cat '" + path + "'"}
	for name, c := range map[string]struct {
		command []string
		calls   faultinject.Filter
		first   func(faultinject.Call) faultinject.Answer
		asked   int
		out     string
		ends    string
	}{
		"before":      {read, opens, replace, 1, "new", "exit status 0"},
		"fail":        {read, opens, fails, 1, "", "exit status 1"},
		"kill":        {read, opens, with(faultinject.Answer{Kill: true}), 1, "", "signal: killed"},
		"short read":  {read, reads, with(faultinject.Answer{Short: 3}), 3, digits, "exit status 0"},
		"short write": {write, writes(faultinject.AtLeast(0, 1)), with(faultinject.Answer{Short: 3}), 2, digits, "exit status 0"},
		"from fd":     {write, writes(faultinject.AtLeast(0, 2)), fails, 0, digits, "exit status 0"},
		"from bytes":  {write, writes(faultinject.AtLeast(2, 11)), fails, 0, digits, "exit status 0"},
	} {
		must.Do(t, os.WriteFile(path, []byte(digits), 0o600))
		var out bytes.Buffer
		cmd := exec.Command(c.command[0], c.command[1:]...)
		cmd.Stdout = &out
		asked := 0
		w := must.Have(faultinject.Start(cmd, []faultinject.Filter{c.calls}, func(call faultinject.Call) faultinject.Answer {
			opened := call.Number == unix.SYS_OPENAT && call.Text(1) == path
			if !opened && call.File(0) != path {
				return faultinject.Answer{}
			}
			if asked++; asked > 1 {
				return faultinject.Answer{}
			}
			return c.first(call)
		}))(t)
		_ = w.Wait() // cmd.ProcessState has the exit status
		got := fmt.Sprintf("%v, asked %d times, with %q", cmd.ProcessState, asked, out.String())
		must.Be(t, name, got, fmt.Sprintf("%s, asked %d times, with %q", c.ends, c.asked, c.out))
	}
}
