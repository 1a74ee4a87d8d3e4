package probe

import (
	"slices"
	"time"

	"bookend/internal/backend"
	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// The time of a test: 160-240 ms a GPU to start the library, up to 380 ms for one alone (measured), and room.
const (
	testBase = 700 * time.Millisecond
	testCard = 250 * time.Millisecond
	// testLock is the longest wait for a hook that judges the GPUs: it holds the locks only for unexplained memory.
	testLock = 300 * time.Millisecond
	// testGrace is what a process that is attaching a GPU may take to die: 1-3 s were reported for the whole.
	testGrace = time.Second
)

// tester makes test allocations for a hook. MIG instances are never tested.
type tester struct {
	a      *node.Access
	rule   gpu.ProbeRule
	until  time.Duration // for all processes together
	stuck  bool          // a backend could not be killed, so no other is started
	faults []record.Finding
}

// test tests GPUs as far as time allows, and returns the result or the reason for each. known are the processes that
// belong to the node.
func test(a *node.Access, turn judge.Turn, cards []record.Assigned, known []int) (
	tested []judge.TestResult, skipped []gpu.Probe, faults []record.Finding,
) {
	t, n, why := tester{a: a}, 0, ""
	switch {
	case turn != judge.First:
		why = "whether another hook of this job is at work could not be told"
	default:
		empty, err := a.Store.Turns.NoMPS()
		if err != nil {
			t.faults = node.Fault(err)
			why = "no empty directory in the state"
			break
		}
		t.rule = gpu.ProbeRule{Gap: uint64(a.Config.Probe.Gap), Known: known, LockWait: testLock, Empty: empty}
		n, why = t.room(len(cards)), "no time left"
		tested = t.run(cards[:n])
	}
	for _, c := range cards[n:] {
		skipped = append(skipped, judge.SkippedTest(c.Device.ID, why))
	}
	return tested, skipped, t.faults
}

func (t *tester) now() time.Duration { return t.a.Env.Clock.Boot() }

// budget returns the time left for tests; in a prolog they are part of the driver's time.
func (t *tester) budget() time.Duration {
	left := t.a.Left(t.a.Times.Probe)
	if t.a.Phase == slurm.Prolog {
		left = min(left, t.a.Deadline.Start+time.Duration(t.a.Times.Driver)-t.now())
	}
	return left
}

func (t *tester) room(cards int) int { return max(0, min(cards, int((t.budget()-testBase)/testCard))) }

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
		outcomes = append(outcomes, o)
	}
	return outcomes
}

func (t *tester) allocate(devices []gpu.Device) (all []gpu.Probe) {
	last, faults := t.a.Ended()
	t.stuck, t.faults = t.stuck || last.Abandoned != nil, append(t.faults, faults...)
	left := t.until - t.now()
	var answer backend.Answer
	if left >= testBase && !t.stuck && len(devices) > 0 { // an earlier process may have used it up
		// A killed test may take a while to die, and an abandoned one makes every hook blind until it has ended.
		grace := min(testGrace, t.a.Deadline.Left(left+testGrace, t.a.Reserve())-left)
		request := protocol.Request{
			Op: protocol.Probe, Devices: devices, DeadlineMillis: left.Milliseconds(), Probe: t.rule,
		}
		var program string
		program, request.Options = t.a.Config.BackendOf(gpu.VendorOf(devices[0]).Name, true)
		request.Probe.Locks = map[gpu.ID]string{}
		for _, d := range devices {
			request.Probe.Locks[d.ID] = t.a.Store.Turns.ProbeLock(d.ID)
		}
		answer = backend.Ask(backend.Params{Path: program, Root: t.a.Env.EUID == 0, Grace: grace}, request)
		t.stuck = answer.Abandoned != nil
		t.faults = append(t.faults, t.a.Troubles(answer, "the test allocation: ")...)
	}
	for _, d := range devices {
		i := slices.IndexFunc(answer.Probes, func(p gpu.Probe) bool { return p.Device == d.ID })
		switch {
		case i >= 0:
			all = append(all, answer.Probes[i])
		case left < testBase:
			all = append(all, judge.SkippedTest(d.ID, "no time left"))
		default:
			all = append(all, t.unanswered(d.ID, answer))
		}
	}
	return all
}

// unanswered returns the result for a GPU without an answer. A crash is as bad as an error; a hang is its own finding.
func (t *tester) unanswered(id gpu.ID, a backend.Answer) gpu.Probe {
	p := judge.SkippedTest(id, "the backend did not test it")
	p.At = t.now()
	switch {
	case t.stuck && len(a.Troubles) == 0:
		p.Why = "an earlier test is stuck in the driver"
	case len(a.Faults) > 0:
		p.Why = a.Faults[0].Detail
	case len(a.Troubles) == 0:
	case a.Troubles[0].Code == catalog.Hang:
		p.Why = "the test did not end in time: " + a.Troubles[0].Detail
	case a.Troubles[0].Code == catalog.BackendCrash:
		p.Result, p.Why = gpu.ProbeBroken, "the backend crashed in the middle of the test: "+a.Troubles[0].Detail
	default:
		p.Why = string(a.Troubles[0].Code) + ": " + a.Troubles[0].Detail
	}
	return p
}
