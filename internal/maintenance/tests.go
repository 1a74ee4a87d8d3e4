// Package maintenance acts on GPUs while no job can be affected: test allocations at a job's start and end, DCGM's
// tests, resets, the health check's repairs, and quarantines.
package maintenance

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/record"
)

// TestAtStart returns a start's case with the results of tests, made now or earlier. earlier are the tests that were on
// record when the observation began. Findings stay those of the records at the observation; the records right before a
// test only say whether it may be made.
func TestAtStart(a *node.Access, c judge.Case, j judge.Judgement, earlier map[gpu.ID]record.TestRecord) judge.Case {
	if !testable(c) {
		return untested(c)
	}
	return (&tester{a: a, starts: true}).complete(c, j, lastAtStart(a, c, earlier))
}

// TestAtEnd is TestAtStart for a job's end: it tests again what the job may have changed, and counts the others' jobs.
func TestAtEnd(a *node.Access, c judge.Case, j judge.Judgement) judge.Case {
	if !testable(c) {
		return untested(c)
	}
	return (&tester{a: a}).complete(c, j, lastAtEnd(a, c, j))
}

// complete returns the case with the results that hold, and those of the tests that may be made now.
func (t *tester) complete(c judge.Case, j judge.Judgement, l last) judge.Case {
	if judge.WhenTested(c.Config.Probe.At, c.Phase) && len(l.open) > 0 {
		read := c.Node != nil
		completed, faults := node.Complete(t.a, c) // asking about sharing may take a second, but only once
		c = completed
		now, again, more := t.recheck(c, read)
		plan := judge.TestCase{Scene: now.Whole(), Found: j.Found, InJob: c.InJob, Again: again}
		may, skipped := plan.Plan(l.open)
		t.found, t.last = j.Found, l.known
		tested, untested := t.test(c.Past.Turn, may, plan.Known(may))
		l.faults = slices.Concat(l.faults, faults, more, t.faults, keep(t.a, c.Seen, tested, l.known))
		l.outcomes = append(l.outcomes, tested...)
		for _, p := range append(skipped, untested...) {
			l.outcomes = append(l.outcomes, judge.TestResult{Probe: p})
		}
	}
	c.Tests, c.Later = l.outcomes, judge.Once(l.faults, j.Found)
	return c
}

// recheck reads stale records again right before a test. isAgain means that another hook has handled this start or end.
func (t *tester) recheck(now judge.Case, stale bool) (_ judge.Case, isAgain bool, faults []record.Finding) {
	if !now.Past.Turn.Leads() {
		return now, true, nil
	}
	if stale {
		now.Node, faults = node.Records(t.a.Store)
	}
	run, _ := t.a.Store.Find(t.a.Job)
	found, closed := run.Key != "", run.Epilog() != nil
	lost := !found && now.Past.Run.Key != ""
	if t.starts {
		return now, lost || found && !closed || run.Sure(t.a.Job), faults
	}
	return now, lost || closed, faults
}

func testable(c judge.Case) bool {
	if len(c.Seen.Cards) == 0 {
		return false
	}
	first := gpu.VendorOf(c.Seen.Cards[0].Device).Name
	another := func(d record.Assigned) bool { return gpu.VendorOf(d.Device).Name != first }
	return c.Config.Tests(first) && !slices.ContainsFunc(c.Seen.Cards, another)
}

// untested returns a case without tests, with the reason for each GPU whose test is due.
func untested(c judge.Case) judge.Case {
	for _, card := range c.Seen.Cards {
		if judge.WhenTested(c.Config.Probe.At, c.Phase) {
			c.Tests = append(c.Tests, judge.TestResult{Probe: judge.SkippedTest(card.Device.ID, gpu.NoTestOfVendor)})
		}
	}
	return c
}

// last is what earlier tests show.
type last struct {
	known    map[gpu.ID]record.TestRecord
	outcomes []judge.TestResult // those that still hold
	open     []record.Assigned  // the GPUs without one
	faults   []record.Finding
}

