package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/state"
	"bookend/test/fakegpu"
	"bookend/test/rig"
)

// crowd is how many jobs begin and end at the same moment, each with a GPU of its own.
const crowd = 64

// member is one job of a crowd, on a GPU of its own.
type member struct {
	id, uid, card int
	leaves        code.Code // on its GPU; "" for nothing
	exits         []int     // that its epilog may have
	pid           int       // of the process it leaves
}

// members are jobs of a few users. Some leave a process, some memory without one. A process is certainly its job's only
// where its user had no other: there is no cgroup to tell. Memory may always be held by those other processes.
func members() (all []member) {
	for card := range crowd {
		m := member{id: 1000 + card, uid: 60001 + card%4, card: card, exits: []int{0}}
		switch card % 16 {
		case 1:
			m.uid, m.leaves, m.exits = 61000+card, code.Orphan, []int{10}
		case 5:
			m.leaves, m.exits = code.Orphan, []int{0, 10}
		case 9:
			m.leaves = code.Residue
		}
		all = append(all, m)
	}
	return all
}

// leave puts on the GPU what the job leaves there.
func (m *member) leave(n *node) {
	n.Helper()
	switch m.leaves {
	case code.Orphan:
		env := []string{"CUDA_VISIBLE_DEVICES=" + strconv.Itoa(m.card), "SLURM_JOB_ID=" + strconv.Itoa(m.id)}
		m.pid = n.holder(m.uid, env, "--mib", "2048").PID
	case code.Residue:
		n.set(fmt.Sprintf("gpu%d.extra_mib", m.card), strconv.Itoa(1024+m.card))
	}
}

// allAtOnce runs one hook of every job at the same moment.
func (n *node) allAtOnce(h hook, all []member) {
	n.Helper()
	var jobs []job
	may := map[string][]int{}
	for _, m := range all {
		jobs = append(jobs, rig.NewJob(nodeName, m.id, m.uid, m.card))
		may[strconv.Itoa(m.id)] = m.exits
	}
	n.together(h, jobs, func(j job, o outcome) {
		want := []int{0}
		if h == epilog {
			want = may[j["SLURM_JOB_ID"]]
		}
		if !slices.Contains(want, o.exit) {
			n.Errorf("%s of job %s: %v, want exit %d", h.program, j["SLURM_JOB_ID"], o, want)
		}
	})
}

// Jobs that end together are in the history when the last of them has ended: a reboot takes what is in memory only.
func TestCrowdIsArchived(t *testing.T) {
	t.Parallel()
	const few = 8
	n := newNode(t, "enforce", fakegpu.GPUs(few))
	n.configure(func(c *conf) { c.settle = "{max: 19s, flat: 1s}" })
	all := members()[:few]
	for i := range all {
		all[i].exits = []int{0}
	}
	n.allAtOnce(prolog, all)
	n.allAtOnce(epilog, all)
	kept, damage := state.History(n.conf.varDir, nodeName)
	if len(kept) != few || len(damage) != 0 {
		t.Errorf("%d records of %d jobs in the history, %v\n%s", len(kept), few, damage, n.log())
	}
}

// Sixty-four jobs begin together and end together on sixty-four GPUs: no record is lost, on disk or in memory, each
// says which GPU its job had, and whoever left something is told for it, and nobody else.
func TestCrowd(t *testing.T) {
	n := newNode(t, "enforce", fakegpu.GPUs(crowd))
	n.configure(func(c *conf) { c.settle = "{max: 19s, flat: 1s}" }) // a look takes its time where 64 look
	all := members()
	n.allAtOnce(prolog, all)
	for i := range all {
		all[i].leave(n)
	}
	n.allAtOnce(epilog, all)
	for _, m := range all {
		if records := n.everyRecord(m.id); len(records) == 1 {
			m.check(n, records[0])
		} else {
			t.Errorf("job %d has %d records", m.id, len(records))
		}
	}
	n.saysTimes(2*crowd, "action=")
	if left := n.halfWritten(); len(left) > 0 {
		t.Errorf("half written: %q", left)
	}
}

// exceptLocks are findings without those that say that another hook held what all share for too long: of 64 one may
// meet that, and keeps no word of its GPU's test for the next start.
func exceptLocks(all []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f finding.Finding) bool { return f.Code == code.StateLock })
}

