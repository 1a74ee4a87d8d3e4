package stage

import (
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/session"
	"bookend/internal/slurm"
)

// withTests tests the job's GPUs by an allocation where that may be, and at a start takes an earlier test's word where
// that still holds. The case comes back with the results. What was found by the records as they were at the look stays
// found: as they are right before a test they only say whether there may be one.
func withTests(
	d *session.Driver, c judge.Case, j judge.Judgement, earlier map[gpu.ID]health.TestRecord, sole bool,
) judge.Case {
	if d.Config.Probe.At == config.ProbeNever || len(c.Seen.Cards) == 0 {
		return c
	}
	outcomes, open := trusted(d, c, earlier)
	if tests(d) && len(open) > 0 {
		now, again := recheck(d, c)
		plan := health.TestCase{
			Scene: now.Whole(), Found: j.Findings(), InJob: c.InJob, Again: again,
		}
		if c.Sharing = now.Sharing; c.Node == nil {
			c.Node = now.Node
		}
		may, skipped := plan.Plan(open)
		tested, more := d.Test(may, plan.Known(may), sole)
		keepTests(d, c.Seen, tested)
		outcomes = append(outcomes, tested...)
		for _, p := range append(skipped, more...) {
			outcomes = append(outcomes, health.Outcome{Probe: p})
		}
	}
	c.Tests = judge.Tests{Outcomes: outcomes, Faults: session.Once(d.Take(), j.Findings())}
	return c
}

// tests reports whether hooks of this phase test at all.
func tests(d *session.Driver) bool { return health.WhenTested(d.Config.Probe.At, d.Phase) }

// earlierTests are what earlier hooks found out by tests, for a start.
func earlierTests(d *session.Driver) map[gpu.ID]health.TestRecord {
	if d.Store == nil || d.Config.Probe.At == config.ProbeNever {
		return nil
	}
	records, err := d.Store.Probes()
	d.Try(err)
	return records
}

// since is from where on a start has to read the kernel's log: before the oldest test that it may trust, nil where
// there is none.
func since(tested map[gpu.ID]health.TestRecord, d *session.Driver) (mark *gpu.KernelMark) {
	oldest := d.Clock.Boot() - health.TestMaxAge
	for _, t := range tested {
		if t.Probe.At >= oldest && t.Kernel != (gpu.KernelMark{}) && (mark == nil || t.Kernel.Seq < mark.Seq) {
			mark = &t.Kernel
		}
	}
	return mark
}

// trusted returns what earlier tests say of the GPUs, and the GPUs of which none does. A start that tests believes no
// bad news: it may have been repaired since. Of a GPU that another hook has tested since the look began neither test is
// believed: the kernel's log may not have been read from there on.
func trusted(
	d *session.Driver, c judge.Case, earlier map[gpu.ID]health.TestRecord,
) (outcomes []health.Outcome, open []finding.Card) {
	if d.Phase != slurm.Prolog || d.Store == nil {
		return nil, c.Seen.Cards
	}
	scene, latest := c.Scene(c.Seen.Side), earlierTests(d)
	for _, card := range c.Seen.Cards {
		test, known := earlier[card.Device.ID]
		ok, why := test.Trusted(health.SinceTest{
			At: d.Clock.Boot(), Epoch: c.Seen.Epoch,
			Kernel: c.Seen.Kernel, Scene: scene, Card: card,
		})
		if now := latest[card.Device.ID]; now.Probe.At != test.Probe.At {
			ok, why = false, "it was tested again meanwhile"
		}
		switch {
		case !known, tests(d) && (!ok || !test.Good()):
			open = append(open, card)
		case ok:
			outcomes = append(outcomes, health.Outcome{Probe: test.Probe, Seen: test.Seen, Earlier: test.Wall})
		default:
			why := "none at a start (probe.at); the last one is not trusted: " + why
			outcomes = append(outcomes, health.Outcome{Probe: health.SkippedTest(card.Device.ID, why)})
		}
	}
	return outcomes, open
}

// recheck reads the records again right before a test: jobs may have begun meanwhile. It reports whether another hook
// was here for this end, or start.
func recheck(d *session.Driver, c judge.Case) (now judge.Case, isAgain bool) {
	if c.Past.Again || c.Past.Second || d.Store == nil {
		c.Node, c.Sharing = complete(d, c)
		return c, c.Past.Again || c.Past.Second
	}
	known := c.Node
	c.Node, c.Sharing = complete(d, c) // sharing may take a second, and is known from now on
	if known != nil {
		c.Node = again(d, *known)
	}
	run, which, _ := d.Store.Find(d.Job)
	lost := which == ledger.NoRun && c.Past.Run.Key != ""
	began := d.Phase == slurm.Prolog && (which == ledger.OpenRun || run.Sure(d.Job))
	return c, lost || began || which == ledger.ClosedRun && d.Phase == slurm.Epilog
}

// keepTests records tests for later starts. One that was tried and came to nothing is recorded too: nobody trusts it,
// nor what was known before it.
func keepTests(d *session.Driver, seen judge.Seen, tested []health.Outcome) {
	var mark gpu.KernelMark
	if seen.Kernel != nil {
		mark = seen.Kernel.Last
	}
	var records []health.TestRecord
	for _, o := range tested {
		records = append(records, health.TestRecord{
			Probe: o.Probe, Epoch: seen.Epoch, Kernel: mark, Wall: d.Clock.Wall(), Seen: o.Seen,
		})
	}
	if len(records) > 0 && seen.Epoch.Same(seen.Epoch) { // one half known could be trusted by nobody
		d.Try(d.Store.PutProbes(records...))
	}
}
