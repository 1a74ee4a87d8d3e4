package main

import (
	"fmt"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/record"
	samples "bookend/internal/recorder"
	"bookend/test/soak/world"
)

// recorder samples the world between the ends of its jobs, as often as it was drawn; 0 is never.
type recorder struct {
	every time.Duration
	kept  record.Recordings
	truth map[record.Instance]*world.Job // of each process that it saw; nil for none's
	inJob map[record.Instance]bool       // those that it saw in a job's cgroup
}

// Times between two samples that are none: each pair draws its own, or has no recorder.
const (
	drawn time.Duration = 0
	never time.Duration = -1
)

// mostSampled ends the samples of a run that has no end: the story goes on as long as something is to happen.
const mostSampled = 10 * time.Minute

func (p *pair) newRecorder() recorder {
	r := recorder{kept: record.Recordings{}, truth: map[record.Instance]*world.Job{}, inJob: map[record.Instance]bool{}}
	if p.rand.IntN(5) > 0 {
		r.every = time.Duration(1+p.rand.IntN(20)) * time.Second
	}
	if every := time.Duration(p.cfg.Record.Every); every != drawn {
		r.every = max(0, every)
	}
	return r
}

// record begins to sample a run, until its record says that it is over.
func (p *pair) record(run record.Run) {
	r := &p.recorder
	if r.every == 0 {
		return
	}
	run.Key = run.NewKey()
	r.kept[run.Name()] = record.Recording{Every: r.every}
	until := p.node.Now + mostSampled
	var sample func()
	sample = func() {
		i := p.book.at(run.Job.ID, run.Key)
		if i < 0 || !p.book.runs[i].Running(p.book.runs) || p.node.Now > until {
			delete(r.kept, run.Name())
			return
		}
		look, known := p.node.Snapshot(p.node.Cards), map[int]record.Process{}
		for _, reading := range look.Readings {
			for _, listed := range reading.Processes {
				if lives := p.node.Process(listed.PID); lives != nil {
					known[listed.PID] = p.listed(lives)
					is := record.Instance{PID: lives.PID, Start: p.node.Started(lives)}
					r.truth[is], r.inJob[is] = lives.Job, r.inJob[is] || lives.Cgroup.Found()
				}
			}
		}
		recording := r.kept[run.Name()]
		samples.Sample{Look: look, Known: known, Limits: p.limits}.AddTo(&recording, run)
		r.kept[run.Name()] = recording
		p.node.After(r.every, sample)
	}
	p.node.After(r.every, sample)
}

// recordedRight judges a finding that rests on samples alone: whose process it was the world knew when it was seen.
func (h *hook) recordedRight(f record.Finding) {
	job := h.recorder.truth[record.Instance{PID: f.Holder.PID, Start: f.Holder.Start}]
	h.tally.recorded++
	if f.Code == catalog.Stray {
		if job != nil && f.Unknown == "" {
			h.fail(wrongBlame, "%s of process %d, which is job %d's", f.Code, f.Holder.PID, job.ID)
		}
		return
	}
	if job == nil || job.ID != f.Owner.Job && job.SLUID != f.Owner.SLUID {
		h.fail(wrongBlame, "%s of process %d: job %d by %s", f.Code, f.Holder.PID, f.Owner.Job, f.Owner.Level)
	}
	c := h.card(f.GPU)
	if job != nil && c != nil && f.Code == catalog.Foreign && job.Has(c) {
		h.fail(wrongBlame, "%s: job %d was given %s", f.Code, job.ID, c.Device.ID)
	}
	if f.Code == catalog.Trespass && c != nil && h.job.Has(c) {
		h.fail(wrongBlame, "%s: %s is the job's own", f.Code, fmt.Sprint(c.Device.ID))
	}
}
