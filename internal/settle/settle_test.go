package settle

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"bookend/internal/gpu"
)

const (
	card gpu.ID = "GPU-0"
	mib         = 1 << 20
	gib         = 1 << 30
)

var idle = gpu.WatchRule{Max: 6 * time.Second, Flat: 3500 * time.Millisecond, SlackBytes: 32 * mib}

// at is one look at the card, so many milliseconds after the first.
func at(ms int, used uint64, processes ...gpu.Process) gpu.Snapshot {
	return gpu.Snapshot{
		At: time.Hour + time.Duration(ms)*time.Millisecond,
		Readings: []gpu.Reading{{
			Device:    gpu.Device{ID: card},
			Memory:    gpu.Memory{Used: gpu.Bytes(used)},
			Processes: processes,
		}},
	}
}

func process(pid int, bytes uint64) gpu.Process {
	return gpu.Process{PID: pid, Memory: gpu.Bytes(bytes), Kinds: []gpu.Kind{gpu.Compute}}
}

// change returns the look with its reading changed.
func change(s gpu.Snapshot, f func(*gpu.Reading)) gpu.Snapshot {
	f(&s.Readings[0])
	return s
}

func without(s gpu.Snapshot, faults ...gpu.Fault) gpu.Snapshot {
	s.Readings, s.Faults = nil, faults
	return s
}

func reserved(r *gpu.Reading) { r.Memory.UsedHasReserved = true }

func noMemory(r *gpu.Reading) { r.Memory.Used = gpu.Unknown("not supported") }

func noList(r *gpu.Reading) { r.Processes, r.ProcessesUnknown = nil, "not trusted" }

func judge(rule gpu.WatchRule, id gpu.ID, looks []gpu.Snapshot) Curve {
	return JudgeDevice(rule, gpu.Device{ID: id}, looks)
}

func expect(used uint64, pids ...int) gpu.WatchRule {
	rule := idle
	want := gpu.Expected{Bytes: used}
	for _, pid := range pids {
		want.Processes = append(want.Processes, gpu.ExpectedProcess{PID: pid})
	}
	rule.Expect = map[gpu.ID]gpu.Expected{card: want}
	return rule
}

func rule(maximum, flat time.Duration) gpu.WatchRule {
	r := idle
	r.Max, r.Flat = maximum, flat
	return r
}

var shortFlat, long = rule(6*time.Second, time.Second), rule(time.Minute, 3500*time.Millisecond)

// constant repeats one state at the times of the schedule for d.
func constant(d time.Duration, look func(ms int) gpu.Snapshot) []gpu.Snapshot {
	var looks []gpu.Snapshot
	for t := time.Duration(0); t <= d; t += Pause(len(looks)) {
		looks = append(looks, look(int(t.Milliseconds())))
	}
	return looks
}

// then adds looks, one a second, that begin a second after the last of those before.
func then(looks []gpu.Snapshot, n int, look func(ms int) gpu.Snapshot) []gpu.Snapshot {
	looks = slices.Clone(looks)
	for range n {
		ms := 0
		if len(looks) > 0 {
			ms = int((looks[len(looks)-1].At - time.Hour).Milliseconds()) + 1000
		}
		looks = append(looks, look(ms))
	}
	return looks
}

// every makes a look at each of these times.
func every(look func(ms int) gpu.Snapshot, times ...int) []gpu.Snapshot {
	var looks []gpu.Snapshot
	for _, ms := range times {
		looks = append(looks, look(ms))
	}
	return looks
}

var (
	// 138 GiB in one block, SIGKILL: gone after 150 ms, the dead PID listed until then.
	teardown = []gpu.Snapshot{at(0, 138*gib, process(41, 138*gib-9*mib)), at(100, 138*gib, process(41, 138*gib-9*mib)),
		at(200, 0)}
	// 138 GiB in 2 MiB blocks, SIGKILL: readings jump; one call blocked for 380 ms.
	jumps = []gpu.Snapshot{
		at(0, 143*gib, process(41, 143*gib)), at(480, gib/2, process(41, gib/2)),
		at(580, 143*gib, process(41, 143*gib)), at(680, 0),
	}
	// DataLoader workers notice after about 3 s that their parent is gone.
	workers = append(constant(2800*time.Millisecond, func(ms int) gpu.Snapshot {
		return at(ms, 8704*mib, process(77, 8695*mib))
	}), at(3600, 0))
)

