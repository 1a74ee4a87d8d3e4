package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/soak/world"
)

// blames judges every owner that is named on evidence which counts as such.
func (h *hook) blames() {
	for _, f := range h.Found {
		if f.Owner == nil || f.Owner.Level == record.ByEnvironment || f.Owner.Level == record.NoEvidence {
			continue
		}
		if f.Owner.Level == record.ByRecorder {
			h.recordedRight(f)
			continue
		}
		c, saw := h.card(f.GPU), h.sawFor(f.Code)
		if c == nil || saw < h.node.Loaded { // the world has forgotten what that look saw
			continue
		}
		h.weigh(f)
		right, about := h.blamed(f, c, saw)
		switch {
		case right:
		case f.Owner.Level == record.ByExclusive && h.ofThisEpoch(*f.Owner): // worded "probably", and counted
			h.tally.misguessed, h.tally.misguessedAt = 1, h.n // once a pair: each later look repeats it
			h.report("misguessed: %s on %s: job %d; %s", f.Code, c.Device.ID, f.Owner.Job, inWords(about))
		default:
			o := f.Owner
			h.fail(wrongBlame, "%s on %s: job %d by %s; %s", f.Code, c.Device.ID, o.Job, o.Level, inWords(about))
		}
	}
}

// bystanders judges who is named: never a process that has had no GPU open.
func (h *hook) bystanders() {
	for _, f := range h.Found {
		if f.Holder == nil || f.Holder.Gone {
			continue
		}
		p := h.node.Process(f.Holder.PID)
		if p != nil && !p.Opened() && h.node.Started(p) == f.Holder.Start {
			h.fail(wrongBlame, "%s names process %d, which has no GPU open", f.Code, p.PID)
		}
	}
}

func (h *hook) weigh(f record.Finding) {
	tracked, guessed := h.node.Site.Tracking != world.Linuxproc, f.Owner.Level == record.ByExclusive
	seen := f.Code == catalog.Orphan && f.Holder != nil && h.recorder.inJob[record.Instance{PID: f.Holder.PID, Start: f.Holder.Start}]
	for count, counts := range map[*uint64]bool{
		&h.tally.blamed: true, &h.tally.guessed: guessed, &h.tally.unproven: guessed && seen,
		&h.tally.tracked: tracked, &h.tally.unwitnessed: tracked && guessed,
	} {
		if counts {
			*count++
		}
	}
}

// ofThisEpoch reports an owner of whom anything may be left: a boot or a new load of the driver frees all memory, and
// no guess may go back beyond it.
func (h *hook) ofThisEpoch(o record.Owner) bool {
	return slices.ContainsFunc(h.node.Jobs, func(j *world.Job) bool {
		return (j.ID == o.Job || o.Job == 0 && j.SLUID == o.SLUID) && (j.Closed == 0 || j.Closed >= h.node.Loaded)
	})
}

// sawFor is when the look was that a finding is about: a trespass is judged as of the look at all cards.
func (h *hook) sawFor(c catalog.Code) time.Duration {
	if c == catalog.Trespass {
		return h.seen.around
	}
	return h.seen.last
}

// blamed reports whether a finding's owner may be right, and what it is about.
func (h *hook) blamed(f record.Finding, c *world.Card, saw time.Duration) (right bool, about world.Stock) {
	for _, i := range h.node.Stock(c, saw) {
		listed := false
		if f.Holder != nil {
			i.Listed(saw, func(p *world.Process) { listed = listed || p.PID == f.Holder.PID })
		}
		if f.Holder != nil && listed || f.Holder == nil && i.Unlisted {
			about = append(about, i)
		}
	}
	for _, i := range about {
		for _, j := range h.node.Blamable(i.Chunk) {
			if j.ID == f.Owner.Job || f.Owner.Job == 0 && f.Owner.SLUID == j.SLUID || doubted(f, j) {
				return true, about
			}
		}
	}
	return false, about
}

// doubted reports that a finding says itself that it may be that job's.
func doubted(f record.Finding, j *world.Job) bool {
	return slices.ContainsFunc(f.Doubts, func(doubt string) bool {
		return slices.ContainsFunc([]slurm.JobID{j.ID, j.Het}, func(id slurm.JobID) bool {
			return strings.Contains(doubt, fmt.Sprintf("job %d could own ", id))
		})
	})
}
