package finding

import (
	"math"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// Keepers selects the processes that keep the driver open so that memory without a process never drains on some of
// these GPUs. It asks the rule that judges the end of a job. A process in the cgroup of a known job is none: it ends
// with that job, or is a leftover. What its environment says proves no job. Processes of this backend come and go.
// Unread is how many processes could not be looked into.
func Keepers(
	holdings []attrib.Holding, backend string, cards []Card, l Limits, known func(slurm.Owner) bool,
) (keep []attrib.Holding, unread int) {
	for _, h := range holdings {
		switch {
		case h.Gone, h.Exe == backend, h.Cgroup.Found() && known(h.Cgroup):
			continue
		case h.Why != "", h.Cgroup.Conflict != "":
			unread++
			continue
		}
		if slices.ContainsFunc(cards, func(c Card) bool { return !doubted(c, l) && doubted(c, l, h) }) {
			keep = append(keep, h)
		}
	}
	return keep, unread
}

// doubted reports whether memory without a process on a GPU, that a job got clean and had alone, would be in doubt
// while these processes, older than the job, have the driver open.
func doubted(c Card, l Limits, open ...attrib.Holding) bool {
	id, began := c.Device.ID, 2*attrib.Tick
	for _, h := range open {
		began = max(began, h.Start+2*attrib.Tick)
	}
	look := func(at time.Duration, state settle.State, used uint64) Side {
		reading := gpu.Reading{Device: c.Device, Memory: gpu.Memory{Used: gpu.Bytes(used)}}
		return Side{
			Snapshot: gpu.Snapshot{At: at, Readings: []gpu.Reading{reading}},
			Curves:   map[gpu.ID]settle.Curve{id: {State: state, Steady: true}}, Scan: &attrib.Scan{Holdings: open},
		}
	}
	before := look(began, settle.Clean, 0)
	s := Scene{
		Job: slurm.Job{Context: slurm.Epilog, ID: 1, UID: math.MaxUint32}, Cards: []Card{c}, Limits: l,
		Before: &before, Now: look(began+time.Hour, settle.Flat, l.Drain+l.Report+2*MaxBaseline),
		Self: attrib.Record{Job: 1, UID: math.MaxUint32, GPUs: []gpu.ID{id}, Start: began, Alone: true},
	}
	return slices.ContainsFunc(Compare(s), func(f Finding) bool { return len(f.Doubts) > 0 })
}
