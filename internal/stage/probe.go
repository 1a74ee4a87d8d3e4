package stage

import (
	"bookend/internal/health"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/session"
	"bookend/internal/slurm"
)

// withTests tests the job's GPUs by an allocation where that may be. The case comes back with the results. What was found
// by the records as they were at the look stays found: as they are right before a test they only say whether there may
// be one.
func withTests(d *session.Driver, c judge.Case, j judge.Judgement, sole bool) judge.Case {
	if !tests(d) || len(c.Seen.Cards) == 0 {
		return c
	}
	now, again := recheck(d, c)
	plan := health.TestCase{
		Scene: now.Whole(), Found: j.Findings(), InJob: c.InJob, Again: again,
	}
	if c.Sharing = now.Sharing; c.Node == nil {
		c.Node = now.Node
	}
	may, skipped := plan.Plan(c.Seen.Cards)
	outcomes, more := d.Test(may, plan.Known(may), sole)
	keepTests(d, c.Seen, outcomes)
	for _, p := range append(skipped, more...) {
		outcomes = append(outcomes, health.Outcome{Probe: p})
	}
	c.Tests = judge.Tests{Outcomes: outcomes, Faults: session.Once(d.Take(), j.Findings())}
	return c
}

// tests reports whether hooks of this phase test at all.
func tests(d *session.Driver) bool { return health.WhenTested(d.Config.Probe.At, d.Phase) }

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

// keepTests records tests, for an admin to see.
func keepTests(d *session.Driver, seen judge.Seen, tested []health.Outcome) {
	var records []health.TestRecord
	for _, o := range tested {
		records = append(records, health.TestRecord{Probe: o.Probe, Epoch: seen.Epoch, Wall: d.Clock.Wall(), Seen: o.Seen})
	}
	if len(records) > 0 && seen.Epoch.Same(seen.Epoch) { // of one half known nobody could say whether it still holds
		d.Try(d.Store.PutProbes(records...))
	}
}
