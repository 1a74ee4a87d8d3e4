package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/joblog"
	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/faultinject"
	"bookend/test/must"
	"bookend/test/rig"
)

// deaf puts a file system over a file or folder whose server takes each request and answers none: who has asked sleeps
// until the server goes, which not even SIGKILL ends.
func (n *node) deaf(path string, folder bool) (mend func()) {
	mode := uint32(unix.S_IFREG | 0o444)
	if folder {
		mode = unix.S_IFDIR | 0o755
	}
	mend = must.Have(faultinject.MountDeaf(path, mode))(n)
	n.Cleanup(mend)
	return mend
}

// Many ends of one user's jobs, one after the other and at once, whose outputs lie on a file system that hangs: one
// child stays at most. Another user's job gets its report, the admin is told of no trouble of his node's, and once the
// file system answers nothing is missing but those reports.
func TestOneChildPerUser(t *testing.T) {
	n := parallel(t, "enforce")
	n.ownPrograms()
	must.Do(t, os.Mkdir(n.in("hung"), 0o755))
	ends := func(id int) job { return numbered(id).With("SLURM_JOB_STDOUT", n.in("hung/slurm.out")) }
	outputOf := func(uid int) (path string) { // one that hangs nowhere
		folder := n.in(fmt.Sprint("home-", uid))
		must.Do(t, os.Mkdir(folder, 0o755))
		n.give(folder, uid)
		return n.give(n.put(filepath.Join(folder, "job.out"), "", 0o644), uid)
	}
	others := bystanding().With("SLURM_JOB_STDOUT", outputOf(bystander))
	n.clean(n.own(prolog), others)
	for id := 200; id < 207; id++ {
		n.clean(n.own(prolog), ends(id))
	}
	n.configure(func(c *conf) { c.tight, c.onUnknown = true, "drain" })
	mend := n.deaf(n.in("hung"), true)
	for id := 200; id < 202; id++ {
		n.exits(0, n.own(epilog), ends(id))
	}
	left := n.unkillable()
	n.configure(func(c *conf) { c.tight = false })
	n.together(n.own(epilog), []job{ends(202), ends(203), ends(204), ends(205)}, nil)
	n.unkillable(left...)
	n.saysTimes(6, "bookend-epilog", "job_log=failed", string(catalog.Output), "exit=0")
	n.clean(n.own(epilog), others)
	n.untroubled(others)

	mend()
	n.none()
	later := ends(206).With("SLURM_JOB_STDOUT", outputOf(user))
	n.clean(n.own(epilog), later)
	n.untroubled(later)
}

// untroubled asserts that a job's end report is in its output, and that neither status nor metrics tell the admin of a
// trouble with users' outputs, or with the driver.
func (n *node) untroubled(j job) {
	text := n.get(j["SLURM_JOB_STDOUT"])
	must.Not(n, !strings.Contains(text, "| bookend: "), "the output has no report: %q\n%s", text, n.log())
	shown, _ := n.bookend("status")
	for _, word := range []string{string(catalog.Output), string(catalog.LogFailed), string(catalog.Stuck), "not answer"} {
		must.Not(n, strings.Contains(shown, word), "status says %q:\n%s", word, shown)
	}
	errs := lines(n.metrics(), "bookend_own_errors_total{")
	must.Not(n, len(errs) == 0, "the metrics count no errors at all")
	for _, line := range errs {
		must.Not(n, !strings.HasSuffix(line, " 0"), "metrics: %s", line)
	}
}

