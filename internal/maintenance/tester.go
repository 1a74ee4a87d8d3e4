package maintenance

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/record"
)

// The time of a test: 160-240 ms a GPU to start the library, up to 380 ms for one alone (measured), and room.
const (
	testBase = 700 * time.Millisecond
	testCard = 250 * time.Millisecond
	// testPattern is for the pattern: 0.7 to 0.9 s on 139 GiB, most of it for the context (measured), and room.
	testPattern = 1200 * time.Millisecond
	// testLock is the longest wait for a hook that judges the GPUs: it holds the locks only for unexplained memory.
	testLock = 300 * time.Millisecond
	// testGrace is what a process that is attaching a GPU may take to die: 1-3 s were reported for the whole.
	testGrace = time.Second
)

// tester makes test allocations for a hook. MIG instances are never tested.
type tester struct {
	a      *node.Access
	starts bool // for a job's start
	rule   gpu.ProbeRule
	found  []record.Finding             // by this hook so far
	last   map[gpu.ID]record.TestRecord // before this hook's
	until  time.Duration                // for all processes together
	faults []record.Finding
}

// test tests GPUs as far as time allows, and returns the result or the reason for each. known are the node's processes.
func (t *tester) test(turn judge.Turn, cards []record.Assigned, known []int) (
	tested []judge.TestResult, skipped []gpu.Probe,
) {
	n, why := 0, t.prepare(known)
	switch {
	case turn != judge.First:
		why = "whether another hook of this job is at work could not be told"
	case why == "":
		n, why = t.room(len(cards)), "no time left"
		t.rule.Pattern = t.patterns(cards[:n])
		tested = t.run(cards[:n])
	}
	for _, c := range cards[n:] {
		skipped = append(skipped, judge.SkippedTest(c.Device.ID, why))
	}
	return tested, skipped
}

// prepare sets the rule of the tests, or returns why none can be made.
func (t *tester) prepare(known []int) (why string) {
	empty, err := t.a.Store.Turns.NoMPS()
	if err != nil {
		t.faults = node.Fault(err)
		return "no empty directory in the state"
	}
	t.rule = gpu.ProbeRule{Gap: uint64(t.a.Config.Probe.Gap), Known: known, LockWait: testLock, Empty: empty}
	return ""
}

func (t *tester) now() time.Duration { return t.a.Env.Clock.Boot() }

// budget returns the time left for tests; at a start they are part of the driver's time.
func (t *tester) budget() time.Duration {
	left := t.a.Left(t.a.Times.Probe)
	if t.starts {
		left = min(left, t.a.Deadline.Start+time.Duration(t.a.Times.Driver)-t.now())
	}
	return left
}

func (t *tester) room(cards int) int { return max(0, min(cards, int((t.budget()-testBase)/testCard))) }

// patterns returns the GPUs whose memory is also to be written and read: as many as the time is enough for, those first
// for which it is longest ago. One is always asked for: the backend tests it after all allocations, if time is left.
func (t *tester) patterns(cards []record.Assigned) (due []gpu.ID) {
	if t.starts {
		return nil
	}
	last := func(id gpu.ID) gpu.Probe { return t.last[id].Probe }
	for _, c := range cards {
		if judge.PatternDue(c.Device.ID, t.found, last(c.Device.ID), time.Duration(t.a.Config.Probe.Pattern), t.now()) {
			due = append(due, c.Device.ID)
		}
	}
	at := func(id gpu.ID) time.Duration { return cmp.Or(last(id).Pattern, &gpu.Pattern{}).At }
	slices.SortStableFunc(due, func(x, y gpu.ID) int { return cmp.Compare(at(x), at(y)) })
	room := (t.budget() - testBase - time.Duration(len(cards))*testCard) / testPattern
	return due[:min(len(due), max(1, int(room)))]
}

// run tests the GPUs in one process, and those that failed again one by one: two processes prove a GPU broken.
func (t *tester) run(cards []record.Assigned) (outcomes []judge.TestResult) {
	t.until = t.now() + t.budget()
	all := make([]gpu.Device, len(cards))
	for i, c := range cards {
		all[i] = c.Device
	}
	for i, p := range t.allocate(all) {
		o := judge.TestResult{Probe: p, Seen: 1}
		if o.Retry(len(cards) > 1) && t.until-t.now() >= testBase+testCard {
			o = o.Again(t.allocate(all[i : i+1])[0])
		}
		if o.Pattern != nil {
			o.Pattern.Slow = t.last[o.Device].Speeds.Slower(*o.Pattern)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

func (t *tester) allocate(devices []gpu.Device) (all []gpu.Probe) {
	_, faults := t.a.Ended()
	t.faults = append(t.faults, faults...)
	left := t.until - t.now()
	if left < testBase || len(devices) == 0 { // an earlier process may have used it up
		for _, d := range devices {
			all = append(all, judge.SkippedTest(d.ID, "no time left"))
		}
		return all
	}
	// A killed test may take a while to die, and an abandoned one makes every hook blind until it has ended.
	grace := min(testGrace, t.a.Deadline.Left(left+testGrace, t.a.Reserve())-left)
	all, faults = t.a.Allocate(t.rule, devices, left, grace)
	t.faults = append(t.faults, faults...)
	return all
}

// TestNow tests a GPU that no job can get and that no process is on, and its memory, for an admin. It returns the
// result in words, with what else went wrong, and whether the GPU passed: unknown if it was not tested.
func TestNow(a *node.Access, card record.Assigned) (text string, passed record.Answer) {
	t := &tester{a: a}
	if why := t.prepare(nil); why != "" {
		return "not tested: " + why, record.CannotTell
	}
	t.rule.Pattern = []gpu.ID{card.Device.ID}
	earlier, more := node.Tests(a)
	t.last = earlier
	o := t.run([]record.Assigned{card})[0]
	seen := judge.Seen{Epoch: node.ReadEpoch(a.Config.Paths)}
	text = summary(card, o)
	for _, f := range slices.Concat(t.faults, more, keep(a, seen, []judge.TestResult{o}, earlier)) {
		text += fmt.Sprintf("; %s: %s", f.Code, f.Observed)
	}
	return text, passedBy(o)
}

func summary(card record.Assigned, o judge.TestResult) (text string) {
	switch o.Result {
	case gpu.ProbeSkipped:
		text = "not tested: " + o.Why
	case gpu.ProbeOK:
		text = fmt.Sprintf("ok, largest block %s of %s free", gpu.Size(o.Largest.Bytes), gpu.Size(o.Free.Bytes))
	default:
		for _, f := range slices.Backward(judge.FoundByTests([]record.Assigned{card}, []judge.TestResult{o})) {
			text = fmt.Sprintf("%s: %s", f.Code, f.Observed) // of the first
		}
	}
	if o.Pattern != nil && o.Result != gpu.ProbeWrong {
		text += "; pattern test: " + o.Pattern.Outcome()
	}
	return text
}

func passedBy(o judge.TestResult) record.Answer {
	switch {
	case o.Result == gpu.ProbeOK && o.Pattern != nil && o.Pattern.Bytes > 0:
		return record.Yes
	case o.Result == gpu.ProbeOK, o.Result == gpu.ProbeSkipped:
		return record.CannotTell
	}
	return record.No
}