func TestJudge(t *testing.T) {
	orphan := func(ms int) gpu.Snapshot { return at(ms, 20992*mib, process(12, 20983*mib)) }
	exported := func(ms int) gpu.Snapshot { return at(ms, 20*gib) }
	lost := func(ms int) gpu.Snapshot {
		return without(at(ms, 0), gpu.Fault{Code: gpu.FaultLost, Device: card, Detail: "GPU is lost"})
	}
	broken := func(ms int) gpu.Snapshot {
		return without(at(ms, 0), gpu.Fault{Code: gpu.FaultDriver, Device: card, Detail: "unknown error"})
	}
	lostInReading := func(ms int) gpu.Snapshot {
		s := change(change(at(ms, 0), noMemory), noList)
		s.Faults = []gpu.Fault{{Code: gpu.FaultLost, Device: card, Detail: "GPU is lost"}}
		return s
	}
	unreadable := func(ms int) gpu.Snapshot { return change(orphan(ms), noMemory) }
	oldOrphan := func(ms int) gpu.Snapshot { return change(orphan(ms), reserved) }
	old := func(ms int) gpu.Snapshot { return change(at(ms, 615*mib), reserved) }
	tests := map[string]struct {
		rule    gpu.WatchRule
		looks   []gpu.Snapshot
		state   State
		why     string
		settled time.Duration
		done    bool
	}{
		"idle": {idle, []gpu.Snapshot{at(0, 0)}, Clean, "", 0, true},
		// A handful of MiB without a process is slack, not a leak.
		"within slack":       {idle, []gpu.Snapshot{at(0, 32*mib-1)}, Clean, "", 0, true},
		"as much as slack":   {idle, []gpu.Snapshot{at(0, 32*mib)}, Moving, "", 0, false},
		"above slack":        {idle, []gpu.Snapshot{at(0, 32*mib+1)}, Moving, "", 0, false},
		"no memory, one pid": {idle, []gpu.Snapshot{at(0, 0, process(3, 0))}, Moving, "", 0, false},
		"expected":           {expect(5*gib, 7), []gpu.Snapshot{at(0, 5*gib, process(7, 5*gib))}, Clean, "", 0, true},
		"expected has gone":  {expect(5*gib, 7), []gpu.Snapshot{at(0, 0)}, Clean, "", 0, true},
		"expected has grown": {expect(5*gib, 7), []gpu.Snapshot{at(0, 6*gib, process(7, 6*gib))}, Moving, "", 0, false},
		"another process":    {expect(5*gib, 7), []gpu.Snapshot{at(0, 5*gib, process(8, 5*gib))}, Moving, "", 0, false},
		"nothing at all":     {idle, nil, Unknown, "never looked at", 0, false},

		"teardown, first look":  {idle, teardown[:1], Moving, "", 0, false},
		"teardown, second look": {idle, teardown[:2], Moving, "", 0, false},
		"teardown":              {idle, teardown, Clean, "", 200 * time.Millisecond, true},
		"jumps, at the bottom":  {idle, jumps[:2], Moving, "", 480 * time.Millisecond, false},
		"jumps, up again":       {idle, jumps[:3], Moving, "", 580 * time.Millisecond, false},
		"jumps":                 {idle, jumps, Clean, "", 680 * time.Millisecond, true},
		"workers, before":       {idle, workers[:len(workers)-1], Moving, "", 0, false},
		"workers":               {idle, workers, Clean, "", 3600 * time.Millisecond, true},
		"clean twice": {idle, append(slices.Clone(teardown), at(400, 0)), Clean, "",
			200 * time.Millisecond, true},

		"orphan":        {idle, constant(5*time.Second, orphan), Flat, "", 0, true},
		"orphan, early": {idle, constant(3*time.Second, orphan), Moving, "", 0, false},
		"orphan after a teardown": {idle, then([]gpu.Snapshot{at(0, 30*gib, process(12, 30*gib))}, 5, orphan),
			Flat, "", time.Second, true},
		// What nobody saw is no observation.
		"orphan, two looks":            {idle, every(orphan, 0, 4000), Moving, "", 0, false},
		"orphan, two looks close by":   {shortFlat, every(orphan, 0, 1000), Moving, "", 0, false},
		"orphan, three looks":          {shortFlat, every(orphan, 0, 500, 1000), Flat, "", 0, true},
		"orphan, a stalled call":       {idle, every(orphan, 0, 100, 200, 400, 3600), Moving, "", 0, false},
		"orphan, longest gaps":         {idle, every(orphan, 0, 1500, 3000, 4500), Flat, "", 0, true},
		"orphan, longer gaps":          {idle, every(orphan, 0, 1501, 3002, 4503), Moving, "", 0, false},
		"orphan, suspended in between": {idle, every(orphan, 0, 1000, 2000, 9000), Moving, "", 0, true},
		"orphan, watched again": {long, every(orphan, 0, 1000, 2000, 9000, 10_000, 11_000, 12_000, 13_000), Flat,
			"", 0, true},
		"orphan, flat before a stall": {long, every(orphan, 0, 1000, 2000, 3000, 4000, 8000), Flat, "", 0, true},
		"orphan that lost a page": {idle, then(every(orphan, 0, 1000, 2000), 2,
			func(ms int) gpu.Snapshot { return at(ms, 20990*mib, process(12, 20983*mib)) }), Flat, "", 0, true},
		"orphan that lost two pages": {idle, []gpu.Snapshot{orphan(0), at(3600, 20988*mib, process(12, 20983*mib))},
			Moving, "", 3600 * time.Millisecond, false},
		"another pid, same memory": {idle, []gpu.Snapshot{orphan(0), at(3600, 20992*mib, process(13, 20983*mib))},
			Moving, "", 3600 * time.Millisecond, false},
		"shrinking steadily": {idle,
			constant(5*time.Second, func(ms int) gpu.Snapshot { return at(ms, gib-uint64(ms)*mib/100) }),
			Moving, "", 4600 * time.Millisecond, false},
		"exported handle":        {idle, constant(4*time.Second, exported), Flat, "", 0, true},
		"changing until the end": {idle, []gpu.Snapshot{exported(0), at(6000, gib)}, Moving, "", 6 * time.Second, true},

		"lost":                       {idle, []gpu.Snapshot{lost(0)}, Unknown, "GPU is lost", 0, false},
		"lost for long":              {idle, then(nil, 5, lost), Unknown, "GPU is lost", 0, true},
		"lost, two looks":            {idle, every(lost, 0, 4000), Unknown, "GPU is lost", 0, false},
		"lost, first in its reading": {idle, then(every(lostInReading, 0), 4, lost), Unknown, "GPU is lost", 0, true},
		"lost, after another fault": {idle, then(then(nil, 3, broken), 2, lost), Unknown, "GPU is lost",
			3 * time.Second, false},
		"lost once": {idle, []gpu.Snapshot{lost(0), at(100, 0)}, Clean, "", 100 * time.Millisecond,
			true},
		"lost once, with an orphan": {idle, then(every(lost, 0), 2, orphan), Moving, "", time.Second, false},
		"missing from the last look": {idle, append(constant(4*time.Second, orphan), without(at(4700, 0))),
			Unknown, "device missing from the look", 4700 * time.Millisecond, false},
		"missing from a look between": {idle, []gpu.Snapshot{orphan(0), without(at(2000, 0)), orphan(3800)},
			Moving, "", 3800 * time.Millisecond, false},
		"memory unknown": {idle, []gpu.Snapshot{change(at(0, 0), noMemory)}, Unknown,
			"memory: not supported", 0, false},
		"memory unknown, a process": {idle, []gpu.Snapshot{change(orphan(0), noMemory)}, Moving, "", 0, false},
		"memory unknown, an orphan": {idle, then(nil, 5, unreadable), Flat, "", 0, true},
		"memory unknown in between": {idle, []gpu.Snapshot{orphan(0), change(orphan(1000), noMemory), orphan(3500)},
			Moving, "", 3500 * time.Millisecond, false},
		"list unknown, memory clean": {idle, []gpu.Snapshot{change(at(0, 0), noList)}, Unknown,
			"processes: not trusted", 0, false},
		"list unknown, memory used": {idle, []gpu.Snapshot{change(at(0, gib), noList)}, Moving, "", 0, false},

		"old driver, idle":    {idle, []gpu.Snapshot{old(0)}, Unknown, "memory: the driver counts", 0, true},
		"old driver, process": {idle, []gpu.Snapshot{change(orphan(0), reserved)}, Moving, "", 0, false},
		"old driver, orphan":  {idle, then(nil, 5, oldOrphan), Flat, "", 0, true},
		"old driver, compared with a start": {expect(615 * mib), []gpu.Snapshot{old(0)},
			Clean, "", 0, true},
		"old driver, more than at the start": {expect(615 * mib), []gpu.Snapshot{change(at(0, 700*mib), reserved)},
			Moving, "", 0, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := judge(tt.rule, card, tt.looks)
			if got.State != tt.state || got.Settled != tt.settled || got.Looks != len(tt.looks) {
				t.Errorf("got %+v, want %s settled after %v in %d looks", got, tt.state, tt.settled, len(tt.looks))
			}
			if !strings.HasPrefix(got.Why, tt.why) || (got.Why == "") != (got.State != Unknown) {
				t.Errorf("got why %q, want %q", got.Why, tt.why)
			}
			if got.State == Flat && !got.Steady || got.State == Moving && got.Steady {
				t.Errorf("%s, steady %v", got.State, got.Steady)
			}
			if done := Done(tt.rule, []gpu.Device{{ID: card}}, tt.looks); done != tt.done {
				t.Errorf("got done %v, want %v", done, tt.done)
			}
		})
	}
}