// Bookend's own disk hangs: its log, or its archive of records. However many hooks come, each ends in time and says in
// slurmd's log what it could not write; one child is left at most. Once the disk answers nothing is missing of the
// records.
func TestDiskHangs(t *testing.T) {
	const jobs = 10
	type row struct{ log, records string }
	each(t, "enforce", map[string]row{
		"log": {"disk/log", "var"}, "records": {"log", "disk/var"},
	}, func(n *node, tt row) {
		n.ownPrograms()
		f := faultinject.NewFS(n, n.in("disk"))
		n.configure(func(c *conf) { c.log, c.varDir = n.in(tt.log), n.in(tt.records) })
		n.clean(n.own(prolog), bystanding())
		n.clean(n.own(prolog), newJob())
		n.configure(func(c *conf) { c.tight, c.onUnknown = true, "drain" })
		f.Freeze()
		n.exits(0, n.own(epilog), newJob()) // which waits for no disk
		await(n, "the limit of the process at the disk", func() bool {
			return len(rig.AtTheDisk(n.conf.run)) == 1 && rig.AtTheDisk(n.conf.run)[0].Killed()
		})
		_, err := os.Lstat(n.dropped())
		must.Not(n, !os.IsNotExist(err), "no one will remove the job's drop for hours: %v", err)
		left := n.unkillable()
		n.configure(func(c *conf) { c.tight = false }) // nobody else hangs
		for _, h := range hooks {
			n.together(n.own(h), jobsFrom(200, jobs), func(_ job, o outcome) {
				must.Not(n, o.exit != 0 || len(lines(o.output, "bookend: ", "/log-disk.lock", "locked")) != 1,
					"%v", o)
			})
		}
		n.unkillable(left...)
		for i := range jobs {
			r := n.run(200 + i)
			must.Not(n, r.Start == nil || !r.Closed() || has(r.Ends[0].Findings, catalog.Hang), "%+v", r)
		}
		f.Thaw()
		n.sound()
	})
}

// What failed at the disk after a hook had ended the next hook meets itself, and tells slurmd; then none waits again.
func TestNextHookTellsOfTheDisk(t *testing.T) {
	n := parallel(t, "enforce")
	n.clean(prolog, bystanding())
	was := n.conf.varDir
	n.mount(n.in("full"), "ro,size=1m")
	n.configure(func(c *conf) { c.varDir = n.in("full") })
	n.clean(prolog, newJob())
	for range 3 {
		o := n.exits(0, epilog, newJob())
		must.Not(t, len(lines(o.output, "bookend: ", "read-only file system")) == 0, "%v", o)
	}
	for _, task := range []string{"metrics: ", "archive: "} { // once an hour each
		n.saysTimes(1, string(catalog.StateWrite)+": ", task, "read-only file system")
	}
	if shown, _ := n.bookend("status"); len(lines(shown, "PROBLEM")) == 0 ||
		len(lines(shown, "history: ", "read-only file system (3 times since")) != 1 {
		t.Errorf("status:\n%s", shown)
	}
	n.configure(func(c *conf) { c.varDir = was })
	n.job(101)
	if shown, _ := n.bookend("status"); len(lines(shown, "trouble")) != 0 {
		t.Errorf("status afterwards:\n%s", shown)
	}
}

// While no ended job can be archived, the records in memory do not grow until hooks cannot read them all: what a job
// leaves drains as before, and status counts what is lost.
func TestFullDiskKeepsEnforcing(t *testing.T) {
	n := parallel(t, "enforce")
	n.begun(epilog)
	n.exits(0, epilog, newJob())
	files := must.Have(filepath.Glob(n.inState("100/w*.json")))(n)
	key := strings.TrimSuffix(filepath.Base(files[0]), ".json")
	ended := strings.NewReplacer(`"key":"`+key, `"key":"w1`, `"archived":true`, `"archived":false`).Replace(n.get(files[0]))
	must.Do(t, os.RemoveAll(n.in("var/history")))
	n.put("var/history", "no directory", 0o600)
	for id := 1000; id < 1500; id++ {
		must.Do(t, os.Mkdir(n.inState(strconv.Itoa(id)), 0o700))
		n.put(n.inState(strconv.Itoa(id))+"/w1.json", strings.ReplaceAll(ended, `"id":100,`, fmt.Sprintf(`"id":%d,`, id)),
			0o600)
	}
	n.exits(0, prolog, numbered(101))
	n.exits(0, epilog, numbered(101))
	kept := must.Have(filepath.Glob(n.inState("*/w*.json")))(n)
	must.Not(t, len(kept) > 400, "%d records are kept in memory", len(kept))
	shown, _ := n.bookend("status")
	must.Not(t, len(lines(shown, "ended jobs are in no history")) != 1, "status:\n%s", shown)
	counted := n.metric(`bookend_own_errors_total{code="BKD-ST-WRITE"}`)
	must.Not(t, counted == 0, "not counted:\n%s", n.metrics())
	n.exits(0, prolog, numbered(102))
	n.inCgroup(n.leftover(), "102")
	n.exits(10, epilog, numbered(102))
}

