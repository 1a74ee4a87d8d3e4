package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/slurm"
)

// record is the job's own record, which its prolog has made.
func (n *node) ownRecord() string {
	n.Helper()
	files, err := filepath.Glob(filepath.Join(n.conf.run, "state", nodeName, "100", "*.json"))
	must(n, err)
	if len(files) != 1 {
		n.Fatalf("records %q, want one", files)
	}
	return files[0]
}

// damages put garbage of every kind in a record's place.
var damages = map[string]func(n *node, path string){
	"empty":     func(n *node, path string) { must(n, os.WriteFile(path, nil, 0o600)) },
	"cut off":   func(n *node, path string) { must(n, os.Truncate(path, 200)) },
	"zeros":     func(n *node, path string) { must(n, os.WriteFile(path, make([]byte, 4096), 0o600)) },
	"text":      func(n *node, path string) { must(n, os.WriteFile(path, []byte("hello\n"), 0o600)) },
	"an array":  func(n *node, path string) { must(n, os.WriteFile(path, []byte("[]\n"), 0o600)) },
	"null":      func(n *node, path string) { must(n, os.WriteFile(path, []byte("null\n"), 0o600)) },
	"deep":      func(n *node, path string) { must(n, os.WriteFile(path, []byte(strings.Repeat("[", 500000)), 0o600)) },
	"a version": func(n *node, path string) { n.replace(path, `"version":1`, `"version":99`) },
	"a job":     func(n *node, path string) { n.replace(path, `"id":100`, `"id":101`) },
	"a node":    func(n *node, path string) { n.replace(path, `"node":"n1"`, `"node":"n2"`) },
	"huge":      func(n *node, path string) { must(n, os.WriteFile(path, []byte(strings.Repeat(" ", 2<<20)), 0o600)) },
	"a user's":  func(n *node, path string) { must(n, os.Chown(path, user, user)) },
	"writable":  func(n *node, path string) { must(n, os.Chmod(path, 0o666)) },
	"a second name": func(n *node, path string) {
		must(n, os.Link(path, n.in("second-name")))
	},
	"a link":   func(n *node, path string) { n.swap(path, func() error { return os.Symlink("/etc/passwd", path) }) },
	"a folder": func(n *node, path string) { n.swap(path, func() error { return os.Mkdir(path, 0o700) }) },
	"a FIFO":   func(n *node, path string) { n.swap(path, func() error { return unix.Mkfifo(path, 0o600) }) },
	"a device": func(n *node, path string) {
		n.swap(path, func() error { return unix.Mknod(path, unix.S_IFCHR|0o600, 1<<8|3) })
	},
}

func (n *node) replace(path, old, text string) {
	n.Helper()
	data, err := os.ReadFile(path)
	must(n, err)
	if !strings.Contains(string(data), old) {
		n.Fatalf("no %s in %s", old, data)
	}
	must(n, os.WriteFile(path, []byte(strings.Replace(string(data), old, text, 1)), 0o600))
}

func (n *node) swap(path string, with func() error) {
	n.Helper()
	must(n, os.Remove(path))
	must(n, with())
}

// A record that cannot be used is set aside and said; the epilog goes on as if there had been no prolog.
func TestDamagedRecord(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for onUnknown, exit := range map[string]int{"warn": 0, "drain": 38} {
				n := newNode(t, "enforce")
				n.configure(func(c *conf) { c.onUnknown = onUnknown })
				harm := func(n *node) { damage(n, n.ownRecord()) }
				fault{job: newJob(), harm: harm, finds: code.StateDamage, says: []string{"damaged state", "/100/"}}.check(n, epilog, exit)
				if found := n.findings(epilog); !has(found, code.NoRecord) {
					t.Errorf("got %+v", found)
				}
				if aside, _ := os.ReadDir(filepath.Join(n.conf.run, "state", nodeName, "damaged")); len(aside) != 1 {
					t.Errorf("set aside: %v", aside)
				}
				if runs := n.runs(100); len(runs) != 1 || !runs[0].Closed() {
					t.Errorf("%d records", len(runs))
				}
			}
		})
	}
}

