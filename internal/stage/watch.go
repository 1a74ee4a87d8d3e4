package stage

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/backend"
	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/procscan"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// Look samples GPUs until they settle, with the help of what is known so far.
func (d *Driver) Look(cards []record.Assigned) (record.Side, []record.Assigned) {
	return d.lookBeside(cards, gpu.Snapshot{})
}

func (d *Driver) lookBeside(cards []record.Assigned, others gpu.Snapshot) (record.Side, []record.Assigned) {
	order := d.Order(cards, d.Settle)
	order.Neighbours = others
	return judge.Observe(d, order)
}

// LookCloser watches some of the GPUs of a glance until they settle: a health check's second target.
func (d *Driver) LookCloser(cards []record.Assigned) judge.Residue {
	others := d.Seen.Side.Snapshot
	others.Readings = slices.DeleteFunc(slices.Clone(others.Readings), func(r gpu.Reading) bool {
		return slices.ContainsFunc(cards, func(card record.Assigned) bool { return card.Device.ID == r.Device.ID })
	})
	side, cards := d.lookBeside(cards, others)
	return judge.Residue{Cards: cards, Side: side}
}

// Glance samples every GPU of the node once and reads which processes are on them: a health check's first target.
func (d *Driver) Glance() {
	answer := d.askBackend(d.snapshot(d.Left(time.Duration(d.Times.Driver), d.Reserve()), true))
	d.Seen.Health = answer.Health
	if n := len(answer.Snapshots); n > 0 {
		d.Seen.Side.Snapshot = answer.Snapshots[n-1]
	}
	d.Seen.Cards = withReadings(d.Seen.Cards, d.Seen.Side.Snapshot)
	if len(d.Seen.Side.Snapshot.Readings) > 0 {
		d.Seen.Side = judge.Glance(d, d.Seen.Side.Snapshot)
	}
}

func (d *Driver) snapshot(timeout time.Duration, health bool) protocol.Request {
	return protocol.Request{
		Op: protocol.Snapshot, All: true, DeadlineMillis: timeout.Milliseconds(), Health: health,
	}
}

// Watch asks the backend to sample GPUs as long as the rule says, or the hook's time allows.
func (d *Driver) Watch(cards []record.Assigned, rule gpu.WatchRule) []gpu.Snapshot {
	answer, asked := d.ahead.of(cards, rule)
	d.ahead = nil
	if !asked {
		asks := answer.Abandoned == nil && !answer.Unasked
		if len(cards) == 0 && asks {
			return nil
		}
		answer.Snapshots = nil
		if asks {
			answer = d.ask(d.watching(cards, rule), backend.Params{})
		}
	}
	d.take(answer)
	if answer.Health != nil && len(answer.Snapshots) > 0 {
		d.Seen.Health = answer.Health
	}
	return answer.Snapshots
}

// watching returns the request. The first one of an end also asks for the GPUs' condition.
func (d *Driver) watching(cards []record.Assigned, rule gpu.WatchRule) protocol.Request {
	timeout := d.Left(time.Duration(d.Times.Driver), d.Reserve())
	r := within(protocol.Request{Op: protocol.Watch, DeadlineMillis: timeout.Milliseconds(), Watch: rule}, timeout)
	for _, c := range cards {
		r.Devices = append(r.Devices, c.Device)
	}
	if d.Seen.Looks == 0 && d.Phase != slurm.Prolog {
		r.Health, r.Brief = true, d.brief()
		d.briefly = d.briefly || r.Brief
	}
	return fitting(r)
}

// brief reports that the GPUs' slow facts can be skipped: the job ended well, and a health check read them recently.
func (d *Driver) brief() bool {
	const lately = 10 * time.Minute
	exit := d.Job.Exit
	if d.Store == nil || !exit.Known || exit.Raw != 0 || exit.Derived != 0 {
		return false
	}
	at, now := d.Store.Examined(), d.Clock.Boot()
	return at > 0 && at <= now && now-at < lately
}