// lastAtStart returns the results of earlier tests that still hold, and the GPUs without one. A start that tests does
// not believe a bad result: the GPU may have been repaired since. If another hook has tested a GPU since the
// observation began, neither test is believed: the kernel's log may not have been read from there on.
func lastAtStart(a *node.Access, c judge.Case, earlier map[gpu.ID]record.TestRecord) (l last) {
	scene := c.Scene(c.Seen.Side)
	latest, faults := node.Tests(a)
	l.known, l.faults = latest, faults
	for _, card := range c.Seen.Cards {
		test, known := earlier[card.Device.ID]
		since := judge.SinceTest{At: a.Env.Clock.Boot(), Epoch: c.Seen.Epoch, Kernel: c.Seen.Kernel, Scene: scene,
			Card: card, MaxAge: judge.TestMaxAge}
		holds := latest[card.Device.ID].Probe.At == test.Probe.At && since.Trusts(test)
		switch {
		case !known, judge.WhenTested(c.Config.Probe.At, c.Phase) && (!holds || test.Probe.Result != gpu.ProbeOK):
			l.open = append(l.open, card)
		case holds:
			l.outcomes = append(l.outcomes, judge.TestResult{Probe: test.Probe, Seen: test.Seen, Earlier: test.Wall})
		default:
			skipped := judge.SkippedTest(card.Device.ID, gpu.NoTestAtStart)
			l.outcomes = append(l.outcomes, judge.TestResult{Probe: skipped})
		}
	}
	return l
}

// lastAtEnd returns the last tests that still hold at this end, each with this job counted, and the GPUs to test again.
func lastAtEnd(a *node.Access, c judge.Case, j judge.Judgement) (l last) {
	start := c.Past.Run.Start
	latest, faults := node.Tests(a)
	l.known, l.faults = latest, faults
	if start == nil || !c.Past.Turn.Leads() || c.Config.Probe.Every == 0 {
		l.open = c.Seen.Cards
		return l
	}
	scene := c.Scene(c.Seen.Side)
	var counted []record.TestRecord
	for _, card := range c.Seen.Cards {
		test := latest[card.Device.ID]
		known, _ := start.Probe(card.Device.ID)
		end := judge.AtEnd{
			SinceTest: judge.SinceTest{At: a.Env.Clock.Boot(), Epoch: c.Seen.Epoch, Kernel: c.Seen.Kernel, Scene: scene,
				Card: card, MaxAge: time.Duration(c.Config.Probe.Every)},
			Start: known, Job: c.Job.Exit, Messages: len(c.Output.Messages), Found: j.Found,
			AfterJobs: c.Config.Probe.AfterJobs,
		}
		if end.Outdates(test) {
			l.open = append(l.open, card)
			continue
		}
		test.Jobs++
		counted = append(counted, test)
		l.outcomes = append(l.outcomes, judge.TestResult{Probe: test.Probe, Seen: test.Seen, Earlier: test.Wall})
	}
	l.faults = append(l.faults, node.PutTests(a, counted...)...)
	return l
}

// keep records tests for later starts, also one without a result: it voids what was known before it, but for the last
// pattern, which says when the next is due.
func keep(a *node.Access, seen judge.Seen, tested []judge.TestResult, known map[gpu.ID]record.TestRecord,
) []record.Finding {
	var mark gpu.KernelMark
	if seen.Kernel != nil {
		mark = seen.Kernel.Last
	}
	var records []record.TestRecord
	for _, o := range tested {
		speeds := known[o.Device].Speeds.Plus(o.Pattern)
		o.Pattern = cmp.Or(o.Pattern, known[o.Device].Probe.Pattern)
		records = append(records, record.TestRecord{
			Probe: o.Probe, Epoch: seen.Epoch, Kernel: mark, Wall: a.Env.Clock.Wall().UTC(), Seen: o.Seen,
			Speeds: speeds,
		})
	}
	if len(records) == 0 || !seen.Epoch.Same(seen.Epoch) { // a partially known epoch is never trusted
		return nil
	}
	return node.PutTests(a, records...)
}
