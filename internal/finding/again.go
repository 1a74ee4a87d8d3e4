package finding

import (
	"fmt"
	"slices"

	"bookend/internal/gpu"
	"bookend/internal/settle"
)

// Again joins what was found on the job's GPUs before and after processes were ended there. A GPU that settled again is
// judged by the second look alone. On any other one what was found first stays, unless the second look proves that its
// process is gone; where that may have been ended it is not certain any more.
func Again(first, second []Finding, now Side, cards []Card, ended map[int]bool) []Finding {
	var all []Finding
	for _, f := range first {
		named := slices.ContainsFunc(second, f.sameSubject)
		if named || now.overrules(f, cards) || now.lacks(f) {
			continue
		}
		if pid := f.endedBy(ended); pid != 0 {
			doubt := fmt.Sprintf("process %d may have been ended since, and the GPU was not seen settled again", pid)
			f.Doubts = append(slices.Clone(f.Doubts), doubt)
		}
		all = append(all, f)
	}
	return append(all, second...)
}

// sameSubject reports whether two findings say the same of one process, or of one GPU.
func (f Finding) sameSubject(o Finding) bool {
	if f.Code != o.Code || f.GPU != o.GPU || (f.Holder == nil) != (o.Holder == nil) {
		return false
	}
	return f.Holder == nil || f.Holder.PID == o.Holder.PID && f.Holder.Start == o.Holder.Start
}

// overrules reports whether this look tells by itself what a finding is about: its GPU, or all of the job's, settled.
func (s Side) overrules(f Finding, cards []Card) bool {
	if f.GPU == "" {
		return s.Settled(cards)
	}
	state := s.Curves[f.GPU].State
	return state == settle.Clean || state == settle.Flat
}

// lacks reports whether this look proves a finding's process gone from its GPU.
func (s Side) lacks(f Finding) bool {
	r, read := s.Snapshot.Reading(f.GPU)
	if f.Holder == nil || !read || r.ProcessesUnknown != "" {
		return false
	}
	now, known := s.Processes[f.Holder.PID]
	if known && now.Why == "" && now.Start != f.Holder.Start {
		return true
	}
	return !slices.ContainsFunc(r.Processes, func(p gpu.Process) bool { return p.PID == f.Holder.PID })
}

// endedBy returns a process that holds, or may hold, what a finding is about and that is among those ended; 0 for none.
func (f Finding) endedBy(ended map[int]bool) int {
	if f.Holder != nil && ended[f.Holder.PID] {
		return f.Holder.PID
	}
	for _, c := range f.Candidates {
		if ended[c.PID] {
			return c.PID
		}
	}
	return 0
}
