package stage

import (
	"time"

	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/probe"
	"bookend/internal/session"
	"bookend/internal/slurm"
)

// test tests the job's GPUs by an allocation where that may be, and at a start takes an earlier test's word where that
// still holds. The records are read again right before a test.
func (r *record) test(d *session.Driver, earlier map[gpu.ID]probe.Record, sole bool) {
	if probe.At(d.Config.Probe, d.Job.Partition) == config.ProbeNever || len(r.Seen.Cards) == 0 {
		return
	}
	outcomes, open := r.trusted(d, earlier)
	if r.tests() && len(open) > 0 {
		again := r.recheck(d)
		plan := probe.Case{
			Scene: r.Whole(), Found: r.Findings(), InJob: r.InJob, Again: again, MIG: d.Config.Probe.MIG,
		}
		may, skipped := plan.Plan(open)
		tested, more := d.Test(may, plan.Known(may), sole)
		keepTests(d, r.Seen, tested)
		outcomes = append(outcomes, tested...)
		for _, p := range append(skipped, more...) {
			outcomes = append(outcomes, probe.Outcome{Probe: p})
		}
	}
	r.Tests = judge.Tests{Outcomes: outcomes, Faults: session.Once(d.Take(), r.Findings())}
}

// tests reports whether hooks of this phase test at all.
func (r *record) tests() bool { return probe.When(r.Config.Probe, r.Phase, r.Job.Partition) }

// earlierTests are what earlier hooks found out by tests, for a start.
func earlierTests(d *session.Driver) map[gpu.ID]probe.Record {
	if d.Store == nil || probe.At(d.Config.Probe, d.Job.Partition) == config.ProbeNever {
		return nil
	}
	records, err := d.Store.Probes()
	d.Try(err)
	return records
}

// since is from where on a start has to read the kernel's log: before the oldest test that it may trust, nil where there
// is none.
func since(tested map[gpu.ID]probe.Record, d *session.Driver) (mark *gpu.KernelMark) {
	oldest := d.Clock.Boot() - time.Duration(d.Config.Probe.MaxAge)
	for _, t := range tested {
		if t.Probe.At >= oldest && t.Kernel != (gpu.KernelMark{}) && (mark == nil || t.Kernel.Seq < mark.Seq) {
			mark = &t.Kernel
		}
	}
	return mark
}

// trusted returns what earlier tests say of the GPUs, and the GPUs of which none does. A start that tests believes no
// bad news: it may have been repaired since.
func (r *record) trusted(d *session.Driver, earlier map[gpu.ID]probe.Record) (outcomes []probe.Outcome, open []finding.Card) {
	if r.Phase != slurm.Prolog || d.Store == nil {
		return nil, r.Seen.Cards
	}
	scene := r.Scene(r.Seen.Side)
	for _, c := range r.Seen.Cards {
		test, known := earlier[c.Device.ID]
		ok, why := test.Trusted(probe.Now{
			At: d.Clock.Boot(), Epoch: r.Seen.Epoch, MaxAge: time.Duration(d.Config.Probe.MaxAge),
			Kernel: r.Seen.Kernel, Scene: scene, Card: c,
		})
		switch {
		case !known, r.tests() && (!ok || !test.Good()):
			open = append(open, c)
		case ok:
			outcomes = append(outcomes, probe.Outcome{Probe: test.Probe, Seen: test.Seen, Earlier: test.Wall})
		default:
			why := "none at a start (probe.at); the last one is not trusted: " + why
			outcomes = append(outcomes, probe.Outcome{Probe: probe.Skipped(c.Device.ID, why)})
		}
	}
	return outcomes, open
}

// recheck reads the records again right before a test: jobs may have begun meanwhile. It reports whether another hook was
// here for this end, or start.
func (r *record) recheck(d *session.Driver) (isAgain bool) {
	if r.Past.Again || r.Past.Second || d.Store == nil {
		r.complete(d)
		return r.Past.Again || r.Past.Second
	}
	if r.Sharing == nil { // may take a second, and is known from now on
		r.Sharing = askSharing(d)
	}
	if r.Node == nil {
		r.Node = readNode(d)
	} else {
		r.Node = again(d, *r.Node)
	}
	run, which, _ := d.Store.Find(d.Job)
	lost := which == ledger.NoRun && r.Past.Run.Key != ""
	began := r.Phase == slurm.Prolog && (which == ledger.OpenRun || run.Sure(d.Job))
	return lost || began || which == ledger.ClosedRun && r.Phase == slurm.Epilog
}

// keepTests records tests for later starts. One that was tried and came to nothing is recorded too: nobody trusts it, nor
// what was known before it.
func keepTests(d *session.Driver, seen judge.Seen, tested []probe.Outcome) {
	var mark gpu.KernelMark
	if seen.Kernel != nil {
		mark = seen.Kernel.Last
	}
	var records []probe.Record
	for _, o := range tested {
		records = append(records, probe.Record{Probe: o.Probe, Epoch: seen.Epoch, Kernel: mark, Wall: d.Clock.Wall(), Seen: o.Seen})
	}
	if len(records) > 0 && seen.Epoch.Same(seen.Epoch) { // one half known could be trusted by nobody
		d.Try(d.Store.PutProbes(records...))
	}
}