// A process with an environment that cannot be read, by a reader that cannot be ended, costs at most two stuck children:
// that of the search for holders, and that of the search for what the job left running, which go on at the same time. What
// was read of the others counts, the driver is asked as before, and following hooks leave that process alone. Once it can
// be read it is named. What hangs of others in /proc package procscan tests.
func TestHungProcessCostsTwoReaders(t *testing.T) {
	n := parallel(t, "enforce")
	n.ownPrograms()
	n.clean(n.own(prolog), newJob())
	left, odd := n.leftover(), n.leftover()
	n.inCgroup(left, "100")
	mend := n.deaf(fmt.Sprintf("/proc/%d/environ", odd.PID), false)
	readers := func() []state.Stuck {
		all := state.StuckReaders.PeekNode(n.conf.run, nodeName, child.AliveIn("/proc"))
		return slices.DeleteFunc(all, func(s state.Stuck) bool { return s.Op == procscan.Survivors.Name })
	}
	var stuck []int
	about := func(pid int) (f record.Finding) {
		for _, f = range n.findings(epilog) {
			if f.Holder != nil && f.Holder.PID == pid {
				return f
			}
		}
		return record.Finding{}
	}
	for run := range 2 {
		n.hook(n.own(epilog), newJob())
		h := about(odd.PID).Holder
		if o := about(left.PID).Owner; o == nil || o.Level != record.ByCgroup || h == nil || h.EnvUnknown == "" {
			t.Errorf("end %d: %+v\n%s", run, n.findings(epilog), n.log())
		}
		for _, c := range []catalog.Code{catalog.Hang, catalog.Stuck, catalog.BackendCrash, catalog.Untraced} {
			must.Not(t, has(n.findings(epilog), c), "%+v", n.findings(epilog))
		}
		if on := readers(); len(on) != 1 || len(on[0].At) != 1 || on[0].At[0].PID != odd.PID || on[0].At[0].Start == 0 {
			t.Errorf("on record %+v, want process %d", on, odd.PID)
		}
		now := n.left()
		must.Not(t, len(now) == 0 || len(now) > 2 || run > 0 && !slices.Equal(now, stuck), "left %v, earlier %v", now, stuck)
		stuck = now
	}
	mend()
	n.none()
	await(t, "the end of the reader on record", func() bool { return len(readers()) == 0 })
	n.hook(n.own(epilog), newJob())
	must.Not(t, about(odd.PID).Code == "", "once it can be read: %+v", n.findings(epilog))
}

// stopping makes each process of this node's hooks stop at its next call of a kind that is the one meant, and lets all
// others go. It returns who was stopped.
func (n *node) stopping(kind faultinject.Filter, is func(faultinject.Call) bool) (stopped func() []int) {
	var mu sync.Mutex
	var found []int
	n.watch = func(cmd *exec.Cmd) (wait func() error, err error) {
		w, err := faultinject.Start(cmd, []faultinject.Filter{kind}, func(c faultinject.Call) faultinject.Answer {
			mu.Lock()
			defer mu.Unlock()
			if pid := c.PID(); is(c) && !slices.Contains(found, pid) {
				found = append(found, pid)
				_ = syscall.Kill(pid, syscall.SIGSTOP)
				for end := time.Now().Add(margin); !stopsAll(pid, c.TID) && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
			}
			return faultinject.Answer{}
		})
		if err != nil {
			return nil, err
		}
		return w.Wait, nil
	}
	return func() []int {
		mu.Lock()
		defer mu.Unlock()
		n.watch = nil
		return found
	}
}

// stopsAll reports that a thread of a process has stopped, so that none goes on. The kernel hands the signal to the main
// thread: where that makes the call it stops, and the others with it, once it has its answer.
func stopsAll(pid, caller int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return caller == pid || slices.ContainsFunc(stats, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.HasPrefix(string(text[strings.LastIndexByte(string(text), ')')+1:]), " T")
	})
}

