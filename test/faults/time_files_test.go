package faults

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/slurm"
	"bookend/test/frozen"
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
			f := frozen.New(n, n.in("home"))
			path := filepath.Join(f.Dir, "slurm-100.out")
			must(t, os.WriteFile(path, []byte("the job's own words\n"), 0o644))
			must(t, os.Chown(path, user, user))
			j := newJob().with("SLURM_JOB_STDOUT", path)
			n.clean(n.own(prolog), bystanding())
			n.clean(n.own(prolog), j)
			others := n.record()
			n.configure(func(c *conf) { c.tight, c.onUnknown, c.extra = true, "drain", "job_log: {read: "+tt.read+"}\n" })
			if tt.frozen {
				f.Freeze()
			} else {
				n.silence(f.Dir)
			}
			if o := n.timely(epilog, j, 0); o.output != "" {
				t.Errorf("%v", o)
			}
			if len(lines(n.log(), "bookend-epilog", "job_log=failed", string(code.Output), "exit=0")) != 1 {
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
			f.Thaw()
			n.none()
			if !tt.frozen {
				must(t, unix.Unmount(f.Dir, unix.MNT_DETACH)) // or whoever looks there from now on waits
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

// Many ends of one user's jobs, one after the other and at once, whose outputs lie on a file system that hangs: one child
// stays at most, whether the kernel keeps it or a server of the user's own does. Another user's job gets its report, the
// admin is told of no trouble of his node's, and once the file system answers nothing is missing but those reports.
func TestOneChildPerUser(t *testing.T) {
	for name, tt := range map[string]struct {
		read string // job_log.read
		hang func(n *node) (dir string, hang, mend func())
	}{
		"takes no writes":        {"true", freezing},
		"takes only no appends":  {"false", freezing},
		"server does not answer": {"true", deaf},
		"appends to nowhere":     {"false", deaf},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.ownPrograms()
			dir, hang, mend := tt.hang(n)
			ends := func(id int) job {
				return numbered(slurm.JobID(id)).with("SLURM_JOB_STDOUT", filepath.Join(dir, "slurm.out"))
			}
			others := bystanding().with("SLURM_JOB_STDOUT", n.outputOf(bystander))
			n.clean(n.own(prolog), others)
			for id := 200; id < 210; id++ {
				n.clean(n.own(prolog), ends(id))
			}
			n.configure(func(c *conf) { c.tight, c.onUnknown, c.extra = true, "drain", "job_log: {read: "+tt.read+"}\n" })
			hang()
			for id := 200; id < 204; id++ {
				n.timely(epilog, ends(id), 0)
			}
			left := n.unkillable(1)
			n.configure(func(c *conf) { c.tight = false })
			var all sync.WaitGroup
			for id := 204; id < 208; id++ {
				p := n.start(n.own(epilog), ends(id))
				all.Go(func() {
					if o := p.wait(); o.exit != 0 {
						t.Errorf("%v", o)
					}
				})
			}
			all.Wait()
			if now := n.unkillable(1); now[0] != left[0] {
				t.Errorf("left: %v, then %v", left, now)
			}
			if got := len(lines(n.log(), "bookend-epilog", "job_log=failed", string(code.Output), "exit=0")); got != 8 {
				t.Errorf("%d reports not delivered, want 8:\n%s", got, n.log())
			}
			n.clean(n.own(epilog), others)
			n.reported(others)
			n.untroubled()

			mend()
			n.none()
			output := n.outputOf(user)
			for id := 208; id < 210; id++ {
				later := ends(id).with("SLURM_JOB_STDOUT", output)
				n.clean(n.own(epilog), later)
			}
			n.reported(ends(209).with("SLURM_JOB_STDOUT", output))
			if names, _ := filepath.Glob(filepath.Join(n.conf.run, "state", nodeName, "stuck*")); len(names) != 0 {
				t.Errorf("still on record: %q", names)
			}
			n.untroubled()
		})
	}
}

