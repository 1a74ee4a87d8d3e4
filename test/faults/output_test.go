package faults

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/joblog"
	"bookend/internal/state"
)

// home makes a folder of the user's, with the job's output in it.
func (n *node) home() (output string) {
	n.Helper()
	folder := n.in("home")
	must(n, os.Mkdir(folder, 0o755))
	output = filepath.Join(folder, "slurm-100.out")
	must(n, os.WriteFile(output, []byte("the job's own words\n"), 0o644))
	must(n, os.Chown(output, user, user))
	must(n, os.Chown(folder, user, user))
	return output
}

// outputs are what a user can put where the job's output was. Root never touches it; what the user may not write,
// the append may not.
var outputs = map[string]struct {
	harm   func(n *node, path string)
	reason string
}{
	"missing":  {func(n *node, path string) { must(n, os.Remove(path)) }, "missing"},
	"a folder": {func(n *node, path string) { n.swap(path, func() error { return os.Mkdir(path, 0o777) }) }, "not-regular"},
	"a FIFO": {func(n *node, path string) {
		n.swap(path, func() error { return unix.Mkfifo(path, 0o666) })
		must(n, os.Chown(path, user, user))
	}, "not-regular"},
	"a FIFO that somebody reads": {func(n *node, path string) {
		n.swap(path, func() error { return unix.Mkfifo(path, 0o666) })
		must(n, os.Chmod(path, 0o666))
		reader, err := os.OpenFile(path, os.O_RDWR, 0)
		must(n, err)
		n.Cleanup(func() { reader.Close() })
	}, "not-regular"},
	"a device": {func(n *node, path string) {
		n.swap(path, func() error { return unix.Mknod(path, unix.S_IFCHR|0o666, 1<<8|3) })
		must(n, os.Chmod(path, 0o666))
	}, "not-regular"},
	"a socket": {func(n *node, path string) {
		n.swap(path, func() error { return unix.Mknod(path, unix.S_IFSOCK|0o666, 0) })
		must(n, os.Chmod(path, 0o666))
	}, "not-regular"},
	"a link":            {func(n *node, path string) { n.swap(path, func() error { return os.Symlink(n.in("secret"), path) }) }, "not-regular"},
	"root's":            {func(n *node, path string) { must(n, os.Chown(path, 0, 0)) }, "permission"},
	"another's":         {func(n *node, path string) { must(n, os.Chown(path, bystander, 0)); must(n, os.Chmod(path, 0o666)) }, "not-owner"},
	"two names":         {func(n *node, path string) { must(n, os.Link(path, path+".2")) }, "links"},
	"not to be written": {func(n *node, path string) { must(n, os.Chmod(path, 0o444)) }, "permission"},
	"behind a closed folder": {func(n *node, path string) {
		must(n, os.Chown(filepath.Dir(path), 0, 0))
		must(n, os.Chmod(filepath.Dir(path), 0o700))
	}, "permission"},
	"read-only": {func(n *node, path string) { n.mountHome(path, "", unix.MS_RDONLY) }, "readonly"},
	"full":      {func(n *node, path string) { n.mountHome(path, "size=4k", 0) }, "full"},
}

// mountHome puts the job's output on a file system of its own, with no room left.
func (n *node) mountHome(path, options string, flags uintptr) {
	n.Helper()
	folder := filepath.Dir(path)
	must(n, unix.Mount("none", folder, "tmpfs", 0, "mode=0777,"+options))
	n.Cleanup(func() { must(n, unix.Unmount(folder, unix.MNT_DETACH)) })
	must(n, os.WriteFile(path, make([]byte, 4096), 0o644))
	must(n, os.Chown(path, user, user))
	if flags != 0 {
		must(n, unix.Mount("none", folder, "tmpfs", unix.MS_REMOUNT|flags, options))
	}
}

