package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/fakegpu"
)

// crowd is how many jobs begin and end at the same moment, each with a card of its own.
const crowd = 64

// member is one job of a crowd, on a card of its own.
type member struct {
	id     slurm.JobID
	uid    uint32
	card   int
	leaves code.Code // on its card; "" for nothing
	exits  []int     // that its epilog may have
	pid    int       // of the process it leaves
}

// members are jobs of a few users. Some leave a process, some memory without one. A process is certainly its job's only
// where its user had no other: there is no cgroup to tell. Memory may always be held by those other processes.
func members() []member {
	var all []member
	for card := range crowd {
		m := member{id: slurm.JobID(1000 + card), uid: uint32(60001 + card%4), card: card, exits: []int{0}}
		switch card % 16 {
		case 1:
			m.uid, m.leaves, m.exits = uint32(61000+card), code.Orphan, []int{10}
		case 5:
			m.leaves, m.exits = code.Orphan, []int{0, 10}
		case 9:
			m.leaves = code.Residue
		}
		all = append(all, m)
	}
	return all
}

func (m member) job() job {
	id, uid, card := strconv.Itoa(int(m.id)), strconv.Itoa(int(m.uid)), strconv.Itoa(m.card)
	return newJob().with("SLURM_JOB_ID", id, "SLURM_JOBID", id, "SLURM_JOB_UID", uid, "SLURM_UID", uid, "SLURM_JOB_GID", uid,
		"SLURM_JOB_GPUS", card, "CUDA_VISIBLE_DEVICES", card, "GPU_DEVICE_ORDINAL", card)
}

// leave puts on the card what the job leaves there.
func (m *member) leave(n *node) {
	n.Helper()
	switch m.leaves {
	case code.Orphan:
		env := []string{"CUDA_VISIBLE_DEVICES=" + strconv.Itoa(m.card), "SLURM_JOB_ID=" + strconv.Itoa(int(m.id))}
		m.pid = n.holder(m.uid, env, "--mib", "2048").PID
	case code.Residue:
		must(n, n.world.Set(fmt.Sprintf("gpu%d.extra_mib", m.card), strconv.Itoa(1024+m.card)))
	}
}

// allAtOnce runs one hook of every job at the same moment.
func (n *node) allAtOnce(h hook, all []member) {
	n.Helper()
	var ended sync.WaitGroup
	for _, m := range all {
		p := n.start(h, m.job())
		ended.Go(func() {
			o := p.wait()
			if h == prolog && o.exit != 0 || h == epilog && !slices.Contains(m.exits, o.exit) {
				n.Errorf("%s of job %d: %v, want exit %d", h.program, m.id, o, m.exits)
			}
		})
	}
	ended.Wait()
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
	kept, damage := state.History(n.in("var"), nodeName)
	if len(kept) != few || len(damage) != 0 {
		t.Errorf("%d records of %d jobs in the history, %v\n%s", len(kept), few, damage, n.log())
	}
}

// Sixty-four jobs begin together and end together on sixty-four cards: no record is lost, on disk or in memory, each
// says which card its job had, and whoever left something is told for it, and nobody else.
func TestCrowd(t *testing.T) {
	n := newNode(t, "enforce", fakegpu.GPUs(crowd))
	n.configure(func(c *conf) { c.settle = "{max: 19s, flat: 1s}" }) // a look takes its time where 64 look
	all := members()
	n.allAtOnce(prolog, all)
	for i := range all {
		all[i].leave(n)
	}
	n.allAtOnce(epilog, all)

	records := n.everyRecord()
	for _, m := range all {
		if len(records[m.id]) != 1 {
			t.Errorf("job %d has %d records", m.id, len(records[m.id]))
			continue
		}
		m.check(n, records[m.id][0])
	}
	if got := len(lines(n.log(), "action=")); got != 2*crowd {
		t.Errorf("%d lines of %d\n%s", got, 2*crowd, n.log())
	}
	if left := n.halfWritten(); len(left) > 0 {
		t.Errorf("half written: %q", left)
	}
}

// everyRecord are the node's records in memory and on disk. What is in both is one record.
func (n *node) everyRecord() map[slurm.JobID][]ledger.Run {
	n.Helper()
	store, err := state.Open(n.conf.run, nodeName)
	must(n, err)
	runs, damaged := store.Runs()
	history, lost := state.History(n.in("var"), nodeName)
	if len(damaged)+len(lost) > 0 {
		n.Errorf("damaged: %v %v", damaged, lost)
	}
	records := map[slurm.JobID][]ledger.Run{}
	for _, r := range append(runs, history...) {
		if !slices.ContainsFunc(records[r.Job.ID], func(o ledger.Run) bool { return o.Key == r.Key }) {
			records[r.Job.ID] = append(records[r.Job.ID], r)
		}
	}
	return records
}

// exceptLocks are findings without those that say that another hook held what all share for too long: of 64 one may
// meet that, and keeps no word of its card's test for the next start.
func exceptLocks(all []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f finding.Finding) bool { return f.Code == code.StateLock })
}

// check compares a job's record with what the job did.
func (m member) check(n *node, r ledger.Run) {
	n.Helper()
	if r.Start == nil || len(r.Ends) != 1 || r.Job.UID != m.uid {
		n.Errorf("job %d: %+v", m.id, r)
		return
	}
	if found := exceptLocks(r.Start.Findings); len(found) != 0 {
		n.Errorf("job %d began on a clean card: %+v", m.id, found)
	}
	if len(r.Devices) != 1 || string(r.Devices[0].Device.ID) != n.world.UUID(m.card) {
		n.Errorf("job %d: on %+v, want card %d", m.id, r.Devices, m.card)
	}
	found := exceptLocks(r.Ends[0].Findings)
	if m.leaves == "" {
		if len(found) != 0 || !strings.Contains(r.Ends[0].Report, "left clean") {
			n.Errorf("job %d left nothing: %+v", m.id, found)
		}
		return
	}
	// Where 64 look at once, one may not get looks enough to call memory steady: that is told, and accuses nobody.
	if len(found) == 1 && found[0].Code == code.Moving && found[0].Unknown != "" && m.leaves == code.Residue {
		return
	}
	if len(found) != 1 || found[0].Code != m.leaves || string(found[0].GPU) != n.world.UUID(m.card) {
		n.Errorf("job %d left %s: %+v", m.id, m.leaves, found)
		return
	}
	m.blamed(n, found[0])
}

// blamed checks whom a finding names.
func (m member) blamed(n *node, f finding.Finding) {
	n.Helper()
	if f.Owner != nil && f.Owner.Job != m.id {
		n.Errorf("job %d's is said to be job %d's: %+v", m.id, f.Owner.Job, f)
	}
	switch m.leaves {
	case code.Orphan:
		if f.Owner == nil || f.Holder == nil || f.Holder.PID != m.pid {
			n.Errorf("job %d left process %d: %+v", m.id, m.pid, f)
		}
	case code.Residue:
		if f.Bytes.Bytes>>20 != uint64(1024+m.card) {
			n.Errorf("job %d left %d MiB: %+v", m.id, 1024+m.card, f.Bytes)
		}
	}
}
