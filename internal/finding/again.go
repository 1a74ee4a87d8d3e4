package finding

import (
	"fmt"
	"maps"
	"slices"

	"bookend/internal/code"
	"bookend/internal/gpu"
)

// Again joins what was found before and after processes were ended; the scene is that of the second look. A GPU that settled
// again is judged by the second look alone. On any other one what was found first stays, unless the second look proves that its
// process or its memory is gone. What an ended process may have held is not certain any more, and the rest has to be enough
// for a drain without it.
func (s Scene) Again(first, second []Finding, ended map[int]bool) []Finding {
	var kept []Finding
	for _, f := range first {
		named := slices.ContainsFunc(second, f.sameSubject)
		if named || s.Now.overrules(f, s.Cards) || s.Now.lacks(f) || s.freed(f) {
			continue
		}
		if doubt := f.endedBy(ended); doubt != "" {
			f.Doubts = append(slices.Clone(f.Doubts), doubt)
		}
		kept = append(kept, f)
	}
	all := append(kept, second...)
	for _, c := range s.Cards {
		s.Limits.enough(all, c.Device.ID)
	}
	return all
}

// enough applies the threshold again to the memory that is still certain on a GPU.
func (l Limits) enough(all []Finding, id gpu.ID) {
	var held []*Finding
	var certain []Finding
	for i, f := range all {
		if f.GPU == id && len(f.Doubts) == 0 && f.ofMemory() {
			held, certain = append(held, &all[i]), append(certain, f)
		}
	}
	if why := l.tooLittle(certain); why != "" {
		for _, f := range held {
			f.Doubts = append(slices.Clone(f.Doubts), why)
		}
	}
}

// ofMemory reports a finding about a process or memory on a GPU, as against one about the GPU itself.
func (f Finding) ofMemory() bool { return f.Holder != nil || f.withoutProcess() }

// withoutProcess reports memory that no live process is listed for: any process may have held it.
func (f Finding) withoutProcess() bool { return f.Code == code.Residue || f.Code == code.Phantom }

// freed reports whether the second look could read the GPU and found nothing unexplained there any more.
func (s Scene) freed(f Finding) bool {
	r, read := s.Now.Snapshot.Reading(f.GPU)
	if f.Code != code.Residue || !read || r.ProcessesUnknown != "" {
		return false
	}
	bytes, unknown := Unexplained(r, s.Limits, s.Baselines[f.GPU])
	return unknown == "" && bytes < s.Limits.Report
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
	return s.Curves[f.GPU].State.AtRest()
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

// endedBy says why processes that were ended since leave a finding in doubt; empty if they do not. Memory without a process
// may have been held by any of them, on whichever GPU that was listed.
func (f Finding) endedBy(ended map[int]bool) string {
	pids := make([]int, 0, 1+len(f.Candidates))
	if f.Holder != nil {
		pids = append(pids, f.Holder.PID)
	}
	for _, c := range f.Candidates {
		pids = append(pids, c.PID)
	}
	if f.withoutProcess() {
		pids = append(pids, slices.Sorted(maps.Keys(ended))...)
	}
	for _, pid := range pids {
		if ended[pid] {
			return fmt.Sprintf("process %d may have been ended since, and the GPU was not seen settled again", pid)
		}
	}
	return ""
}