// The job's output is the user's: whatever became of it, the verdict and the record stand, the reason is logged,
// and nothing else is written to.
func TestOutputs(t *testing.T) {
	for _, from := range []string{"drop", "SLURM_JOB_STDOUT"} {
		for name, tt := range outputs {
			t.Run(name+" by "+from, func(t *testing.T) {
				t.Parallel()
				n := newNode(t, "enforce")
				n.configure(func(c *conf) { c.onUnknown = "drain" })
				path := n.home()
				must(t, os.WriteFile(n.in("secret"), []byte("root's\n"), 0o600))
				n.clean(prolog, bystanding())
				others, j := n.record(), newJob().with("SLURM_JOB_STDOUT", n.in("home/slurm-%j.out"))
				n.clean(prolog, j)
				if from == "drop" {
					j = j.with("SLURM_JOB_STDOUT", "")
					n.drop(joblog.Target{Path: path})
				}
				tt.harm(n, path)
				o := n.hook(epilog, j)
				if o.exit != 0 || len(lines(n.log(), "bookend-epilog", "msg=clean", "job_log="+tt.reason)) != 1 {
					t.Errorf("want %s: %v\n%s", tt.reason, o, n.log())
				}
				if secret, err := os.ReadFile(n.in("secret")); err != nil || string(secret) != "root's\n" {
					t.Errorf("root's file: %q, %v", secret, err)
				}
				if r := n.run(100); !r.Closed() || !strings.Contains(r.Ends[0].Report, "bookend: ") {
					t.Errorf("record: %+v", r)
				}
				n.unharmed(others)
			})
		}
	}
}

// drop leaves what the job's task hook leaves.
func (n *node) drop(target joblog.Target) {
	n.Helper()
	data, err := joblog.Drop{Target: target}.Encode()
	must(n, err)
	n.dropRaw(data)
}

func (n *node) dropRaw(data []byte) string {
	n.Helper()
	path := filepath.Join(n.conf.run, "drop", nodeName+"_100", state.DropFile)
	must(n, os.WriteFile(path, data, 0o600))
	must(n, os.Chown(path, user, user))
	return path
}

// A file that is the user's and the job's takes the report, once.
func TestOutputAppended(t *testing.T) {
	for _, from := range []string{"drop", "SLURM_JOB_STDOUT"} {
		n := newNode(t, "enforce")
		path := n.home()
		j := newJob().with("SLURM_JOB_STDOUT", n.in("home/slurm-%j.out"))
		n.clean(prolog, j)
		if from == "drop" {
			j = j.with("SLURM_JOB_STDOUT", "")
			var st syscall.Stat_t
			must(t, syscall.Stat(path, &st))
			n.drop(joblog.Target{Path: path, Dev: st.Dev, Ino: st.Ino})
		}
		n.clean(epilog, j)
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(text), "the job's own words\n\n| bookend: ") || !strings.HasSuffix(string(text), "\n") {
			t.Errorf("%s: %v: %q\n%s", from, err, text, n.log())
		}
		n.hook(epilog, j)
		if again, _ := os.ReadFile(path); string(again) != string(text) {
			t.Errorf("%s: a second epilog wrote: %q", from, again)
		}
	}
}

// Another file has taken the place of the one that the task hook saw.
func TestOutputChanged(t *testing.T) {
	n := newNode(t, "enforce")
	path := n.home()
	n.clean(prolog, newJob())
	n.drop(joblog.Target{Path: path, Dev: 1, Ino: 2})
	n.clean(epilog, newJob())
	if text, _ := os.ReadFile(path); string(text) != "the job's own words\n" || len(lines(n.log(), "job_log=changed")) != 1 {
		t.Errorf("%q\n%s", text, n.log())
	}
}

