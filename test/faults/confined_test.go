package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// What a hook and its children inherit from slurmd, and keep: no descriptor beyond their three, no umask, no core file.
func TestConfined(t *testing.T) {
	n := newNode(t, "enforce")
	must(t, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", "hang"))
	n.configure(func(c *conf) { c.tight = true })
	old := unix.Umask(0)
	r, w, err := os.Pipe()
	must(t, err)
	_, err = unix.FcntlInt(w.Fd(), unix.F_SETFD, 0) // as slurmd's own were, up to 21.08
	must(t, err)
	p := n.start(prolog, newJob())
	unix.Umask(old)
	w.Close()

	backend := p.backend()
	for name, pid := range map[string]int{"hook": p.cmd.Process.Pid, "backend": backend} {
		if has := about(t, pid, "status", "Umask:"); has != "0022" {
			t.Errorf("%s: umask %s", name, has)
		}
		if has := about(t, pid, "limits", "Max core file size"); strings.Join(strings.Fields(has), " ") != "0 0 bytes" {
			t.Errorf("%s: core files %s", name, has)
		}
	}
	if _, err := r.Read(make([]byte, 1)); err == nil || err.Error() != "EOF" {
		t.Errorf("somebody still has the inherited pipe: %v", err)
	}
	if o := p.wait(); o.exit != 0 {
		t.Errorf("%v", o)
	}
}

// about is what one line of a file in /proc/PID says.
func about(t *testing.T, pid int, file, key string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no %q in %s", key, text)
	return ""
}

// Modes are what they are meant to be under whatever umask slurmd has.
func TestModesWhateverTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o077} {
		n := newNode(t, "enforce")
		old := unix.Umask(mask)
		n.clean(prolog, newJob())
		n.clean(epilog, newJob())
		unix.Umask(old)
		for path, want := range map[string]os.FileMode{
			n.conf.log: 0o755, filepath.Join(n.conf.log, "bookend.log"): 0o640,
			n.conf.run: 0o755, filepath.Join(n.conf.run, "state"): 0o700,
			filepath.Join(n.conf.run, "report"): 0o711, filepath.Join(n.conf.run, "drop"): 0o711,
			n.in("var"): 0o755, n.in("var/history"): 0o700,
		} {
			info, err := os.Stat(path)
			must(t, err)
			if info.Mode().Perm() != want || info.Sys().(*syscall.Stat_t).Uid != 0 {
				t.Errorf("umask %#o: %s has mode %v, want %v", mask, path, info.Mode(), want)
			}
		}
	}
}