// backendReserve is for one last sample after Max: attaching was reported to take 1-3 s, a call in teardown 0.4 s.
const backendReserve = 500 * time.Millisecond

// fitting leaves out what a full pipe has no room for: the backend then watches longer; the result is judged here.
func fitting(r protocol.Request) protocol.Request {
	if _, err := r.Line(); err != nil {
		r.Watch.Expect = nil
	}
	return r
}

// Processes returns what /proc shows of the PIDs; without PIDs it reads nothing.
func (d *Driver) Processes(pids []int) map[int]record.Process {
	out := map[int]record.Process{}
	for _, pid := range pids {
		out[pid] = record.Process{PID: pid, Why: "not looked up"}
	}
	if len(pids) == 0 {
		return out
	}
	var read procscan.Result
	reader, err := d.procReader(procscan.ProcessesOp, d.Left(time.Duration(d.Times.Scan), d.Reserve()))
	if err == nil {
		read, err = reader.Processes(pids)
	}
	_ = d.readerEnded(procscan.ProcessesOp, err, read.Hung)
	for _, p := range read.Processes {
		out[p.PID] = p
	}
	return out
}

// Holders searches /proc in a child. It first waits until this hook's own backend, which has the GPUs open, has ended.
func (d *Driver) Holders(then time.Duration) *record.Scan {
	d.ended()
	var found procscan.Result
	timeout := d.Left(time.Duration(d.Times.Scan), d.Reserve()+then+backendReserve)
	reader, err := d.procReader(procscan.HoldersOp, timeout)
	if err == nil {
		found, err = reader.Holders()
	}
	if err := d.readerEnded(procscan.HoldersOp, err, found.Hung); err != nil {
		return &record.Scan{Partial: err.Error()}
	}
	found.Scan.Holdings = slices.DeleteFunc(found.Scan.Holdings, d.isBackend)
	return &found.Scan
}

// isBackend reports root's own backend, which holds no memory. Threat: a user's program of that name has another UID.
func (d *Driver) isBackend(h record.Holding) bool {
	exe := strings.TrimSuffix(h.Exe, " (deleted)")
	real, _ := filepath.EvalSymlinks(d.Config.Backend) // the path that the kernel shows
	return h.UID == 0 && !h.Cgroup.Found() && exe != "" && (exe == d.Config.Backend || exe == real)
}

// Quiet keeps probes off the GPUs while they are judged: the memory of a probe must never look like a leak.
func (d *Driver) Quiet(cards []record.Assigned) (busy map[gpu.ID]string, release func()) {
	var ids []gpu.ID
	for _, c := range cards {
		ids = append(ids, c.Device.ID)
	}
	const longest = 1500 * time.Millisecond // a probe takes 160-240 ms a GPU, in parallel on four 1.2 s (measured)
	return d.Store.Quiet(ids, d.Left(longest, d.Reserve()))
}

// Glance is the result of one sample of every GPU of the node.
type Glance struct {
	Snapshot gpu.Snapshot
	Who      map[int]record.Process
	Version  string // the backend's
	Took     time.Duration
	// why the sample is incomplete, with the backend's code or the driver's; what was read before counts
	Problem string
	// Stuck is the backend that could not be killed, nil for none: no other may be started while it lives.
	Stuck *state.Stuck
}

// Look asks the driver once about every GPU of the node, and reads which processes are on them: for the command line.
func Look(env child.Env, cfg config.Config, timeout time.Duration) Glance {
	d := New(env, "")
	d.Config, d.Times = cfg, cfg.Deadlines.Epilog
	d.Limit(time.Duration(d.Times.Total))
	answer := d.ask(d.snapshot(timeout, false), backend.Params{})
	g := Glance{Took: answer.Took}
	if n := len(answer.Snapshots); n > 0 {
		g.Snapshot = answer.Snapshots[n-1]
	}
	if answer.Hello != nil {
		g.Version = answer.Hello.Version
	}
	if a := answer.Abandoned; a != nil {
		g.Stuck = &state.Stuck{PID: a.PID, StartTicks: a.StartTicks, Since: env.Clock.Boot(), Op: backendOp}
	}
	g.Who = judge.Glance(d, g.Snapshot).Processes
	switch {
	case len(answer.Troubles) > 0:
		g.Problem = fmt.Sprintf("%s: %s", answer.Troubles[0].Code, answer.Troubles[0].Detail)
	case len(answer.Faults) > 0:
		g.Problem = fmt.Sprintf("%s: %s", answer.Faults[0].Code, answer.Faults[0].Detail)
	}
	return g
}

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
	*Driver
	rule  gpu.ProbeRule
	until time.Duration // for all processes together
	stuck bool          // a backend could not be killed, so no other is started
}