// sharesLock is a job whose record has the same lock as job 100's: there are 64 of them.
const sharesLock = 164

// A hook that is stopped, the whole process, in the middle of writing the job's record, where it holds the lock of the
// record and the claim of the job's end, holds nobody up for longer than a lock may be waited for: others say so. What
// the stopped one was about to write is there once it goes on, and nothing of the others is lost but what they said.
func TestLockOfAStoppedHook(t *testing.T) {
	n := parallel(t, "enforce")
	n.ownPrograms()
	n.clean(n.own(prolog), bystanding())
	n.clean(n.own(prolog), newJob())
	who := n.stopping(faultinject.Filter{Number: unix.SYS_OPENAT}, func(c faultinject.Call) bool {
		return doing(c.PID()) == "" && strings.Contains(c.File(0)+"/"+c.Text(1), n.inState("100")+"/"+safefile.TempPrefix)
	})
	stopped := n.start(n.own(epilog), newJob())
	await(t, "the hook to stop", func() bool { return stateOf(stopped.cmd.Process.Pid) == "T" })
	if pids := who(); len(pids) != 1 || pids[0] != stopped.cmd.Process.Pid {
		t.Errorf("stopped %d, want the hook, %d", pids, stopped.cmd.Process.Pid)
	}
	n.configure(func(c *conf) { c.tight, c.onUnknown = true, "drain" })
	n.exits(0, n.own(prolog), numbered(sharesLock))
	n.exits(0, n.own(epilog), newJob()) // the same job's, beside the stopped one
	for _, h := range hooks {
		n.saysTimes(1, h.program, "findings: ", string(catalog.StateLock))
	}
	n.saysTimes(1, "findings: ", string(catalog.Again))
	must.Do(t, syscall.Kill(stopped.cmd.Process.Pid, syscall.SIGCONT))
	o := stopped.wait()
	must.Not(t, o.exit != 0, "the one that was stopped: %v", o)
	r := n.run(100)
	must.Not(t, r.Start == nil || len(r.Ends) != 1 || len(r.Ends[0].Findings) != 0, "%+v", r)
	n.configure(func(c *conf) { c.tight = false })
	n.clean(n.own(prolog), numbered(sharesLock))
	n.clean(n.own(epilog), numbered(sharesLock))
	n.sound()
}

// stops are the children of root's hooks, each stopped for good: with which hooks, in which circumstances it is started
// at all, and what must come of it.
var stops = map[string]struct {
	hooks []hook
	harm  func(n *node) (undo func())
	job   func(n *node) job
	finds catalog.Code // on record
	says  []string     // in one line of the log, or of what slurmd logs, where it is not on record
	exit  int
	roomy bool // the deadlines are: an end that has little time does not begin to clean up
}{
	"backend":   {hooks: hooks, finds: catalog.Hang},
	"inventory": {hooks: hooks, harm: nothingKnown, finds: catalog.Hang},
	"kernel":    {hooks: hooks},
	"processes": {hooks: hooks, harm: aLeftover, finds: catalog.Untraced},
	"holders":   {hooks: []hook{prolog}, harm: aResidue, finds: catalog.Untraced},
	"sharing":   {hooks: []hook{epilog}, harm: aLeftover, finds: catalog.Orphan},
	"cleanup":   {hooks: []hook{epilog}, harm: aLeftover, finds: catalog.Orphan, exit: 10, roomy: true},
	"tail":      {hooks: []hook{epilog}, job: withOutput, says: []string{"job_log=failed", string(catalog.Output)}},
	"append":    {hooks: []hook{epilog}, job: withOutput, says: []string{"job_log=failed", string(catalog.Output)}},
	"disk":      {hooks: hooks, harm: aTrouble, says: []string{`bookend: child "disk": `}},
}

// nothingKnown makes a hook ask which GPUs there are.
func nothingKnown(n *node) (undo func()) {
	must.Do(n, os.Remove(n.inState("inventory.json")))
	return func() {}
}