// Another job's record that is damaged is that job's loss alone.
func TestDamagedNeighbour(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.clean(prolog, bystanding())
			others := n.record()
			n.clean(prolog, newJob())
			damage(n, n.ownRecord())
			late := newJob().with("SLURM_JOB_ID", "101", "SLURM_JOBID", "101")
			for _, h := range hooks {
				if o := n.hook(h, late); o.exit != 0 {
					t.Errorf("%v", o)
				}
			}
			if r := n.run(101); r.Start == nil || len(r.Ends) != 1 {
				t.Errorf("job 101's record: %+v", r)
			}
			n.unharmed(others)
		})
	}
}

// What the node's hooks share may be garbage too: each is set aside, none is missed.
func TestDamagedShared(t *testing.T) {
	for _, file := range []string{"stuck.json", "faults.json"} {
		for name, text := range map[string]string{"empty": "", "text": "hello", "list": "[1]", "zeros": "\x00\x00\x00", "huge": strings.Repeat("x", 1<<20)} {
			t.Run(file+" "+name, func(t *testing.T) {
				t.Parallel()
				n := newNode(t, "enforce")
				n.clean(prolog, bystanding())
				others := n.record()
				must(t, os.WriteFile(filepath.Join(n.conf.run, "state", nodeName, file), []byte(text), 0o600))
				n.configure(func(c *conf) { c.library = n.in("no-library") }) // a fault to be counted
				for _, h := range hooks {
					o := n.hook(h, newJob())
					if o.exit != 0 || !has(n.findings(h), code.NoDriver) {
						t.Errorf("%s: %v\n%s", h.program, o, n.log())
					}
				}
				if file == "stuck.json" && len(lines(n.log(), "BKD-ST-DAMAGED")) == 0 {
					t.Errorf("not said:\n%s", n.log())
				}
				n.unharmed(others)
			})
		}
	}
}

// Things nobody knows lie about in the state folder.
func TestStrangersInState(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, bystanding())
	others := n.record()
	folder := filepath.Join(n.conf.run, "state", nodeName)
	for _, name := range []string{"0", "-1", "99999999999", "lost+found", "1234_5", "x.json"} {
		must(t, os.MkdirAll(filepath.Join(folder, name, "deep"), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(folder, "55"), []byte("a file for a folder"), 0o600))
	must(t, os.Mkdir(filepath.Join(folder, "56"), 0o700))
	must(t, os.WriteFile(filepath.Join(folder, "56/.tmp-0123456789abcdef"), []byte("{"), 0o600))
	must(t, os.Symlink("/", filepath.Join(folder, "57")))
	for _, h := range hooks {
		if o := n.hook(h, newJob()); o.exit != 0 {
			t.Errorf("%s: %v", h.program, o)
		}
	}
	if r := n.run(100); r.Start == nil || len(r.Ends) != 1 {
		t.Errorf("got %+v", r)
	}
	if n.record() != others {
		t.Error("the other job's record changed")
	}
}