// Ends at once on a file system that nobody knows to hang yet leave one child too.
func TestOneChildAtOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.ownPrograms()
	dir, hang, mend := freezing(n)
	ends := func(id int) job {
		return numbered(slurm.JobID(id)).with("SLURM_JOB_STDOUT", filepath.Join(dir, "slurm.out"))
	}
	for id := 200; id < 206; id++ {
		n.clean(n.own(prolog), ends(id))
	}
	n.configure(func(c *conf) { c.tight = true })
	hang()
	var all sync.WaitGroup
	for id := 200; id < 206; id++ {
		p := n.start(n.own(epilog), ends(id))
		all.Go(func() {
			if o := p.wait(); o.exit != 0 {
				t.Errorf("%v", o)
			}
		})
	}
	all.Wait()
	n.unkillable(1)
	mend()
	n.none()
}

// A record of stuck children that cannot be used is set aside, and the end goes on without it.
func TestStuckVisitsDamaged(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	j := newJob().with("SLURM_JOB_STDOUT", n.home())
	n.clean(prolog, j)
	must(t, os.WriteFile(filepath.Join(n.conf.run, "state", nodeName, "stuck-users.json"), []byte(`{"65534":`), 0o600))
	if o := n.hook(epilog, j); o.exit != 0 || len(lines(n.log(), "bookend-epilog", "job_log=appended", string(code.StateDamage))) != 1 {
		t.Errorf("%v\n%s", o, n.log())
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

// deaf is a file system whose server takes each request and answers none but the first: who has asked sleeps until the
// server goes, and not even SIGKILL ends it before.
func deaf(n *node) (dir string, hang, mend func()) {
	n.Helper()
	dir = n.in("hung")
	must(n, os.Mkdir(dir, 0o755))
	end := func() {}
	return dir, func() {
		n.Helper()
		fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // so that closing it ends a read
		must(n, err)
		must(n, unix.Mount("none", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", fd)))
		fuse := os.NewFile(uintptr(fd), "fuse") // not before: until it is mounted nobody can wait for requests
		var all sync.WaitGroup
		all.Go(func() { hearOut(n, fuse) })
		end = sync.OnceFunc(func() {
			_ = unix.Unmount(dir, unix.MNT_DETACH)
			_ = fuse.Close()
			all.Wait()
		})
		n.Cleanup(end)
	}, func() { end() }
}

// hearOut answers FUSE's first request, INIT, and reads all others until the file is closed.
func hearOut(n *node, fuse *os.File) {
	request := make([]byte, 1<<17)
	for {
		size, err := fuse.Read(request)
		if err != nil {
			return
		}
		const initOpcode, header, initSize = 26, 16, 64
		if size < 16 || binary.NativeEndian.Uint32(request[4:]) != initOpcode {
			continue
		}
		reply := make([]byte, header+initSize)
		binary.NativeEndian.PutUint32(reply, uint32(len(reply)))
		copy(reply[8:16], request[8:16]) // which request
		binary.NativeEndian.PutUint32(reply[16:], 7)
		binary.NativeEndian.PutUint32(reply[20:], 31) // protocol 7.31
		binary.NativeEndian.PutUint32(reply[36:], 4096)
		if _, err := fuse.Write(reply); err != nil {
			n.Errorf("answer INIT: %v", err)
		}
	}
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

// untroubled asserts that neither status nor metrics tell the admin of a trouble with users' outputs, or with the driver.
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
// slurmd's log what it could not write; one child is left at most. Once the disk answers nothing is missing of the records.
func TestDiskHangs(t *testing.T) {
	const jobs = 10
	for name, tt := range map[string]struct{ log, records, lock string }{
		"log":     {"disk/log", "var", "/log-disk.lock"},
		"records": {"log", "disk/var", "/count-disk.lock"},
		"both":    {"disk/log", "disk/var", "/log-disk.lock"},
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
			if o := n.timely(epilog, newJob(), 0); len(lines(o.output, `bookend: child "disk": abandoned`)) != 1 {
				t.Errorf("%v", o)
			}
			if slices.Contains(n.drops(), "n1_100") {
				t.Errorf("nobody will remove the job's drop for hours: %q", n.drops())
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
			f.Thaw()
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
		if o := n.timely(h, newJob(), 0); len(lines(o.output, `bookend: child "disk": hung`))+len(lines(o.output, `bookend: child "disk": abandoned`)) != 1 {
			t.Errorf("%v", o)
		}
		n.none()
	}
	must(t, unix.Unmount(n.in("silent"), unix.MNT_DETACH)) // or whoever looks there from now on waits
	n.configure(func(c *conf) { c.log = n.in("log") })
	n.sound(others)
}