func TestDoneWaitsForEveryDevice(t *testing.T) {
	looks := []gpu.Snapshot{at(0, 0)}
	other := gpu.Reading{Device: gpu.Device{ID: "GPU-1"}, Memory: gpu.Memory{Used: gpu.Bytes(gib)}}
	looks[0].Readings = append(looks[0].Readings, other)
	if Done(idle, []gpu.Device{{ID: card}, {ID: "GPU-1"}}, looks) {
		t.Error("done while GPU-1 is neither clean nor flat")
	}
	if !Done(idle, []gpu.Device{{ID: card}}, looks) {
		t.Error("not done although the only device asked for is clean")
	}
	if !Done(idle, nil, looks) {
		t.Error("not done although there is nothing to wait for")
	}
}

func TestStampsThatGoBackAreNotTime(t *testing.T) {
	looks := []gpu.Snapshot{at(5000, gib), at(0, gib)}
	if got := judge(idle, card, looks); got.State != Moving || got.Span != 0 || got.Settled != 0 {
		t.Errorf("got %+v", got)
	}
}

// randomLooks makes looks out of few values, so that equal and clean ones are frequent.
func randomLooks(seed uint64) []gpu.Snapshot {
	r := rand.New(rand.NewPCG(seed, 0))
	looks := make([]gpu.Snapshot, 1+r.IntN(12))
	ms := 0
	for i := range looks {
		s := at(ms, []uint64{0, 0, mib, gib, 2 * gib}[r.IntN(5)])
		for pid := range r.IntN(3) {
			s.Readings[0].Processes = append(s.Readings[0].Processes, process(pid+1, uint64(r.IntN(2))*gib))
		}
		for _, f := range []func(*gpu.Reading){reserved, noMemory, noList} {
			if r.IntN(8) == 0 {
				s = change(s, f)
			}
		}
		if r.IntN(8) == 0 {
			s = without(s)
		}
		if i > 0 && r.IntN(4) > 0 { // long equal runs
			s.Readings = looks[i-1].Readings
		}
		looks[i] = s
		ms += r.IntN(2000)
	}
	return looks
}