// State that cannot be used does not stop a hook: the cards are looked at, the log says what was lost.
func TestStateOutOfUse(t *testing.T) {
	for name, tt := range map[string]struct {
		harm func(n *node)
		says string
	}{
		"read-only": {func(n *node) { n.mountRun("ro") }, "read-only file system"},
		"full":      {func(n *node) { n.mountRun("size=4k"); n.fill() }, "no space left"},
		"no inodes": {func(n *node) { n.mountRun("size=1m,nr_inodes=3") }, "no space left"},
		"a file":    {func(n *node) { must(n, os.WriteFile(n.conf.run, nil, 0o644)) }, "not a directory"},
		"no parent": {func(n *node) { n.configure(func(c *conf) { c.run = n.in("no/run") }) }, "no such file"},
		"a user's": {func(n *node) {
			must(n, os.Mkdir(n.conf.run, 0o755))
			must(n, os.Chown(n.conf.run, user, user))
		}, "not as agreed"},
		"open to all": {func(n *node) {
			must(n, os.Mkdir(n.conf.run, 0o755))
			must(n, os.Chmod(n.conf.run, 0o777))
		}, "not as agreed"},
		"state is a link": {func(n *node) {
			must(n, os.Mkdir(n.conf.run, 0o755))
			must(n, os.Symlink(n.in("world"), filepath.Join(n.conf.run, "state")))
		}, ""},
		"state is a user's": {func(n *node) {
			must(n, os.MkdirAll(filepath.Join(n.conf.run, "state"), 0o700))
			must(n, os.Chown(filepath.Join(n.conf.run, "state"), user, user))
		}, "not as agreed"},
		"run is a link": {func(n *node) {
			must(n, os.Mkdir(n.in("elsewhere"), 0o755))
			must(n, os.Symlink(n.in("elsewhere"), n.conf.run))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, h := range hooks {
				for _, m := range modes {
					n := newNode(t, m.mode)
					n.configure(func(c *conf) { c.onUnknown = m.onUnknown })
					tt.harm(n)
					exit := 0
					if m.drains {
						exit = 39
					}
					o := n.hook(h, newJob())
					if o.exit != exit || len(lines(n.log(), "findings: ", "BKD-ST-WRITE", "looks=1")) != 1 || len(lines(n.log(), "BKD-ST-WRITE: ", tt.says)) == 0 {
						t.Errorf("%s %s %s: %v\n%s", h.program, m.mode, m.onUnknown, o, n.log())
					}
					if left := n.halfWritten(); len(left) > 0 {
						t.Errorf("half written: %q", left)
					}
				}
			}
		})
	}
}

// mountRun mounts a small file system for the state, as the package's unit does.
func (n *node) mountRun(options string) {
	n.Helper()
	must(n, os.Mkdir(n.conf.run, 0o755))
	flags := uintptr(0)
	if options == "ro" {
		flags, options = unix.MS_RDONLY, ""
	}
	must(n, unix.Mount("none", n.conf.run, "tmpfs", flags, "mode=0755,"+options))
	n.Cleanup(func() { must(n, unix.Unmount(n.conf.run, unix.MNT_DETACH)) })
}

func (n *node) fill() {
	n.Helper()
	f, err := os.Create(filepath.Join(n.conf.run, "filler"))
	must(n, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 1024))
	}
}

// A full file system while a job runs costs its end, not its start: the record is the old one, whole.
func TestFullBetweenTheHooks(t *testing.T) {
	n := newNode(t, "enforce")
	n.mountRun("size=256k")
	n.clean(prolog, bystanding())
	n.clean(prolog, newJob())
	others, own := n.record(), n.run(100)
	n.fill()
	o := n.hook(epilog, newJob())
	if o.exit != 0 || len(lines(n.log(), "BKD-ST-WRITE: ", "close run of job 100", "no space left")) != 1 {
		t.Errorf("%v\n%s", o, n.log())
	}
	if now := n.run(100); now.Start == nil || now.Start.At != own.Start.At || now.Closed() {
		t.Errorf("got %+v", now)
	}
	n.unharmed(others)
}

// The folder of the state is made where it is missing; so is every one below, by a hook of any job.
func TestStateMissing(t *testing.T) {
	for _, gone := range []string{"", "state", "state/" + nodeName, "report", "drop", "state/" + nodeName + "/100"} {
		n := newNode(t, "enforce")
		n.clean(prolog, newJob())
		must(t, os.RemoveAll(filepath.Join(n.conf.run, gone)))
		o := n.hook(epilog, newJob())
		if o.exit != 0 || len(n.runs(slurm.JobID(100))) != 1 || !n.run(100).Closed() {
			t.Errorf("without %q: %v\n%s", gone, o, n.log())
		}
		if gone != "report" && gone != "drop" && !has(n.findings(epilog), code.NoRecord) {
			t.Errorf("without %q: %s", gone, fmt.Sprint(n.findings(epilog)))
		}
	}
}
