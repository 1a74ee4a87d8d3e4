package report

import (
	"fmt"
	"slices"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Vet returns whether a job's user would do better on another node, and why, by what its start reports to the user.
func Vet(s Scene) (avoid record.Answer, why string) {
	avoid = record.No
	for _, f := range s.reported() {
		if answer := proves(f, s.Cards); answer.Outweighs(avoid) {
			avoid, why = answer, reason(f)
		}
	}
	all, _ := checked(s)
	switch {
	case avoid != record.No:
	case !all:
		return record.CannotTell, "GPUs not checked: " + unchecked(s)
	case besideOf(s) != "":
		return record.CannotTell, besideOf(s)
	}
	return avoid, why
}

// besideOf says how much of a GPU another job has that was given it too, as a suspended one; empty for none, and if
// GPUs are shared by intent.
func besideOf(s Scene) string {
	cards := s.Cards
	if s.Shared {
		cards = nil
	}
	for _, c := range cards {
		r, _ := s.Now.Snapshot.Reading(c.Device.ID)
		for _, p := range r.Processes {
			of := s.Now.Processes[p.PID].Cgroup
			if of.Found() && !s.Run.Owns(of) && r.ProcessesUnknown == "" && p.Memory.Bytes >= worthTelling {
				return fmt.Sprintf("GPU %d: another job has %s of it", c.Index, gpu.Size(p.Memory.Bytes))
			}
		}
	}
	return ""
}

// proves returns whether a finding proves that a GPU is not as it should be. Some do programs no harm, such as rows
// that wait for a reset. Doubts about memory are about what holds it: the memory itself was seen.
func proves(f record.Finding, cards []record.Assigned) record.Answer {
	t, changing := f.Code.Traits(), f.Code == catalog.Moving
	untried := slices.ContainsFunc(cards, func(c record.Assigned) bool { return gpu.VendorOf(c.Device).Untried != "" })
	switch {
	case t.Memory == "" && t.Exit == 0 && !t.Unusable && t.Fault == "" && t.Silence == "" && !changing:
		return record.No
	case f.Unknown != "" && f.Holder == nil, changing, f.Code == catalog.Stuck, t.Silence != "" && !t.Unusable,
		t.Memory == "" && len(f.Doubts) > 0, untried:
		return record.CannotTell
	}
	return record.Yes
}

// reason returns a finding in a few words, without what is others'.
func reason(f record.Finding) string {
	e, _ := catalog.Lookup(f.Code)
	text := e.Title
	if f.Bytes.Known() && f.Bytes.Bytes > 0 {
		text += ", " + gpu.Size(f.Bytes.Bytes)
	}
	if f.Index != nil {
		text = fmt.Sprintf("GPU %d: %s", *f.Index, text)
	}
	return fmt.Sprintf("%s (%s)", text, f.Code)
}

// VetRunning returns an error of a GPU that the recorder has seen since the start, empty for none: it may be the job's.
func VetRunning(s Scene) string {
	for _, g := range s.Recording.GPUs {
		if len(g.Faults) > 0 {
			const words = "GPU %d since the job's start: %s"
			return fmt.Sprintf(words, numberOf(s, g.ID), errorOf(record.Finding{Xid: g.Faults[0].Code}))
		}
	}
	return ""
}
