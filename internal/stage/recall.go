package stage

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/operation"
	"bookend/internal/session"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// observe asks the driver for the job's GPUs, unless it is known to be stuck or must not be asked from here. Once the
// epoch is known, so is what counts of the past.
func observe(d *session.Driver, c judge.Case) (judge.Past, judge.Seen) {
	if !d.MayAsk() {
		return c.Past, judge.Seen{}
	}
	defer d.Leave()
	if !d.Meet() {
		return c.Past, judge.Seen{}
	}
	i := d.Inventory(c.Past.Run)
	before, found := judge.StartOf(c.Past.Run, d.Job, i.Epoch)
	d.Add(found...)
	c.Past.Before, c.Past.Baselines = before, baselines(d, i)
	side, cards := d.Look(c, i.Cards)
	return c.Past, d.Seen(i, side, cards)
}

// baselines are what the node's GPUs carry without any job.
func baselines(d *session.Driver, i session.Inventory) map[gpu.ID]finding.Baseline {
	if d.Store == nil {
		return nil
	}
	all, err := d.Store.Baselines()
	d.Try(err)
	return judge.BaselinesOf(all, i.Epoch)
}

// consult reads the node's other records where something asks for them; on clean GPUs nothing does.
func consult(d *session.Driver, c judge.Case) (*judge.Node, *judge.Sharing) {
	switch {
	case c.Asks():
		return complete(d, c)
	case c.AsksCondition():
		return readNode(d), nil
	}
	return nil, nil
}

// complete reads what has not been read yet of the node's records, and of who may share its GPUs.
func complete(d *session.Driver, c judge.Case) (*judge.Node, *judge.Sharing) {
	if c.Node == nil {
		c.Node = readNode(d)
	}
	if c.Sharing == nil {
		c.Sharing = askSharing(d)
	}
	return c.Node, c.Sharing
}

// readNode reads the records of all of the node's hooks.
func readNode(d *session.Driver) *judge.Node {
	if d.Store == nil {
		return &judge.Node{}
	}
	seen, err := d.Store.Sighted()
	d.Try(err)
	return again(d, judge.Node{Sighted: seen})
}

// again reads the node's records as they are now: jobs may have begun, or ended, meanwhile.
func again(d *session.Driver, n judge.Node) *judge.Node {
	if d.Store == nil {
		return &n
	}
	runs, damaged := d.Store.Runs()
	n.Runs = runs
	for _, damage := range damaged {
		if damage.Unread {
			n.Unread = "not all records of this node's jobs were read: another may have this GPU"
		}
		d.Add(finding.Saw(code.StateDamage, fmt.Sprintf("%s: %s", damage.Path, damage.Why), "a whole record"))
	}
	return &n
}

// askSharing says why others may use this job's GPUs legally, or why nobody can tell. Slurm's environment marks MPS
// alone: a job with a shard looks to its hooks like one with the whole GPU.
func askSharing(d *session.Driver) *judge.Sharing {
	if slices.Contains(d.Config.Slurm.SharedPartitions, d.Job.Partition) {
		return &judge.Sharing{Why: "its partition is configured as shared"}
	}
	if d.Job.MPSPercent != "" {
		return &judge.Sharing{Why: "the job shares it through MPS"}
	}
	answer := nodeSharing(d)
	switch answer.Shared {
	case slurmconf.Yes:
		return &judge.Sharing{Why: answer.Why}
	case slurmconf.No:
		return &judge.Sharing{}
	}
	return &judge.Sharing{Unknown: answer.Why}
}

func nodeSharing(d *session.Driver) slurmconf.Answer {
	limit := d.Left(operation.SharingTime, d.Reserve())
	return operation.NodeSharing(d.Config.Slurm, d.Getenv("SLURM_CONF"), d.Job.Node, limit)
}

// claim makes this hook the only one that may test for this end, or start, of its job, as long as it lives. It is
// second where another came first and has not ended: Slurm may run an epilog twice, one beside the other, and gives the
// GPU away once either has ended. Where nobody can tell it is neither that nor the sole one, and there is no test.
func claim(d *session.Driver) (second, sole bool) {
	_, err := d.Store.Claim(d.Job, d.Phase, 0)
	return errors.Is(err, state.ErrLocked), err == nil
}

// outlast keeps a hook that is not the first of its kind until the first has ended, where that may be testing: once
// this one ends the GPU may be somebody else's. The first has the earlier deadline. Then it says whether the first
// closed the run: one that died on the way has closed nothing, and this is the job's end.
func outlast(d *session.Driver, past judge.Past) judge.Past {
	if !past.Second {
		return past
	}
	wait := time.Duration(0)
	if health.WhenTested(d.Config.Probe.At, d.Phase) {
		wait = d.Left(time.Hour, d.Reserve())
	}
	if _, err := d.Store.Claim(d.Job, d.Phase, wait); err != nil {
		return past // there is nothing else to do about it
	}
	_, which, _ := d.Store.Find(d.Job)
	past.Second, past.Again = false, which == ledger.ClosedRun
	return past
}

// diagnose answers why the job ran out of memory. For an answer that somebody will read, Slurm's files and the node's
// other records are worth their time.
func diagnose(d *session.Driver, c judge.Case, j judge.Judgement, h judge.Heard) *diagnosis.Diagnosis {
	if c.Past.Again || c.Past.Second {
		return nil
	}
	in := c.Symptoms(j, h, d.Clock.Wall())
	if first := diagnosis.Why(in); first.Reason == "" && len(first.Peaks) == 0 {
		return nil
	}
	c.Node, c.Sharing = complete(d, c)
	return c.Why(in)
}

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
			Scene: now.Whole(), Found: j.Found, InJob: c.InJob, Again: again,
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
	c.Tests = judge.Tests{Outcomes: outcomes, Faults: session.Once(d.Take(), j.Found)}
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
