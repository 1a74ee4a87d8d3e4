package faults

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/slurm"
)

// The job's own output lies on a file system that hangs: the verdict stands, the node stays, the report counts as failed,
// and the next job's end, whose output is elsewhere, is as always.
func TestJobLogHangs(t *testing.T) {
	for name, tt := range map[string]struct {
		read   string // job_log.read: who reads first meets it first
		frozen bool   // takes no writes, and holds the writer past SIGKILL; else it answers nothing
		left   int
	}{
		"takes no writes":       {"true", true, 1},
		"answers nothing":       {"true", false, 0},
		"answers to no append":  {"false", false, 0},
		"takes only no appends": {"false", true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.ownPrograms()
			f := n.freezable("home")
			path := filepath.Join(f.dir, "slurm-100.out")
			must(t, os.WriteFile(path, []byte("the job's own words\n"), 0o644))
			must(t, os.Chown(path, user, user))
			j := newJob().with("SLURM_JOB_STDOUT", path)
			n.clean(n.own(prolog), bystanding())
			n.clean(n.own(prolog), j)
			others := n.record()
			n.configure(func(c *conf) { c.tight, c.onUnknown, c.extra = true, "drain", "job_log: {read: "+tt.read+"}\n" })
			if tt.frozen {
				f.freeze()
			} else {
				n.silence(f.dir)
			}
			if o := n.timely(epilog, j, 0); o.output != "" {
				t.Errorf("%v", o)
			}
			if len(lines(n.log(), "bookend-epilog", "job_log=failed", string(code.LogFailed), "exit=0")) != 1 {
				t.Errorf("log:\n%s", n.log())
			}
			if r := n.run(100); !r.Closed() || hung(r.Ends[0].Findings, "tail") || hung(r.Ends[0].Findings, "append") {
				t.Errorf("%+v", r)
			}
			n.unkillable(tt.left)
			n.configure(func(c *conf) { c.tight = false })
			later := numbered(101)
			n.clean(n.own(prolog), later) // while it still hangs
			n.clean(n.own(epilog), later)
			f.thaw()
			n.none()
			if !tt.frozen {
				must(t, unix.Unmount(f.dir, unix.MNT_DETACH)) // or whoever looks there from now on waits
			} else {
				text, err := os.ReadFile(path)
				must(t, err)
				if s := string(text); s != "the job's own words\n" && !strings.HasSuffix(s, "\n") {
					t.Errorf("half a report: %q", s)
				}
			}
			n.sound(others)
		})
	}
}

// Bookend's own disk hangs: its log, or its archive of records. However many hooks come, each ends in time and says in
// slurmd's log what it could not write; one child is left at most. Once the disk answers nothing is missing of the records.
func TestDiskHangs(t *testing.T) {
	const jobs = 10
	for name, tt := range map[string]struct{ log, records, lock string }{
		"log":     {"disk/log", "var", "/log-disk.lock"},
		"records": {"log", "disk/var", "/disk.lock"},
		"both":    {"disk/log", "disk/var", "/log-disk.lock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.ownPrograms()
			f := n.freezable("disk")
			n.configure(func(c *conf) { c.log, c.varDir = n.in(tt.log), n.in(tt.records) })
			n.clean(n.own(prolog), bystanding())
			n.clean(n.own(prolog), newJob())
			others := n.record()
			n.configure(func(c *conf) { c.tight, c.onUnknown = true, "drain" })
			f.freeze()
			if o := n.timely(epilog, newJob(), 0); len(lines(o.output, `bookend: child "disk": abandoned`)) != 1 {
				t.Errorf("%v", o)
			}
			left := n.unkillable(1)
			n.configure(func(c *conf) { c.tight = false }) // nobody else hangs
			for _, h := range hooks {
				var all sync.WaitGroup
				for i := range jobs {
					p := n.start(n.own(h), numbered(slurm.JobID(200+i)))
					all.Go(func() {
						if o := p.wait(); o.exit != 0 || len(lines(o.output, "bookend: ", tt.lock, "locked")) != 1 {
							t.Errorf("%v", o)
						}
					})
				}
				all.Wait()
			}
			if now := n.unkillable(1); now[0] != left[0] {
				t.Errorf("left: %v, then %v", left, now)
			}
			for i := range jobs {
				if r := n.run(slurm.JobID(200 + i)); r.Start == nil || !r.Closed() || has(r.Ends[0].Findings, code.Hang) {
					t.Errorf("%+v", r)
				}
			}
			f.thaw()
			n.none()
			n.sound(others)
		})
	}
}

// A disk that answers nothing at all keeps no child.
func TestDiskAnswersNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.ownPrograms()
	n.clean(n.own(prolog), bystanding())
	others := n.record()
	must(t, os.Mkdir(n.in("silent"), 0o755))
	n.silence(n.in("silent"))
	n.configure(func(c *conf) { c.tight, c.onUnknown, c.log = true, "drain", n.in("silent") })
	for _, h := range hooks {
		if o := n.timely(h, newJob(), 0); len(lines(o.output, `bookend: child "disk": hung`)) != 1 {
			t.Errorf("%v", o)
		}
		n.none()
	}
	must(t, unix.Unmount(n.in("silent"), unix.MNT_DETACH)) // or whoever looks there from now on waits
	n.configure(func(c *conf) { c.log = n.in("log") })
	n.sound(others)
}
