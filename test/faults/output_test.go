package faults

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/diagnosis"
	"bookend/internal/joblog"
	"bookend/internal/oom"
)

// outputs are what a user can put where the job's output was, and whether that hinders only a writer. Root never
// touches it; what the user may not write, the append may not. Package joblog tries more, and test/torture swaps them
// under its hands.
var outputs = map[string]struct {
	harm   func(n *node, path string)
	reason string
	writer bool
}{
	"missing": {func(n *node, path string) { must(n, os.Remove(path)) }, "missing", false},
	"a FIFO that somebody reads": {func(n *node, path string) {
		n.swap(path, func() error { return unix.Mkfifo(path, 0o666) })
		must(n, os.Chmod(path, 0o666))
		reader, err := os.OpenFile(path, os.O_RDWR, 0)
		must(n, err)
		n.Cleanup(func() { reader.Close() })
	}, "not-regular", false},
	"a link": {func(n *node, path string) {
		n.swap(path, func() error { return os.Symlink(n.in("secret"), path) })
	}, "not-regular", false},
	"another's": {func(n *node, path string) { n.give(path, bystander); must(n, os.Chmod(path, 0o666)) }, "not-owner",
		false},
	"behind a closed directory": {func(n *node, path string) {
		must(n, os.Chmod(n.give(filepath.Dir(path), 0), 0o700))
	}, "permission", false},
	"read-only": {func(n *node, path string) { n.mountHome("ro,") }, "readonly", true},
	"full":      {func(n *node, path string) { n.mountHome("size=4k") }, "full", true},
}