// Test tests GPUs as far as time allows, and returns the result or the reason for each. sole means that no other hook
// works on the same start or end of the job; known are the processes that belong to the node.
func (d *Driver) Test(cards []record.Assigned, known []int, sole bool) (
	tested []judge.TestResult, skipped []gpu.Probe,
) {
	t, n, why := tester{Driver: d}, 0, ""
	switch {
	case !sole:
		why = "whether another hook of this job is at work could not be told"
	default:
		empty, err := d.Store.NoMPS()
		if err != nil {
			d.Try(err)
			why = "no empty directory in the state"
			break
		}
		t.rule = gpu.ProbeRule{Gap: uint64(d.Config.Probe.Gap), Known: known, LockWait: testLock, Empty: empty}
		n, why = t.room(len(cards)), "no time left"
		tested = t.run(cards[:n])
	}
	for _, c := range cards[n:] {
		skipped = append(skipped, judge.SkippedTest(c.Device.ID, why))
	}
	return tested, skipped
}

// budget returns the time left for tests; in a prolog they are part of the driver's time.
func (t *tester) budget() time.Duration {
	left := t.Left(time.Duration(t.Times.Probe), t.Reserve())
	if t.Phase == slurm.Prolog {
		left = min(left, t.Start+time.Duration(t.Times.Driver)-t.Clock.Boot())
	}
	return left
}

func (t *tester) room(cards int) int { return max(0, min(cards, int((t.budget()-testBase)/testCard))) }

// run tests the GPUs in one process, and those that failed again one by one: two processes prove a GPU broken.
func (t *tester) run(cards []record.Assigned) (outcomes []judge.TestResult) {
	t.until = t.Clock.Boot() + t.budget()
	all := make([]gpu.Device, len(cards))
	for i, c := range cards {
		all[i] = c.Device
	}
	for i, p := range t.allocate(all) {
		o := judge.TestResult{Probe: p, Seen: 1}
		if o.Retry(len(cards) > 1) && t.until-t.Clock.Boot() >= testBase+testCard {
			o = o.Again(t.allocate(all[i : i+1])[0])
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

func (t *tester) allocate(devices []gpu.Device) (all []gpu.Probe) {
	t.stuck = t.stuck || t.ended().Abandoned != nil
	left := t.until - t.Clock.Boot()
	var answer backend.Answer
	if left >= testBase && !t.stuck && len(devices) > 0 { // an earlier process may have used it up
		// A killed test may take a while to die, and an abandoned one makes every hook blind until it has ended.
		grace := min(testGrace, t.Left(left+testGrace, t.Reserve())-left)
		request := protocol.Request{
			Op: protocol.Probe, Devices: devices, DeadlineMillis: left.Milliseconds(), Probe: t.rule,
		}
		var program string
		program, request.Options = t.Config.BackendOf(gpu.VendorOf(devices[0]).Name, true)
		request.Probe.Locks = map[gpu.ID]string{}
		for _, d := range devices {
			request.Probe.Locks[d.ID] = t.Store.ProbeLock(d.ID)
		}
		answer = backend.Ask(backend.Params{Path: program, Root: t.EUID == 0, Grace: grace}, request)
		t.stuck = answer.Abandoned != nil
		t.Add(t.troubles(answer, "the test allocation: ")...)
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
	p.At = t.Clock.Boot()
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