// dirtyOrUnread says it in other words than the code under test: is there any reason not to call it clean?
func dirtyOrUnread(s gpu.Snapshot) bool {
	r, ok := s.Reading(card)
	m := r.Memory
	return !ok || len(r.Processes) > 0 || r.ProcessesUnknown != "" || !m.Used.Known() || m.UsedHasReserved ||
		m.Used.Bytes > idle.SlackBytes
}

func TestCleanExactlyWhenTheLastLookIs(t *testing.T) {
	property := func(seed uint64) bool {
		looks := randomLooks(seed)
		dirty := dirtyOrUnread(looks[len(looks)-1])
		return (judge(idle, card, looks).State == Clean) == !dirty
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
}

func TestEqualLooksKeepFlat(t *testing.T) {
	flat := 0
	property := func(seed uint64, later uint16) bool {
		looks := randomLooks(seed)
		if judge(idle, card, looks).State != Flat {
			return true
		}
		flat++
		again := looks[len(looks)-1]
		again.At += time.Duration(later) * time.Millisecond
		return judge(idle, card, append(looks, again)).State == Flat
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
	if flat == 0 {
		t.Error("no random series was flat: the property was not tested")
	}
}

func TestFlatIsNeverOneLook(t *testing.T) {
	if got := judge(rule(time.Second, 0), card, []gpu.Snapshot{at(0, gib)}); got.State != Moving {
		t.Errorf("got %s after one look", got.State)
	}
}

// BenchmarkJudge judges the longest watch of a crowded device: 20 looks, 64 processes that never change.
func BenchmarkJudge(b *testing.B) {
	var processes []gpu.Process
	for pid := range 64 {
		processes = append(processes, process(pid+1, gib))
	}
	looks := constant(15*time.Second, func(ms int) gpu.Snapshot { return at(ms, 65*gib, processes...) })
	b.ReportAllocs()
	for b.Loop() {
		if judge(idle, card, looks).State != Flat {
			b.Fatal("not flat")
		}
	}
}
