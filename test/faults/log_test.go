package faults

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Bookend's own log cannot be written: slurmd's log is told, verdict and record stand.
func TestLogOutOfUse(t *testing.T) {
	for name, tt := range map[string]struct {
		harm func(n *node, folder string)
		says string
	}{
		"a file":     {func(n *node, folder string) { must(n, os.WriteFile(folder, nil, 0o644)) }, "/log: not a directory"},
		"a user's":   {func(n *node, folder string) { must(n, os.Mkdir(folder, 0o755)); must(n, os.Chown(folder, user, user)) }, "not as agreed"},
		"a link":     {func(n *node, folder string) { must(n, os.Symlink("/etc", folder)) }, "/log: not a directory"},
		"log a FIFO": {func(n *node, folder string) { must(n, unix.Mkfifo(n.logFile(folder), 0o600)) }, "no such device"},
		"log a link": {func(n *node, folder string) { must(n, os.Symlink("/etc/passwd", n.logFile(folder))) }, "too many levels"},
		"log another's": {func(n *node, folder string) {
			must(n, os.WriteFile(n.logFile(folder), nil, 0o644))
			must(n, os.Chown(n.logFile(folder), user, user))
		}, "not as agreed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, h := range hooks {
				n := newNode(t, "enforce")
				n.configure(func(c *conf) { c.onUnknown = "drain" })
				n.clean(prolog, bystanding())
				must(t, os.RemoveAll(n.in("log")))
				others := n.record()
				tt.harm(n, n.in("log"))
				o := n.hook(h, newJob())
				if o.exit != 0 || !strings.HasPrefix(o.output, "bookend: ") || !strings.Contains(o.output, tt.says) {
					t.Errorf("%s: %v", h.program, o)
				}
				if r := n.run(100); r.Start == nil && !r.Closed() {
					t.Errorf("%+v", r)
				}
				n.unharmed(others)
			}
		})
	}
}

func (n *node) logFile(folder string) string {
	must(n, os.MkdirAll(folder, 0o755))
	return filepath.Join(folder, "bookend.log")
}

// The folder above may be a group's, as Ubuntu's /var/log is syslog's; a site's own folder stays as it is.
func TestLogFolder(t *testing.T) {
	const syslog, adm = 104, 4
	for name, tt := range map[string]struct {
		harm func(t *testing.T, folder string)
		mode os.FileMode
		gid  uint32
	}{
		"made":         {func(*testing.T, string) {}, 0o755, 0},
		"made already": {func(t *testing.T, folder string) { must(t, os.Mkdir(folder, 0o750)); must(t, os.Chown(folder, 0, adm)) }, 0o750, adm},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce")
			parent := n.in("var-log")
			must(t, os.Mkdir(parent, 0o755))
			must(t, os.Chmod(parent, 0o775))
			must(t, os.Chown(parent, 0, syslog))
			n.configure(func(c *conf) { c.log = filepath.Join(parent, "bookend") })
			tt.harm(t, n.conf.log)
			for _, h := range hooks {
				n.clean(h, newJob())
			}
			if got := len(lines(n.log(), "msg=clean")); got != 2 {
				t.Errorf("%d lines:\n%s", got, n.log())
			}
			st, err := os.Stat(n.conf.log)
			must(t, err)
			if gid := st.Sys().(*syscall.Stat_t).Gid; st.Mode().Perm() != tt.mode || gid != tt.gid {
				t.Errorf("the folder has mode %v, group %d", st.Mode(), gid)
			}
		})
	}
}
