package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
)

// ownRecord is the job's own record, which its prolog has made.
func (n *node) ownRecord() string {
	n.Helper()
	files, err := filepath.Glob(n.inState("100/*.json"))
	must(n, err)
	if len(files) != 1 {
		n.Fatalf("records %q, want one", files)
	}
	return files[0]
}

// damages put garbage in a record's place; package state tries many kinds.
var damages = map[string]func(n *node, path string){
	"cut off":   func(n *node, path string) { must(n, os.Truncate(path, 200)) },
	"a version": func(n *node, path string) { n.replace(path, `"version":1`, `"version":99`) },
	"a job":     func(n *node, path string) { n.replace(path, `"id":100`, `"id":101`) },
	"a user's":  func(n *node, path string) { n.give(path, user) },
	"a link":    func(n *node, path string) { n.swap(path, func() error { return os.Symlink("/etc/passwd", path) }) },
	"a FIFO":    func(n *node, path string) { n.swap(path, func() error { return unix.Mkfifo(path, 0o600) }) },
}

func (n *node) replace(path, old, text string) {
	n.Helper()
	data := n.get(path)
	if !strings.Contains(data, old) {
		n.Fatalf("no %s in %s", old, data)
	}
	n.put(path, strings.Replace(data, old, text, 1), 0o600)
}

func (n *node) swap(path string, with func() error) {
	n.Helper()
	must(n, os.Remove(path))
	must(n, with())
}

// A record that cannot be used is set aside and said, and is its job's loss alone; the epilog goes on as if there had
// been no prolog.
func TestDamagedRecord(t *testing.T) {
	faults := map[string]fault{}
	for name, damage := range damages {
		faults[name] = fault{hooks: []hook{epilog}, finds: code.StateDamage, says: "/100/", exit: 38,
			harm: func(n *node) {
				damage(n, n.ownRecord())
				n.Cleanup(func() {
					if found := n.findings(epilog); !has(found, code.NoRecord) || !n.run(100).Closed() {
						n.Errorf("got %+v", found)
					}
					if aside, _ := os.ReadDir(n.inState("damaged")); len(aside) != 1 {
						n.Errorf("set aside: %v", aside)
					}
				})
			}}
	}
	try(t, faults)
	for name, damage := range damages {
		n := newNode(t, "enforce")
		n.clean(prolog, bystanding())
		others := n.record()
		n.clean(prolog, newJob())
		damage(n, n.ownRecord())
		n.exits(0, prolog, numbered(101))
		n.exits(0, epilog, numbered(101))
		if r := n.run(101); r.Start == nil || len(r.Ends) != 1 {
			t.Errorf("%s: job 101's record: %+v", name, r)
		}
		n.unharmed(others)
	}
}

// What the node's hooks share may be garbage too: it is set aside, and nothing is missed.
func TestDamagedShared(t *testing.T) {
	for file, exit := range map[string]int{"stuck.json": 38, "faults.json": 0} {
		try(t, map[string]fault{file: {finds: code.NoDriver, exit: exit, harm: func(n *node) {
			n.put(n.inState(file), "\x00\x00", 0o600)
			n.configure(func(c *conf) { c.library = n.in("no-library") }) // a fault to be counted
		}}})
	}
}

// State that cannot be used does not stop a hook: the GPUs are looked at, the log says what was lost.
func TestStateOutOfUse(t *testing.T) {
	made := func(change func(n *node)) func(n *node) {
		return func(n *node) {
			must(n, os.RemoveAll(n.conf.run))
			must(n, os.Mkdir(n.conf.run, 0o755))
			change(n)
		}
	}
	for name, tt := range map[string]struct {
		harm func(n *node)
		says string
	}{
		"read-only":   {made(func(n *node) { n.mountRun("ro,") }), "read-only file system"},
		"full":        {made(func(n *node) { n.mountRun("size=4k"); n.fill(n.conf.run) }), "no space left"},
		"no parent":   {func(n *node) { n.configure(func(c *conf) { c.run = n.in("no/run") }) }, "no such file"},
		"open to all": {made(func(n *node) { must(n, os.Chmod(n.conf.run, 0o777)) }), "not as agreed"},
		"state is a link": {made(func(n *node) {
			must(n, os.Symlink(n.in("world"), filepath.Join(n.conf.run, "state")))
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, h := range hooks {
				n := newNode(t, "enforce")
				n.configure(func(c *conf) { c.onUnknown = "drain" })
				tt.harm(n)
				n.exits(39, h, newJob())
				n.saysTimes(1, "findings: ", "BKD-ST-WRITE", "looks=1")
				n.says("BKD-ST-WRITE: ", tt.says)
				if left := n.halfWritten(); len(left) > 0 {
					t.Errorf("half written: %q", left)
				}
			}
		})
	}
}

// A full file system while a job runs costs its end, not its start: the record is the old one, whole.
func TestFullBetweenTheHooks(t *testing.T) {
	n := newNode(t, "enforce")
	n.mountRun("size=256k")
	n.clean(prolog, bystanding())
	n.clean(prolog, newJob())
	others, own := n.record(), n.run(100)
	n.fill(n.conf.run)
	n.exits(0, epilog, newJob())
	n.saysTimes(1, "BKD-ST-WRITE: ", "close run of job 100", "no space left")
	if now := n.run(100); now.Start == nil || now.Start.At != own.Start.At || now.Closed() {
		t.Errorf("got %+v", now)
	}
	n.unharmed(others)
}

// The folder of the state is made where it is missing; so is every one below. An end without a record of its start says
// so, and drains for nothing that is on the GPU.
func TestStateLostMeanwhile(t *testing.T) {
	for _, gone := range []string{"", "report", "drop", "state/" + nodeName + "/100"} {
		n := newNode(t, "enforce")
		n.configure(func(c *conf) { c.onUnknown = "drain" })
		n.clean(prolog, newJob())
		must(t, os.RemoveAll(filepath.Join(n.conf.run, gone)))
		kept := gone == "report" || gone == "drop"
		if !kept {
			n.leftover()
		}
		n.exits(0, epilog, newJob())
		if !n.run(100).Closed() || has(n.findings(epilog), code.NoRecord) == kept {
			t.Errorf("without %q: %+v", gone, n.findings(epilog))
		}
	}
}
