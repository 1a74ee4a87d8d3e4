package health

import (
	"fmt"
	"slices"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// TestCase is what a hook knows when it wants to test its job's cards. The scene must say who else may use them.
type TestCase struct {
	Scene finding.Scene
	Found []finding.Finding // by this hook so far
	InJob bool              // the hook runs in the job's own cgroup
	Again bool              // another hook was here for this start or end of the job, or is
}

// Plan sorts the job's cards into those that may be tested and those that must not be, each with its reason. Whoever
// else may use a card must never lose memory, or fail to start, because of a test.
func (c TestCase) Plan(cards []finding.Card) (test []finding.Card, skipped []gpu.Probe) {
	for _, card := range cards {
		if why := c.forbids(card); why != "" {
			skipped = append(skipped, SkippedTest(card.Device.ID, why))
			continue
		}
		test = append(test, card)
	}
	return test, skipped
}

func SkippedTest(id gpu.ID, why string) gpu.Probe {
	return gpu.Probe{
		Device: id, Result: gpu.ProbeSkipped, Why: why, Free: gpu.Unknown("not tested"),
		Largest: gpu.Unknown("not tested"),
	}
}

func (c TestCase) forbids(card finding.Card) string {
	s := c.Scene
	switch {
	case c.InJob:
		return "the hook runs inside the job"
	case c.Again:
		return "another hook of this job was here before, or is at work: the GPU may be somebody's by now"
	case card.Device.ID == "":
		return "its id is unknown"
	case card.Device.Parent != "":
		return "a part of a GPU: the test was never tried on one"
	case s.Shared != "":
		return "others may use it: " + s.Shared
	case s.SharedUnknown != "":
		return "whether others may use it could not be told: " + s.SharedUnknown
	}
	given := func(o finding.Record) bool { return o.Live() && o.MayHold(card.Device.ID) }
	if slices.ContainsFunc(s.Others, given) {
		return "another live job was given it, or may have been"
	}
	if why := c.failed(card); why != "" {
		return why
	}
	return Busy(s, card)
}

// failed names what was found wrong with the card, or with the driver as a whole: a test would not tell more, and a
// driver that has just failed may hang in it.
func (c TestCase) failed(card finding.Card) string {
	for _, f := range c.Found {
		entry, _ := code.Lookup(f.Code)
		driver := entry.Scope == code.Driver && entry.Severity != code.Note
		if driver || entry.Scope == code.Card && entry.Severity == code.Serious && f.GPU == card.Device.ID {
			return fmt.Sprintf("%s (%s)", entry.Title, f.Code)
		}
	}
	return ""
}

// Busy says what speaks against a card having nothing on it but what the node itself keeps there; empty where nothing
// does. That a job found the same at its start is no excuse: whose it is may still lose by a test.
func Busy(s finding.Scene, card finding.Card) string {
	id := card.Device.ID
	reading, ok := s.Now.Snapshot.Reading(id)
	baseline := s.Baselines[id]
	switch state := s.Now.Curves[id].State; {
	case !ok || s.Now.Curves[id].Why != "":
		return "it could not be read"
	case !s.Now.Settled([]finding.Card{card}):
		return "its memory was not at rest but " + string(state)
	case reading.ProcessesUnknown != "":
		return "who is on it could not be told"
	}
	for _, p := range reading.Processes {
		if slices.Contains(p.Kinds, gpu.MPS) {
			return "it is shared by MPS"
		}
		if !resident(baseline, p.PID, s.Now.Processes[p.PID]) {
			return "a process is on it"
		}
	}
	switch bytes, unknown := finding.Unexplained(reading, s.Limits, baseline); {
	case unknown != "":
		return "how much of its memory is in use could not be told: " + unknown
	case bytes >= s.Limits.Report:
		return "memory of it is in use"
	}
	return ""
}

// resident reports whether a process is one of those that the baseline expects, and no other of its number.
func resident(b finding.Baseline, pid int, facts finding.Process) bool {
	return facts.Why == "" && !facts.Gone && slices.ContainsFunc(b.Residents, func(r finding.Resident) bool {
		return r.PID == pid && r.Start == facts.Start
	})
}

// Known are the PIDs of the processes that are meant to be on the cards of a plan.
func (c TestCase) Known(test []finding.Card) (pids []int) {
	for _, card := range test {
		for _, r := range c.Scene.Baselines[card.Device.ID].Residents {
			if !slices.Contains(pids, r.PID) {
				pids = append(pids, r.PID)
			}
		}
	}
	return pids
}
