package stage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// book is the node's ledger as attribution wants it.
type book struct {
	self   attrib.Record
	others []attrib.Record
	left   []finding.Finding // of closed ends, newest first
}

// ledger reads every record of this epoch and sets this run apart.
func (h *hook) ledger(self state.Run) book {
	b := book{self: h.record(self)}
	if h.phase == slurm.Prolog {
		b.self.Start = h.now.Snapshot.At // what ended before now was not disturbed by this job
	}
	if h.store == nil {
		return b
	}
	runs, damaged := h.store.Runs()
	for _, d := range damaged {
		h.add(finding.Finding{Code: code.StateDamage, Observed: fmt.Sprintf("%s: %s", d.Path, d.Why), Expected: "a whole record"})
	}
	current := state.Run{Job: h.job, Start: &state.End{At: b.self.Start}} // not on record yet at a start
	for _, r := range runs {
		if self.Key != "" && r.Key == self.Key && r.Job.ID == self.Job.ID || !h.counts(r) {
			continue
		}
		other := h.record(r)
		if at, over := r.Superseded(append(runs, current)); over {
			other.End = at
		}
		b.others = append(b.others, other)
	}
	b.left = h.leftovers(runs)
	all := append([]attrib.Record{b.self}, b.others...)
	b.self.Alone = alone(b.self, b.others)
	for i := range b.others {
		b.others[i].Alone = alone(b.others[i], all)
	}
	return b
}

// counts leaves out runs of another epoch. One whose prolog learned nothing has no epoch, and may be on any card.
func (h *hook) counts(r state.Run) bool {
	unknown := r.Epoch == (gpu.Epoch{}) && r.Start != nil && r.Start.At <= h.now.Snapshot.At
	return unknown || r.Epoch.Same(h.epoch)
}

// leftovers are the findings of ended jobs that may still lie on a card, newest first. A look that saw the card
// idle since acquits everybody before it.
func (h *hook) leftovers(runs []state.Run) []finding.Finding {
	var left []finding.Finding
	idle := map[gpu.ID]bool{}
	for _, e := range endsOf(runs, h.epoch) {
		for _, r := range e.Snapshot.Readings {
			if len(r.Processes) == 0 && r.ProcessesUnknown == "" && r.Memory.Used.Known() && !r.Memory.UsedHasReserved &&
				r.Memory.Used.Bytes < uint64(h.cfg.Thresholds.Report) {
				idle[r.Device.ID] = true
			}
		}
		for _, f := range e.Findings {
			if !idle[f.GPU] {
				left = append(left, f)
			}
		}
	}
	return left
}

// endsOf lists every look on record of an epoch, newest first.
func endsOf(runs []state.Run, epoch gpu.Epoch) []state.End {
	var ends []state.End
	for _, r := range runs {
		if !r.Epoch.Same(epoch) {
			continue
		}
		if r.Start != nil {
			ends = append(ends, *r.Start)
		}
		ends = append(ends, r.Ends...)
	}
	slices.SortFunc(ends, func(a, b state.End) int { return cmp.Compare(b.At, a.At) })
	return ends
}

func (h *hook) record(r state.Run) attrib.Record {
	rec := attrib.Record{Job: r.Job.ID, SLUID: r.Job.SLUID, UID: r.Job.UID}
	rec.Unplaced = len(r.Devices) == 0
	for _, d := range r.Devices {
		rec.GPUs = append(rec.GPUs, d.Device.ID)
		rec.Unplaced = rec.Unplaced || d.Device.ID == ""
	}
	if r.Start != nil {
		rec.Start = r.Start.At
		rec.Seen = sightings(rec.Seen, *r.Start)
	}
	for _, e := range r.Ends {
		if rec.End == 0 {
			rec.End = e.At
		}
		rec.Seen = sightings(rec.Seen, e)
	}
	return rec
}

func sightings(seen []attrib.Sighting, e state.End) []attrib.Sighting {
	for _, p := range e.Processes {
		if p.Cgroup.ID != 0 || p.Cgroup.SLUID != "" {
			seen = append(seen, attrib.Sighting{PID: p.PID, Start: p.Start, Owner: p.Cgroup})
		}
	}
	return seen
}

// alone reports whether no other run was given any of r's GPUs while r ran.
func alone(r attrib.Record, others []attrib.Record) bool {
	if r.Start == 0 || r.Unplaced {
		return false // without its start or its GPUs nobody knows what r overlapped with
	}
	for _, o := range others {
		if o.Job == r.Job && o.Start == r.Start {
			continue
		}
		if overlap(r, o) && slices.ContainsFunc(r.GPUs, o.MayHold) {
			return false
		}
	}
	return true
}

func overlap(a, b attrib.Record) bool {
	const forever = time.Duration(1<<63 - 1)
	endOf := func(r attrib.Record) time.Duration {
		if r.Live() {
			return forever
		}
		return r.End
	}
	return a.Start < endOf(b) && b.Start < endOf(a)
}