// mountHome puts the job's output on a file system of its own, with no room left or none to write.
func (n *node) mountHome(options string) {
	n.Helper()
	n.mount(n.in("home"), strings.TrimPrefix(options, "ro,"))
	n.give(n.put("home/slurm-100.out", string(make([]byte, 4096)), 0o644), user)
	if options == "ro," {
		must(n, unix.Mount("", n.in("home"), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	}
}

// The job's output is the user's: whatever became of it, the verdict and the record stand, the reason is logged,
// nothing else is written to, no message is taken from it, and the diagnosis says why.
func TestOutputs(t *testing.T) {
	for _, from := range []string{"drop", "SLURM_JOB_STDOUT"} {
		for name, tt := range outputs {
			t.Run(name+" by "+from, func(t *testing.T) {
				t.Parallel()
				n := newNode(t, "enforce")
				n.configure(func(c *conf) { c.onUnknown, c.extra = "drain", "job_log: all\n" })
				path := n.home()
				n.put(path, ranOut, 0o644)
				n.put("secret", ranOut, 0o600)
				n.clean(prolog, bystanding())
				others, j := n.record(), newJob().With("SLURM_JOB_STDOUT", n.in("home/slurm-%j.out"))
				n.clean(prolog, j)
				if from == "drop" {
					j = j.With("SLURM_JOB_STDOUT", "")
					n.drop(joblog.Target{Path: path})
				}
				tt.harm(n, path)
				n.exits(0, epilog, j)
				n.saysTimes(1, "bookend-epilog", "msg=clean", "job_log="+tt.reason)
				if n.get(n.in("secret")) != ranOut {
					t.Errorf("root's file: %q", n.get(n.in("secret")))
				}
				e := n.endOf(100)
				unread := e.Diagnosis != nil &&
					strings.HasPrefix(e.Diagnosis.Cause(diagnosis.Pool).Evidence, "its output was not read (")
				if !tt.writer && (len(e.Messages) > 0 || !unread) || !strings.Contains(e.Report, "bookend: ") {
					t.Errorf("record: %+v", e)
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
	n.dropRaw(string(data))
}

func (n *node) dropped() string {
	return filepath.Join(n.conf.run, "drop", nodeName+"_100")
}

func (n *node) dropRaw(data string) string {
	n.Helper()
	return n.give(n.put(n.dropped(), data, 0o600), user)
}

// A file that is the user's and the job's takes the report, once: a second epilog appends nothing, and does not look
// for messages either. One that has taken the place of the file that the task hook saw takes none.
func TestOutputAppended(t *testing.T) {
	for _, from := range []string{"drop", "SLURM_JOB_STDOUT", "another file"} {
		n := newNode(t, "enforce")
		path := n.home()
		j := newJob().With("SLURM_JOB_STDOUT", n.in("home/slurm-%j.out"))
		n.clean(prolog, j)
		var st syscall.Stat_t
		must(t, syscall.Stat(path, &st))
		if from == "another file" {
			st.Ino++
		}
		if from != "SLURM_JOB_STDOUT" {
			j = j.With("SLURM_JOB_STDOUT", "")
			n.drop(joblog.Target{Path: path, Dev: st.Dev, Ino: st.Ino})
		}
		n.clean(epilog, j)
		text := n.get(path)
		if from == "another file" {
			if n.says("job_log=changed"); text != "the job's own words\n" {
				t.Errorf("%q", text)
			}
			continue
		}
		if !strings.HasPrefix(text, "the job's own words\n\n| bookend: ") || !strings.HasSuffix(text, "\n") {
			t.Errorf("%s: %q\n%s", from, text, n.log())
		}
		n.put(path, text+ranOut, 0o644)
		n.exits(0, epilog, j)
		if again := n.get(path); again != text+ranOut || len(n.endOf(100).Messages) > 0 || len(n.run(100).Ends) != 2 {
			t.Errorf("%s: a second epilog wrote: %q, read %+v", from, again, n.endOf(100).Messages)
		}
	}
}

// A drop record is the user's claim: what is not of its form is none. Package state tries what is not.
func TestDropRecord(t *testing.T) {
	for name, harm := range map[string]func(n *node){
		"garbage": func(n *node) { n.dropRaw("hello") },
		"a link": func(n *node) {
			drop := n.dropRaw("")
			n.swap(drop, func() error { return os.Symlink("/etc/passwd", drop) })
		},
		"link directory": func(n *node) {
			folder := filepath.Dir(n.dropRaw(""))
			must(n, os.RemoveAll(folder))
			must(n, os.Symlink("/etc", folder))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.home()
			n.clean(prolog, bystanding())
			others := n.record()
			n.clean(prolog, newJob())
			harm(n)
			n.exits(0, epilog, newJob())
			n.saysTimes(1, "bookend-epilog", "msg=clean", `job_log="no file"`)
			if found := n.findings(epilog); len(found) > 0 || !n.run(100).Closed() {
				t.Errorf("%+v", found)
			}
			n.unharmed(others)
		})
	}
}

// Root never becomes a user of root's group: then there is nobody to append as. The verdict was final before.
func TestAppendFails(t *testing.T) {
	for exit, orphan := range map[int]bool{0: false, 10: true} {
		n := newNode(t, "enforce")
		n.configure(func(c *conf) { c.onUnknown = "drain" })
		path := n.home()
		j := newJob().With("SLURM_JOB_STDOUT", path, "SLURM_JOB_GID", "0")
		n.clean(prolog, j)
		if orphan {
			n.leftover()
		}
		n.exits(exit, epilog, j)
		n.says(string(code.Output), "job_log=failed", "exit=")
		if n.endOf(100).Verdict.Exit != exit || n.get(path) != "the job's own words\n" {
			t.Errorf("%+v, %q", n.endOf(100).Verdict, n.get(path))
		}
	}
}

// Up to 25.05 Slurm does not name sbatch's default output. The report goes there, and never to a file of errors. What
// the job said is looked for wherever its output and its errors went, and nowhere else.
func TestWhereTheOutputIs(t *testing.T) {
	const out, errs = "home/slurm-100.out", "home/nobody.err"
	for name, tt := range map[string]struct {
		stdin, stdout, stderr, drop string // of the job's environment, and of its task hook's record
		to                          string // the file with the report, "" for none
		said                        string // the file with the message
		found                       int
	}{
		"by its name":                      {"", "home/slurm-%j.out", "", "", out, out, 1},
		"by the task hook":                 {"", "", "", out, out, out, 1},
		"errors of a name no one can tell": {"", "home/slurm-%j.out", "home/%x.err", "", out, errs, 0},
		"batch, not named":                 {"/dev/null", "", errs, "", out, out, 1},
		"no batch script, no task hook":    {"", "", "", "", "", out, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.home()
			in := func(name string) string {
				if strings.HasPrefix(name, "home") {
					return n.in(name)
				}
				return name
			}
			n.give(n.put(errs, "", 0o644), user)
			n.put(tt.said, ranOut, 0o644)
			j := newJob().With("SLURM_JOB_WORK_DIR", n.in("home"), "SLURM_JOB_STDIN", tt.stdin,
				"SLURM_JOB_STDOUT", in(tt.stdout), "SLURM_JOB_STDERR", in(tt.stderr))
			n.clean(prolog, j)
			if tt.drop != "" {
				n.drop(joblog.Target{Path: in(tt.drop)})
			}
			n.clean(epilog, j)
			for _, file := range []string{out, errs} {
				if got := strings.Contains(n.get(n.in(file)), "n1 GPU 0"); got != (file == tt.to) {
					t.Errorf("%s: %q\n%s", file, n.get(n.in(file)), n.log())
				}
			}
			if got := n.endOf(100).Messages; len(got) != tt.found || tt.found > 0 && got[0].Framework != oom.PyTorch {
				t.Errorf("%+v\n%s", got, n.log())
			}
		})
	}
}