// check compares a job's record with what the job did, and whom it names.
func (m member) check(n *node, r ledger.Run) {
	n.Helper()
	if r.Start == nil || len(r.Ends) != 1 || int(r.Job.UID) != m.uid {
		n.Errorf("job %d: %+v", m.id, r)
		return
	}
	if found := exceptLocks(r.Start.Findings); len(found) != 0 {
		n.Errorf("job %d began on a clean GPU: %+v", m.id, found)
	}
	if len(r.Devices) != 1 || string(r.Devices[0].Device.ID) != n.world.UUID(m.card) {
		n.Errorf("job %d: on %+v, want GPU %d", m.id, r.Devices, m.card)
	}
	found := exceptLocks(r.Ends[0].Findings)
	if m.leaves == "" {
		if len(found) != 0 || !strings.Contains(r.Ends[0].Report, "clean: ") {
			n.Errorf("job %d left nothing: %+v", m.id, found)
		}
		return
	}
	// Where 64 look at once, one may not get looks enough to call memory steady: that is told, and accuses nobody.
	if len(found) == 1 && found[0].Code == code.Moving && found[0].Unknown != "" && m.leaves == code.Residue {
		return
	}
	if len(found) != 1 || !m.blamed(n, found[0]) {
		n.Errorf("job %d left %s of process %d: %+v", m.id, m.leaves, m.pid, found)
	}
}

// blamed reports whether a finding is of what the job left, and names nobody else.
func (m member) blamed(n *node, f finding.Finding) bool {
	right := f.Code == m.leaves && string(f.GPU) == n.world.UUID(m.card) && (f.Owner == nil || int(f.Owner.Job) == m.id)
	if m.leaves == code.Orphan {
		return right && f.Owner != nil && f.Holder != nil && f.Holder.PID == m.pid
	}
	return right && f.Bytes.Bytes>>20 == uint64(1024+m.card)
}

// A node was seen with so many processes that had the driver open.
const (
	holders = 480
	listed  = 8 // further processes that the driver still lists: each may be held by any of those
)

// crowded adds processes of another user that have the driver open to this node's /proc, with programs in a deep
// directory.
func (n *node) crowded() {
	n.Helper()
	program := "/" + strings.Repeat("environment/", 15) + "bin/python3.12"
	for pid := 3_000_000; pid < 3_000_000+holders; pid++ {
		n.madeProcess(pid, program, "nvidiactl", "nvidia0")
	}
}

// madeProcess adds a process of the bystander's to this node's /proc, with device nodes open.
func (n *node) madeProcess(pid int, program string, nodes ...string) {
	n.Helper()
	entry := n.in(fmt.Sprintf("proc/%d", pid))
	must(n, os.MkdirAll(filepath.Join(entry, "fd"), 0o755))
	for i, name := range nodes {
		must(n, os.Symlink(filepath.Join(n.world.Dev(), name), fmt.Sprintf("%s/fd/%d", entry, 3+i)))
	}
	must(n, os.Symlink(program, filepath.Join(entry, "exe")))
	for name, text := range map[string]string{
		"stat":   fmt.Sprintf("%d (dataloader_work) S 1 1 1 0 -1 0%s 9 0 0\n", pid, strings.Repeat(" 0", 12)),
		"status": fmt.Sprintf("Name:\tdataloader_work\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", bystander),
		"cgroup": "0::/user.slice/user-65533.slice/session-3.scope\n", "environ": "", "maps": "",
	} {
		n.put(filepath.Join(entry, name), text, 0o644)
	}
}

// However many processes have the driver open, an end is on record with its verdict, and so is a health check.
func TestCrowdOfHoldersIsOnRecord(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	proc := n.copiedProc()
	for range listed { // of these /proc has nothing: the driver lists processes that are gone
		n.leftover()
	}
	left := n.leftover().PID
	n.copyOf(left, ofJob)
	n.crowded()
	n.configure(func(c *conf) { c.proc = proc })
	o := n.hook(epilog, newJob())
	end := n.endOf(100)
	want := strings.TrimSpace(strings.Repeat(" BKD-PHANTOM", listed))
	if got := codes(end.Findings); o.exit == 0 || end.Verdict.Exit != o.exit ||
		strings.Count(got, "BKD-PHANTOM") != listed ||
		strings.Contains(got, "BKD-ST-WRITE") || len(about(end.Findings, left)) != 1 {
		t.Errorf("%v, found %q, want %q\n%+v", o, got, want, end.Findings)
	}
	if c := n.check(); !has(c.Findings, code.Phantom) || c.Stopped {
		t.Errorf("the health check's record: %+v", c)
	}
}

// With more on record than a hook can read in its time, another job may have the GPU: what would drain is a warning
// then.
func TestTooManyRecordsDoNotDrain(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, bystanding())
	n.clean(prolog, newJob())
	text := strings.Repeat(" ", 1000<<10) + n.record()
	old := time.Now().Add(-time.Hour)
	for id := range 80 {
		folder := n.inState(strconv.Itoa(1000 + id))
		must(t, os.Mkdir(folder, 0o700))
		n.put(folder+"/w1.json", strings.Replace(text, `"id":7,`, fmt.Sprintf(`"id":%d,`, 1000+id), 1), 0o600)
		must(t, os.Chtimes(folder, old, old))
	}
	n.inCgroup(n.leftover(), "100")
	n.exits(0, epilog, newJob())
	found := n.findings(epilog)
	f := n.found(found, code.Orphan)
	if !has(found, code.StateDamage) || !strings.Contains(strings.Join(f.Doubts, "; "), "not all records") {
		t.Errorf("%+v", found)
	}
}
