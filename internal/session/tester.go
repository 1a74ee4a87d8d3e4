package session

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

// What a test takes. Measured: 160-240 ms a card for the driver's library to initialise, nearly all of the whole, up to
// 380 ms for one alone; the rest is room for a busy machine.
const (
	testBase = 700 * time.Millisecond
	testCard = 250 * time.Millisecond
	// testLock is the longest wait for whoever is judging the cards: a hook looks for a second or two, but holds
	// the locks only once something on them is unexplained.
	testLock = 300 * time.Millisecond
	// testGrace is what a process that is attaching a card may take to die: 1-3 s were reported for the whole.
	testGrace = time.Second
)

// tester makes test allocations for a hook.
type tester struct {
	*Driver
	rule  gpu.ProbeRule
	stuck bool // a backend could not be killed: no other is started
}

// Test has GPUs tested, as far as there is time, and says of each what came of it. Sole says that no other hook is at
// work on the same end, or start, of the job; known are the processes that belong to the node.
func (d *Driver) Test(cards []finding.Card, known []int, sole bool) (tested []health.Outcome, skipped []gpu.Probe) {
	t := tester{Driver: d}
	if why := t.prepare(cards, known, sole); why != "" {
		return nil, AllSkipped(cards, why)
	}
	n := t.room(cards)
	return t.run(cards[:n]), AllSkipped(cards[n:], "no time left")
}

// AllSkipped is the answer for GPUs that are not tested.
func AllSkipped(cards []finding.Card, why string) (all []gpu.Probe) {
	for _, c := range cards {
		all = append(all, health.SkippedTest(c.Device.ID, why))
	}
	return all
}

// prepare makes the rule of the tests, or says why there can be none.
func (t *tester) prepare(cards []finding.Card, known []int, sole bool) (why string) {
	if len(cards) == 0 {
		return ""
	}
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
	t.rule = gpu.ProbeRule{
		Gap: uint64(t.Config.Probe.Gap), Known: known, Locks: map[gpu.ID]string{}, LockWait: testLock, Empty: empty,
	}
	for _, c := range cards {
		t.rule.Locks[c.Device.ID] = t.Store.ProbeLock(c.Device.ID)
	}
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

// room is how many of the cards there is time for: whole ones share a process, each MIG instance has its own.
func (t *tester) room(cards []finding.Card) int {
	left, began := t.budget(), false
	for i, c := range cards {
		left -= testCard
		if instance := c.Device.Parent != ""; instance || !began {
			left -= testBase
			began = began || !instance
		}
		if left < 0 {
			return i
		}
	}
	return len(cards)
}

// run tests whole cards in one process and each MIG instance in one of its own, then lets a second process look, one
// card at a time, at what the first could not do: only what two saw may be called broken for certain.
func (t *tester) run(cards []finding.Card) []health.Outcome {
	var whole []gpu.Device
	first := map[gpu.ID]gpu.Probe{}
	until := t.Clock.Boot() + t.budget() // for all processes together
	for _, c := range cards {
		if c.Device.Parent == "" {
			whole = append(whole, c.Device)
			continue
		}
		first[c.Device.ID] = t.allocate([]gpu.Device{c.Device}, until)[c.Device.ID]
	}
	for id, p := range t.allocate(whole, until) {
		first[id] = p
	}
	var outcomes []health.Outcome
	for _, c := range cards {
		o := health.Outcome{Probe: first[c.Device.ID], Seen: 1}
		if o.Retry(len(whole) > 1) && until-t.Clock.Boot() >= testBase+testCard {
			o = o.Again(t.allocate([]gpu.Device{c.Device}, until)[c.Device.ID])
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// allocate has devices tested by one process, and answers for each.
func (t *tester) allocate(devices []gpu.Device, until time.Duration) map[gpu.ID]gpu.Probe {
	out := map[gpu.ID]gpu.Probe{}
	if len(devices) == 0 {
		return out
	}
	left := until - t.Clock.Boot()
	if left < testBase { // an earlier process took it
		for _, d := range devices {
			out[d.ID] = health.SkippedTest(d.ID, "no time left")
		}
		return out
	}
	var answer backend.Answer
	if !t.stuck {
		params := backend.Params{Path: t.Config.Backend, Root: t.EUID == 0, Grace: t.grace(left)}
		answer = backend.Ask(params, t.testRequest(devices, left))
	}
	t.failures(answer)
	for _, d := range devices {
		i := slices.IndexFunc(answer.Probes, func(p gpu.Probe) bool { return p.Device == d.ID })
		if i >= 0 {
			out[d.ID] = answer.Probes[i]
			continue
		}
		out[d.ID] = t.unanswered(d.ID, answer)
	}
	return out
}

// grace is how long a test may take to die that was killed: a start of CUDA that is slow in the driver cannot be
// interrupted, and one that is given up makes every hook of the node blind until it has ended.
func (t *tester) grace(timeout time.Duration) time.Duration {
	return min(testGrace, t.Left(timeout+testGrace, t.Reserve())-timeout)
}

func (t *tester) testRequest(devices []gpu.Device, timeout time.Duration) wire.Request {
	r := wire.Request{
		Bookend: wire.Version, Op: wire.Probe, Devices: devices, DeadlineMillis: timeout.Milliseconds(),
		Probe: t.rule, Options: t.Config.NVIDIA.ForTests(),
	}
	r.Probe.Locks = map[gpu.ID]string{}
	for _, d := range devices {
		r.Probe.Locks[d.ID] = t.rule.Locks[d.ID]
	}
	return r
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
