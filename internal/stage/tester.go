package stage

import (
	"slices"
	"time"

	"bookend/internal/backend"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/slurm"
	"bookend/internal/wire"
)

// What a test takes. Measured: 160-240 ms a GPU for the driver's library to initialise, nearly all of the whole, up to
// 380 ms for one alone; the rest is room for a busy machine.
const (
	testBase = 700 * time.Millisecond
	testCard = 250 * time.Millisecond
	// testLock is the longest wait for whoever is judging the GPUs: a hook looks for a second or two, but holds
	// the locks only once something on them is unexplained.
	testLock = 300 * time.Millisecond
	// testGrace is what a process that is attaching a GPU may take to die: 1-3 s were reported for the whole.
	testGrace = time.Second
)

// tester makes test allocations for a hook. Of MIG instances nobody asks for one.
type tester struct {
	*Driver
	rule  gpu.ProbeRule
	until time.Duration // for all processes together
	stuck bool          // a backend could not be killed: no other is started
}

// Test has GPUs tested, as far as there is time, and says of each what came of it. Sole says that no other hook is at
// work on the same end, or start, of the job; known are the processes that belong to the node.
func (d *Driver) Test(cards []finding.Card, known []int, sole bool) (tested []health.Outcome, skipped []gpu.Probe) {
	t := tester{Driver: d}
	why, n := t.prepare(known, sole), 0
	if why == "" {
		n, why = t.room(len(cards)), "no time left"
		tested = t.run(cards[:n])
	}
	for _, c := range cards[n:] {
		skipped = append(skipped, health.SkippedTest(c.Device.ID, why))
	}
	return tested, skipped
}

// prepare makes the rule of the tests, or says why there can be none.
func (t *tester) prepare(known []int, sole bool) (why string) {
	if t.Store == nil {
		return "no state to lock the GPUs in"
	}
	if !sole {
		return "whether another hook of this job is at work could not be told"
	}
	empty, err := t.Store.NoMPS()
	if err != nil {
		t.Try(err)
		return "no empty directory in the state"
	}
	t.rule = gpu.ProbeRule{Gap: uint64(t.Config.Probe.Gap), Known: known, LockWait: testLock, Empty: empty}
	return ""
}

// budget is what is left for tests; in a prolog they are part of the driver's time.
func (t *tester) budget() time.Duration {
	left := t.Left(time.Duration(t.Times.Probe), t.Reserve())
	if t.Phase == slurm.Prolog {
		left = min(left, t.Start+time.Duration(t.Times.Driver)-t.Clock.Boot())
	}
	return left
}

// room is how many of the GPUs there is time for.
func (t *tester) room(cards int) int { return max(0, min(cards, int((t.budget()-testBase)/testCard))) }

// run tests the GPUs in one process, then lets a second process look, one GPU at a time, at what the first could not
// do: only what two saw may be called broken for certain.
func (t *tester) run(cards []finding.Card) (outcomes []health.Outcome) {
	t.until = t.Clock.Boot() + t.budget()
	all := make([]gpu.Device, len(cards))
	for i, c := range cards {
		all[i] = c.Device
	}
	for i, p := range t.allocate(all) {
		o := health.Outcome{Probe: p, Seen: 1}
		if o.Retry(len(cards) > 1) && t.until-t.Clock.Boot() >= testBase+testCard {
			o = o.Again(t.allocate(all[i : i+1])[0])
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// allocate has devices tested by one process, and answers for each.
func (t *tester) allocate(devices []gpu.Device) (all []gpu.Probe) {
	left := t.until - t.Clock.Boot()
	var answer backend.Answer
	if left >= testBase && !t.stuck && len(devices) > 0 { // an earlier process may have taken it
		// A killed test may take a while to die: a start of CUDA that is slow in the driver cannot be interrupted, and
		// one that is given up makes every hook of the node blind until it has ended.
		grace := min(testGrace, t.Left(left+testGrace, t.Reserve())-left)
		request := wire.Request{
			Op: wire.Probe, Devices: devices, DeadlineMillis: left.Milliseconds(), Probe: t.rule,
			Options: t.Config.NVIDIA.ForTests(),
		}
		request.Probe.Locks = map[gpu.ID]string{}
		for _, d := range devices {
			request.Probe.Locks[d.ID] = t.Store.ProbeLock(d.ID)
		}
		answer = backend.Ask(backend.Params{Path: t.Config.Backend, Root: t.EUID == 0, Grace: grace}, request)
		t.failures(answer)
	}
	for _, d := range devices {
		i := slices.IndexFunc(answer.Probes, func(p gpu.Probe) bool { return p.Device == d.ID })
		switch {
		case i >= 0:
			all = append(all, answer.Probes[i])
		case left < testBase:
			all = append(all, health.SkippedTest(d.ID, "no time left"))
		default:
			all = append(all, t.unanswered(d.ID, answer))
		}
	}
	return all
}

// failures makes findings of what went wrong with the backend, and says in what.
func (t *tester) failures(a backend.Answer) {
	const in = "the test allocation: "
	t.stuck = t.stuck || a.Abandoned != nil
	a.Troubles, a.Faults = slices.Clone(a.Troubles), slices.Clone(a.Faults)
	for i := range a.Troubles {
		a.Troubles[i].Detail = in + a.Troubles[i].Detail
	}
	for i := range a.Faults {
		a.Faults[i].Detail = in + a.Faults[i].Detail
	}
	t.Add(t.troubles(a)...)
}

// unanswered is what is said of a device of which the backend came to no end. A crash is as bad as an error: programs
// may crash there as well. A hang has its own finding.
func (t *tester) unanswered(id gpu.ID, a backend.Answer) gpu.Probe {
	p := health.SkippedTest(id, "the backend did not test it")
	p.At = t.Clock.Boot()
	switch {
	case t.stuck && len(a.Troubles) == 0:
		p.Why = "an earlier test is stuck in the driver"
	case len(a.Faults) > 0:
		p.Why = a.Faults[0].Detail
	case len(a.Troubles) == 0:
	case a.Troubles[0].Code == code.Hang:
		p.Why = "the test did not end in time: " + a.Troubles[0].Detail
	case a.Troubles[0].Code == code.BackendCrash:
		p.Result, p.Why = gpu.ProbeBroken, "the backend crashed in the middle of the test: "+a.Troubles[0].Detail
	default:
		p.Why = string(a.Troubles[0].Code) + ": " + a.Troubles[0].Detail
	}
	return p
}