// aTrouble makes a hook wait for its child at the disk.
func aTrouble(n *node) (undo func()) {
	n.put(n.inState("disk-troubles.json"), `[{"task":"log","detail":"no space left","count":1}]`, 0o600)
	return func() {}
}

func aLeftover(n *node) (undo func()) {
	p := n.leftover()
	n.inCgroup(p, "100")
	return p.End
}

func aResidue(n *node) (undo func()) {
	n.set("gpu0.extra_mib", "2048")
	return func() { n.set("gpu0.extra_mib", "0") }
}

func withOutput(n *node) job { return newJob().With("SLURM_JOB_STDOUT", n.home()) }

// A child that stops for good, whichever it is, costs its hook the time it was given, and nothing else: it is killed,
// what it was to find out is unknown, nothing drains for it, and the next hook is as always.
func TestStoppedChild(t *testing.T) {
	for op, tt := range stops {
		for _, h := range tt.hooks {
			t.Run(op+" "+h.program, func(t *testing.T) { t.Parallel(); stopChild(t, op, h) })
		}
	}
}

// stopChild stops a hook's child for an operation, before its first own instruction: the first thing that Go does is to
// count processors.
func stopChild(t *testing.T, op string, h hook) {
	tt := stops[op]
	n := newNode(t, "enforce")
	n.ownPrograms()
	j := newJob()
	if tt.job != nil {
		j = tt.job(n)
	}
	n.clean(n.own(prolog), bystanding())
	if h == epilog {
		n.clean(n.own(prolog), j)
	}
	n.configure(func(c *conf) {
		c.onUnknown, c.tight = "drain", !tt.roomy
		c.extra = map[string]string{"append": "job_log: {read: false}\n",
			"cleanup": "clean_up: {enabled: true, grace: 100ms}\n"}[op]
		c.shards = map[string]string{"sharing": "auto"}[op]
	})
	undo := func() {}
	if tt.harm != nil {
		undo = tt.harm(n)
	}
	stopped := n.stopping(faultinject.Filter{Number: unix.SYS_SCHED_GETAFFINITY},
		func(c faultinject.Call) bool { return doing(c.PID()) == op })
	o := n.hook(n.own(h), j)
	must.Not(t, o.exit != tt.exit, "%v\n%s", o, n.log())
	must.Not(t, len(stopped()) == 0, "no one was stopped")
	n.none()
	must.Not(t, len(tt.says) > 0 && len(lines(n.log()+o.output, tt.says...)) == 0,
		"want %q in the log:\n%s%s", tt.says, n.log(), o.output)
	found := n.findings(h)
	blamed := slices.ContainsFunc(found, func(f record.Finding) bool { // on a busy machine another may not answer
		return f.Code == catalog.Stuck || f.Code == catalog.Hang && strings.Contains(f.Observed, strconv.Quote(op))
	})
	must.Not(t, tt.finds != "" && !has(found, tt.finds) || tt.finds != catalog.Hang && blamed,
		"recorded %+v, want %q", found, tt.finds)
	e := n.ending(h, 100)
	must.Not(t, (e.Kernel == nil || e.Kernel.Unknown != "") != (op == "kernel"), "the kernel's log: %+v", e.Kernel)
	undo()
	n.configure(func(c *conf) { c.extra, c.shards = "", "" })
	n.sound()
}

// A spool on a file system that hangs costs the job neither its report nor its node: the child that waits there is on
// record, and the user's next job starts no second one.
func TestSpoolThatHangs(t *testing.T) {
	n := parallel(t, "enforce")
	n.ownPrograms()
	must.Do(t, os.Mkdir(n.in("spool"), 0o755))
	n.configure(func(c *conf) {
		c.tight, c.onUnknown, c.extra = true, "drain", "job_log: all\nspool: "+n.in("spool")+"/%u\n"
	})
	out := n.home()
	ends := func(id int) job { return numbered(id).With("SLURM_JOB_STDOUT", out, "SLURM_JOB_USER", "ann") }
	n.clean(n.own(prolog), ends(200))
	n.clean(n.own(prolog), ends(201))
	mend := n.deaf(n.in("spool"), true)
	n.exits(0, n.own(epilog), ends(200))
	n.says("job=200", "job_log=appended", "spool=no-answer")
	n.exits(0, n.own(epilog), ends(201))
	n.says("job=201", "spool=\"not written\"")
	must.Not(t, strings.Count(n.get(out), "| bookend: ") != 2, "the job's log: %s", n.get(out))
	mend()
}

