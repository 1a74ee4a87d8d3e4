package finding

import (
	"time"

	"bookend/internal/attrib"
	"bookend/internal/gpu"
	"bookend/internal/settle"
)

// Side is what one end of a job saw: the last look at its GPUs, how each came to rest, who was listed.
type Side struct {
	Snapshot  gpu.Snapshot
	Curves    map[gpu.ID]settle.Curve
	Processes map[int]attrib.Process
	// Stayed are the processes of each GPU that every look of a watch showed, and that are the same ones still, with the
	// smallest of their own figures. On a GPU that never settles they are all that is certain.
	Stayed map[gpu.ID][]settle.Stay
	// Beyond is the least memory, in bytes, that no process accounted for in every look of such a GPU's watch.
	Beyond     map[gpu.ID]uint64
	Scan       *attrib.Scan  // nil where nobody searched for holders: nothing was unexplained
	Neighbours *gpu.Snapshot // one look at the node's other GPUs, nil where there was none
}

// AtRest reports whether every card was seen, and seen clean.
func (s Side) AtRest(cards []Card) bool {
	for _, c := range cards {
		if s.Curves[c.Device.ID].State != settle.Clean {
			return false
		}
	}
	return true
}

// Settled reports whether every card was seen at rest, clean or not.
func (s Side) Settled(cards []Card) bool {
	for _, c := range cards {
		if !s.Curves[c.Device.ID].State.AtRest() {
			return false
		}
	}
	return true
}

// Expectations say what cards may carry and still be clean, with the start time of each process meant by it: what
// they carry without any job and, at an end, what they carried before the job, which need not leave them cleaner.
func Expectations(before *Side, baselines map[gpu.ID]Baseline, l Limits) (map[gpu.ID]gpu.Expected, map[int]time.Duration) {
	expect, known := map[gpu.ID]gpu.Expected{}, map[int]time.Duration{}
	for id, b := range baselines {
		expect[id] = b.Expected(l)
		for _, r := range b.Residents {
			known[r.PID] = r.Start
		}
	}
	if before == nil {
		return expect, known
	}
	for _, r := range before.Snapshot.Readings {
		if !before.Curves[r.Device.ID].State.AtRest() || !r.Memory.Used.Known() {
			continue // what still moved then tells nothing of what was there before
		}
		e := gpu.Expected{}
		rest := r.Memory.Used.Bytes
		for _, p := range r.Processes {
			want := gpu.ExpectedProcess{PID: p.PID}
			if p.Memory.Known() {
				want.Bytes = min(p.Memory.Bytes, rest) // shared memory is counted twice
				want.Share = min(l.PerClient, rest-want.Bytes)
			}
			rest -= want.Bytes + want.Share
			if facts, read := before.Processes[p.PID]; read && facts.Why == "" { // by its number alone nobody is known again
				known[p.PID] = facts.Start
				e.Processes = append(e.Processes, want)
			}
		}
		e.Bytes = max(rest, expect[r.Device.ID].Bytes)
		for _, p := range expect[r.Device.ID].Processes {
			if _, twice := e.Expects(p.PID); !twice {
				e.Processes = append(e.Processes, p)
			}
		}
		expect[r.Device.ID] = e
	}
	return expect, known
}
