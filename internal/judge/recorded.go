package judge

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/slurmconf"
)

// gone is the doubt about what was seen only between a job's two ends: it never drains.
const gone = "the recorder saw it while the job ran; this end does not"

// AsksRecorded reports processes of other jobs among those that the recorder saw on the job's GPUs, or of this job on
// others' GPUs: whose right that is the node's records say.
func (c Case) AsksRecorded() bool { return len(c.overlaps())+len(c.Past.Elsewhere) > 0 }

// overlaps are the processes of other jobs on the job's GPUs.
func (c Case) overlaps() (all []ledger.RecordedProcess) {
	if c.Past.Recording == nil || c.Past.Again || c.Past.Second {
		return nil
	}
	for _, g := range c.Past.Recording.GPUs {
		for _, p := range g.Processes {
			if p.Owner.ID != 0 && p.Owner.Conflict == "" && !c.Self().Owns(p.Owner) && p.Most >= c.limits().Report {
				all = append(all, p)
			}
		}
	}
	return all
}

// recorded finds jobs that were on each other's GPUs between this job's two ends, where that is certain: no GPU of the
// node is given out in parts, and no run on record says that the other was given it. What an end sees by itself is its
// own finding.
func (c Case) recorded(found []finding.Finding) (more []finding.Finding) {
	if c.Node == nil || c.Node.Unread != "" || c.Sharing == nil || c.Sharing.Shared != slurmconf.No {
		return nil
	}
	add := func(of code.Code, p ledger.RecordedProcess, expected, observed string) {
		same := func(f finding.Finding) bool { return f.Holder != nil && f.Holder.PID == p.PID && f.GPU == p.GPU }
		if slices.ContainsFunc(found, same) || slices.ContainsFunc(more, same) {
			return
		}
		f := finding.Finding{
			Code: of, GPU: p.GPU, Bytes: gpu.Bytes(p.Most), Expected: expected, Doubts: []string{gone},
			Observed: fmt.Sprintf("process %d %s, for %v", p.PID, observed, (p.Last - p.First).Round(time.Second)),
			Holder: &finding.Holder{Process: finding.Process{PID: p.PID, Start: p.Start, UID: p.UID, Cgroup: p.Owner},
				Memory: gpu.Bytes(p.Most)},
			Owner: &finding.Owner{Job: p.Owner.ID, SLUID: p.Owner.SLUID, UID: p.UID, Level: finding.Recorded},
		}
		for _, card := range c.Seen.Cards {
			if card.Device.ID == p.GPU {
				f.Index = &card.Index
			}
		}
		more = append(more, f)
	}
	for _, p := range c.overlaps() {
		if c.known(p) && !c.hadToo(p) {
			add(code.Foreign, p, "no other job on this GPU",
				fmt.Sprintf("of job %d was on this GPU beside the job", p.Owner.ID))
		}
	}
	for _, p := range c.Past.Elsewhere {
		if p.Most >= c.limits().Report && !c.hadToo(p) {
			add(code.Trespass, p, "processes on none but their job's own GPUs",
				"of this job was on a GPU that it was not given")
		}
	}
	return more
}

// known reports that the node has a record of the job that a process belongs to.
func (c Case) known(p ledger.RecordedProcess) bool {
	return slices.ContainsFunc(c.Node.Runs, func(r ledger.Run) bool { return r.Owns(p.Owner) })
}

// hadToo reports that the job of a process was given the GPU as well, before or beside: suspended and gang-scheduled
// jobs share one by right, and what an ended job left on it is another finding.
func (c Case) hadToo(p ledger.RecordedProcess) bool {
	runs := append(slices.Clone(c.Node.Runs), c.Self())
	return slices.ContainsFunc(runs, func(r ledger.Run) bool { return r.Owns(p.Owner) && r.Given(p.GPU) })
}
