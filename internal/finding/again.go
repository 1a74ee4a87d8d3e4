package finding

import (
	"slices"

	"bookend/internal/code"
	"bookend/internal/gpu"
)

// Again joins what was found before and after processes were ended; the scene is that of the second look. A GPU that
// settled again is judged by the second look alone. On any other one what was found first stays, unless the second look
// proves that its process is gone; but what an ended process may have held is not certain any more.
func (s Scene) Again(first, second []Finding) []Finding {
	var kept []Finding
	for _, f := range first {
		if slices.ContainsFunc(second, f.sameSubject) || s.Now.overrules(f, s.Cards) || s.Now.lacks(f) {
			continue
		}
		if f.ofMemory() {
			f.Doubts = slices.Clone(f.Doubts)
			f.doubt("processes were ended since, and the GPU was not seen settled again")
		}
		kept = append(kept, f)
	}
	return append(kept, second...)
}

// ofMemory reports a finding about a process or memory on a GPU of the job, as against one about the GPU itself.
func (f Finding) ofMemory() bool {
	return f.Holder != nil && f.Code != code.Trespass || f.withoutProcess()
}

// withoutProcess reports memory that no live process is listed for: any process may have held it.
func (f Finding) withoutProcess() bool { return f.Code == code.Residue || f.Code == code.Phantom }

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