// A drop record is the user's claim: what is not of its form is none.
func TestDropRecord(t *testing.T) {
	long, _ := json.Marshal(strings.Repeat("/x", 4000))
	for name, harm := range map[string]func(n *node, path string){
		"garbage":  func(n *node, path string) { n.dropRaw([]byte("hello")) },
		"empty":    func(n *node, path string) { n.dropRaw(nil) },
		"too long": func(n *node, path string) { n.dropRaw([]byte(`{"bookend":1,"target":{"path":` + string(long) + `}}`)) },
		"relative": func(n *node, path string) { n.dropRaw([]byte(`{"bookend":1,"target":{"path":"../../etc/passwd"}}`)) },
		"two":      func(n *node, path string) { n.dropRaw([]byte(`{"bookend":1}{"bookend":1}`)) },
		"not his":  func(n *node, path string) { must(n, os.Chown(n.dropRaw(nil), bystander, 0)) },
		"a link": func(n *node, path string) {
			drop := n.dropRaw(nil)
			n.swap(drop, func() error { return os.Symlink("/etc/passwd", drop) })
		},
		"a FIFO": func(n *node, path string) {
			drop := n.dropRaw(nil)
			n.swap(drop, func() error { return unix.Mkfifo(drop, 0o666) })
		},
		"two names": func(n *node, path string) { must(n, os.Link(n.dropRaw(nil), n.in("second"))) },
		"no folder": func(n *node, path string) { must(n, os.RemoveAll(filepath.Dir(n.dropRaw(nil)))) },
		"link folder": func(n *node, path string) {
			folder := filepath.Dir(n.dropRaw(nil))
			must(n, os.RemoveAll(folder))
			must(n, os.Symlink("/etc", folder))
		},
		"another mount": func(n *node, path string) {
			folder := filepath.Dir(n.dropRaw(nil))
			must(n, unix.Mount("none", folder, "tmpfs", 0, ""))
			n.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
		},
		"a tree": func(n *node, path string) {
			must(n, os.MkdirAll(filepath.Join(filepath.Dir(n.dropRaw(nil)), strings.Repeat("d/", 30)), 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			path := n.home()
			n.clean(prolog, bystanding())
			others := n.record()
			n.clean(prolog, newJob())
			harm(n, path)
			o := n.hook(epilog, newJob())
			if o.exit != 0 || len(lines(n.log(), "bookend-epilog", "msg=clean", `job_log="no file"`)) != 1 {
				t.Errorf("%v\n%s", o, n.log())
			}
			if found := n.findings(epilog); has(found, code.Output) || !n.run(100).Closed() {
				t.Errorf("%+v", found)
			}
			n.unharmed(others)
		})
	}
}

// Root never becomes a user of root's group: then there is nobody to append as. The verdict was final before.
func TestAppendFails(t *testing.T) {
	for _, tt := range []struct {
		orphan bool
		exit   int
	}{{false, 0}, {true, 10}} {
		n := newNode(t, "enforce")
		n.configure(func(c *conf) { c.onUnknown = "drain" })
		path := n.home()
		j := newJob().with("SLURM_JOB_STDOUT", path, "SLURM_JOB_GID", "0")
		n.clean(prolog, j)
		if tt.orphan {
			n.leftover()
		}
		o := n.hook(epilog, j)
		r := n.run(100)
		if o.exit != tt.exit || len(r.Ends) != 1 || r.Ends[0].Verdict.Exit != o.exit {
			t.Errorf("%v, recorded: %+v", o, r.Ends)
		}
		if len(lines(n.log(), string(code.Output), "job_log=failed", "exit="+strconv.Itoa(tt.exit))) != 1 {
			t.Errorf("log:\n%s", n.log())
		}
		if text, _ := os.ReadFile(path); string(text) != "the job's own words\n" {
			t.Errorf("%q", text)
		}
	}
}

// Up to 25.05 Slurm does not name sbatch's default output. The report goes there, and never to a file of errors.
func TestOutputNotNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		stdin, stderr, drop string
		to                  string
	}{
		"batch, no task hooks":          {"/dev/null", "", "", "slurm-100.out"},
		"batch -e, no task hooks":       {"/dev/null", "errors", "", "slurm-100.out"},
		"batch -e, task epilog":         {"/dev/null", "errors", "errors", "slurm-100.out"},
		"batch, output as recorded":     {"/dev/null", "", "errors", "errors"},
		"no batch script, no task hook": {"", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce")
			output := n.home()
			files := map[string]string{"slurm-100.out": output, "errors": filepath.Join(filepath.Dir(output), "errors")}
			must(t, os.WriteFile(files["errors"], nil, 0o644))
			must(t, os.Chown(files["errors"], user, user))
			j := newJob().with("SLURM_JOB_WORK_DIR", filepath.Dir(output), "SLURM_JOB_STDIN", tt.stdin, "SLURM_JOB_STDERR", files[tt.stderr])
			n.clean(prolog, j)
			if tt.drop != "" {
				n.drop(joblog.Target{Path: files[tt.drop]})
			}
			n.clean(epilog, j)
			for file, path := range files {
				text, err := os.ReadFile(path)
				must(t, err)
				if got := strings.Contains(string(text), "left clean by your job"); got != (file == tt.to) {
					t.Errorf("%s: %q\n%s", file, text, n.log())
				}
				if file == tt.to && tt.drop == "" && len(lines(string(text), "clean: ", "nobody on it")) != 1 {
					t.Errorf("no start report: %q", text)
				}
			}
		})
	}
}