// A batch job's start reads if its user's last runs of its name used more than one of its GPUs has. Whatever the user's
// spool is or has in it, the line is plain or missing, and the task begins in time.
func TestPeaksAtStart(t *testing.T) {
	n := parallel(t, "enforce")
	n.ownPrograms()
	dir := n.in("spool/ann")
	must.Do(t, os.MkdirAll(dir, 0o755))
	n.give(dir, user)
	n.configure(func(c *conf) { c.extra = "job_log: {show: problems, peaks: true}\nspool: " + n.in("spool") + "/%u\n" })
	const name = "a\nexport PATH=/x\x1b[2J"
	file := func(id int, name string) string {
		text, err := json.Marshal(joblog.Spooled{Version: 1, ID: slurm.JobID(id), Job: fmt.Sprint(id), Cluster: "lab", Used: joblog.Usage{
			Name: name, End: joblog.Ended, Nodes: 1, GPUs: []joblog.Used{{Model: "B", Total: 800 << 30, Peak: 150 << 30}}}})
		must.Do(t, err)
		return n.put(fmt.Sprintf("%s/%d.n9.json", dir, id), string(text), 0o644)
	}
	file(7, "train")
	file(8, "train")
	file(9, name)
	j := newJob().With("SLURM_JOB_USER", "ann", "SLURM_JOB_NAME", "train")
	says := func(want string, j job) {
		t.Helper()
		o := n.task(n.own(taskProlog), j)
		if want != "" {
			want = "print | bookend: your last " + want + " peaked at 150.0 GiB on one GPU; here a GPU has 140.4 GiB: it may not fit. See: bookend peaks NAME\n"
		}
		must.Not(t, o.exit != 0 || o.output != want, "%v, want %q", o, want)
	}
	n.clean(n.own(prolog), j)
	says(`2 runs of "train"`, j)
	says(`run of "a\nexport PATH=/x\x1b[2J"`, j.With("SLURM_JOB_NAME", name))
	for _, other := range []job{j.With("SLURM_JOB_NAME", "val"), j.With("SLURM_JOB_NAME", "train\xff"), j.With("SLURM_JOB_NAME", ""),
		j.With("SLURM_STEP_ID", "0"), j.With("SLURM_STEP_ID", "4294967290"),
		j.With("SLURM_JOB_USER", "../../tmp"), j.With("SLURM_CLUSTER_NAME", "other")} {
		says("", other)
	}
	must.Do(t, os.Remove(file(10, "train")))
	must.Do(t, unix.Mkfifo(dir+"/10.n9.json", 0o666))
	must.Do(t, os.Symlink("/dev/zero", dir+"/11.n9.json"))
	n.put(dir+"/12.n9.json", strings.Repeat("[", 16<<10), 0o644)
	says(`2 runs of "train"`, j)
	must.Do(t, os.Chmod(dir, 0o777))
	says("", j)
	must.Do(t, os.Chmod(dir, 0o755))
	n.configure(func(c *conf) { c.tight = true })
	mend := n.deaf(n.in("spool"), true)
	says("", j)
	left := n.left()
	n.exits(0, n.own(epilog), j)
	n.says("job=100", "spool=no-answer")
	n.exits(0, n.own(prolog), numbered(101).With("SLURM_JOB_USER", "ann")) // while a child of its user's hangs, nothing is compared
	must.Not(t, strings.Contains(n.get(n.ofUser("report", user, "101")), "memory_bytes"), "%s", n.get(n.ofUser("report", user, "101")))
	says("", numbered(101).With("SLURM_JOB_USER", "ann", "SLURM_JOB_NAME", "train"))
	must.Not(t, len(left) != 1 || len(n.left()) != 2, "left at the start %v, then %v", left, n.left())
	mend()
}
