package compare

import (
	"slices"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// exclusive blames this job for what appeared while it had the GPU alone, if the GPU was settled at its start.
func (v view) exclusive() *record.Owner {
	s := v.in
	if !s.Book.Self.Alone || s.Shared != "" || s.again() || !v.thenState.AtRest() {
		return nil
	}
	return &record.Owner{Job: s.Job.ID, SLUID: s.Job.SLUID, UID: s.Job.UID, Level: record.ByExclusive}
}

// AsMuch is how far figures of one leftover may differ, in bytes: they were measured not to change, clients' by 1 MiB.
const AsMuch = 8 << 20

func near(a, b gpu.Figure) bool {
	return a.Known() && b.Known() && max(a.Bytes, b.Bytes)-min(a.Bytes, b.Bytes) <= AsMuch
}

// Grown reports whether there is more memory than before, for certain: what a dead process left does not grow.
func Grown(before, now gpu.Figure) bool {
	return before.Known() && now.Known() && now.Bytes > before.Bytes+AsMuch
}

// inherited names the ended job that left this dead PID with as much memory, at best with evidence ByExclusive.
func inherited(all []record.Finding, id gpu.ID, p gpu.Process) *record.Owner {
	for _, left := range all {
		same := left.GPU == id && left.Holder != nil && left.Holder.PID == p.PID
		if same && left.Owner != nil && near(left.Bytes, p.Memory) {
			owner := *left.Owner
			if record.ByExclusive.Weaker(owner.Level) {
				owner.Level = record.ByExclusive
			}
			return &owner
		}
	}
	return nil
}

// inheritedMemory names the ended job whose epilog left as much memory without a process, if the candidates of that
// time may still hold it. It returns nil if that is true of several jobs.
func inheritedMemory(all []record.Finding, id gpu.ID, f record.Finding) *record.Owner {
	var fitting []*record.Owner
	for _, left := range all {
		about := left.GPU == id && left.Owner != nil && left.Code == catalog.Residue
		if about && near(left.Bytes, f.Bytes) && f.Searched && keptOn(left, f.Candidates) {
			fitting = append(fitting, left.Owner)
		}
	}
	another := func(o *record.Owner) bool { return !sameJob(o, fitting[0]) }
	if len(fitting) == 0 || slices.ContainsFunc(fitting, another) {
		return nil
	}
	return fitting[0]
}

func sameJob(a, b *record.Owner) bool { return a.Slurm() == b.Slurm() }

// keptOn reports whether these candidates may still hold what was left: all were candidates then, and if the blamed job
// had any, one of them is still there. The memory of a handle is freed with its last holder.
func keptOn(left record.Finding, now []record.Holder) bool {
	in := func(all []record.Holder, p record.Holder) bool {
		return slices.ContainsFunc(all, func(o record.Holder) bool { return o.PID == p.PID && o.Start == p.Start })
	}
	if slices.ContainsFunc(now, func(p record.Holder) bool { return !in(left.Candidates, p) }) {
		return false
	}
	its := slices.DeleteFunc(slices.Clone(left.Candidates), func(p record.Holder) bool {
		return p.Owner == nil || !sameJob(p.Owner, left.Owner)
	})
	return len(its) == 0 || slices.ContainsFunc(its, func(p record.Holder) bool { return in(now, p) })
}
