package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/test/frozen"
)

// Many ends of one user's jobs, one after the other and at once, whose outputs lie on a file system that hangs: one
// child stays at most, whether the kernel keeps it or a server of the user's own does. Another user's job gets its
// report, the admin is told of no trouble of his node's, and once the file system answers nothing is missing but those
// reports.
func TestOneChildPerUser(t *testing.T) {
	for name, tt := range map[string]struct {
		read string // job_log.read
		hang func(n *node) (dir string, hang, mend func())
	}{
		"takes no writes":        {"true", freezing},
		"server does not answer": {"true", deaf},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.ownPrograms()
			dir, hang, mend := tt.hang(n)
			ends := func(id int) job {
				return numbered(id).With("SLURM_JOB_STDOUT", filepath.Join(dir, "slurm.out"))
			}
			others := bystanding().With("SLURM_JOB_STDOUT", n.outputOf(bystander))
			n.clean(n.own(prolog), others)
			for id := 200; id < 209; id++ {
				n.clean(n.own(prolog), ends(id))
			}
			n.configure(func(c *conf) {
				c.tight, c.onUnknown, c.extra = true, "drain",
					"job_log: {read: "+tt.read+"}\n"
			})
			hang()
			for id := 200; id < 204; id++ {
				n.exits(0, n.own(epilog), ends(id))
			}
			left := n.unkillable(1)
			n.configure(func(c *conf) { c.tight = false })
			n.together(n.own(epilog), []job{ends(204), ends(205), ends(206), ends(207)}, nil)
			n.unkillable(1, left...)
			n.saysTimes(8, "bookend-epilog", "job_log=failed", string(code.Output), "exit=0")
			n.clean(n.own(epilog), others)
			n.reported(others)
			n.untroubled()

			mend()
			n.none()
			if text := n.get(filepath.Join(dir, "slurm.out")); text != "" && !strings.HasSuffix(text, "\n") {
				t.Errorf("half a report: %q", text)
			}
			later := ends(208).With("SLURM_JOB_STDOUT", n.outputOf(user))
			n.clean(n.own(epilog), later)
			n.reported(later)
			if names, _ := filepath.Glob(n.inState("stuck*")); len(names) != 0 {
				t.Errorf("still on record: %q", names)
			}
			n.untroubled()
		})
	}
}

// freezing is a file system that can be frozen, with the user's output in it.
func freezing(n *node) (dir string, hang, mend func()) {
	n.Helper()
	f := frozen.New(n, n.in("hung"))
	path := filepath.Join(f.Dir, "slurm.out")
	must(n, os.WriteFile(path, []byte("the job's own words\n"), 0o644))
	must(n, os.Chown(path, user, user))
	return f.Dir, f.Freeze, f.Thaw
}

// deaf is a file system whose server takes each request and answers none: who has asked sleeps until the server goes.
func deaf(n *node) (dir string, hang, mend func()) {
	n.Helper()
	dir = n.in("hung")
	must(n, os.Mkdir(dir, 0o755))
	end := func() {}
	return dir, func() {
		n.Helper()
		var err error
		end, err = frozen.Deaf(dir, unix.S_IFDIR|0o755)
		must(n, err)
		n.Cleanup(end)
	}, func() { end() }
}

// outputOf makes a file of a user's in a folder of its own, a job's output that lies on no hung file system.
func (n *node) outputOf(uid int) string {
	n.Helper()
	folder := n.in(fmt.Sprintf("home-%d", uid))
	must(n, os.Mkdir(folder, 0o755))
	path := filepath.Join(folder, "job.out")
	must(n, os.WriteFile(path, nil, 0o644))
	must(n, os.Chown(path, uid, uid))
	must(n, os.Chown(folder, uid, uid))
	return path
}

// reported asserts that the end report is in the job's output.
func (n *node) reported(j job) {
	n.Helper()
	text, err := os.ReadFile(j["SLURM_JOB_STDOUT"])
	must(n, err)
	if !strings.Contains(string(text), "| bookend: ") {
		n.Errorf("the output has no report: %q\n%s", text, n.log())
	}
}

// untroubled asserts that neither status nor metrics tell the admin of a trouble with users' outputs, or with the
// driver.
func (n *node) untroubled() {
	n.Helper()
	shown, _ := n.bookend("status")
	for _, word := range []string{string(code.Output), string(code.LogFailed), string(code.Stuck), "not answer"} {
		if strings.Contains(shown, word) {
			n.Errorf("status says %q:\n%s", word, shown)
		}
	}
	errs := lines(n.metrics(), "bookend_own_errors_total{")
	if len(errs) == 0 {
		n.Error("the metrics count no errors at all")
	}
	for _, line := range errs {
		if !strings.HasSuffix(line, " 0") {
			n.Errorf("metrics: %s", line)
		}
	}
}

// Bookend's own disk hangs: its log, or its archive of records. However many hooks come, each ends in time and says in
// slurmd's log what it could not write; one child is left at most. Once the disk answers nothing is missing of the
// records.
func TestDiskHangs(t *testing.T) {
	const jobs = 10
	for name, tt := range map[string]struct{ log, records, lock string }{
		"log":     {"disk/log", "var", "/log-disk.lock"},
		"records": {"log", "disk/var", "/log-disk.lock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.ownPrograms()
			f := frozen.New(n, n.in("disk"))
			n.configure(func(c *conf) { c.log, c.varDir = n.in(tt.log), n.in(tt.records) })
			n.clean(n.own(prolog), bystanding())
			n.clean(n.own(prolog), newJob())
			others := n.record()
			n.configure(func(c *conf) { c.tight, c.onUnknown = true, "drain" })
			f.Freeze()
			if o := n.exits(0, n.own(epilog), newJob()); len(lines(o.output, `bookend: child "disk": abandoned`)) != 1 {
				t.Errorf("%v", o)
			}
			if _, err := os.Lstat(n.dropped()); !os.IsNotExist(err) {
				t.Errorf("no one will remove the job's drop for hours: %v", err)
			}
			left := n.unkillable(1)
			n.configure(func(c *conf) { c.tight = false }) // nobody else hangs
			for _, h := range hooks {
				n.together(n.own(h), jobsFrom(200, jobs), func(_ job, o outcome) {
					if o.exit != 0 || len(lines(o.output, "bookend: ", tt.lock, "locked")) != 1 {
						t.Errorf("%v", o)
					}
				})
			}
			n.unkillable(1, left...)
			for i := range jobs {
				if r := n.run(200 + i); r.Start == nil || !r.Closed() || has(r.Ends[0].Findings, code.Hang) {
					t.Errorf("%+v", r)
				}
			}
			f.Thaw()
			n.none()
			n.sound(others)
		})
	}
}
