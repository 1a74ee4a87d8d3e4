package settle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

const (
	card gpu.ID    = "GPU-0"
	bus  gpu.BusID = "0000:1b:00.0"
	mib            = 1 << 20
	gib            = 1 << 30
)

// A rule's short times make what takes seconds fit; long is one that Max does not end.
var (
	idle      = gpu.WatchRule{Max: 6 * time.Second, Flat: 3500 * time.Millisecond, SlackBytes: 32 * mib}
	shortFlat = rule(6*time.Second, time.Second)
	long      = rule(time.Minute, 3500*time.Millisecond)
)

func rule(maximum, flat time.Duration) gpu.WatchRule {
	r := idle
	r.Max, r.Flat = maximum, flat
	return r
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

// at is one look at the GPU, so many milliseconds after the first.
func at(ms int, used uint64, processes ...gpu.Process) gpu.Snapshot {
	return gpu.Snapshot{
		At: time.Hour + time.Duration(ms)*time.Millisecond,
		Readings: []gpu.Reading{{
			Device: gpu.Device{ID: card}, Memory: gpu.Memory{Used: gpu.Bytes(used)}, Processes: processes,
		}},
	}
}

func process(pid int, bytes uint64) gpu.Process {
	return gpu.Process{PID: pid, Memory: gpu.Bytes(bytes), Kinds: []gpu.Kind{gpu.Compute}}
}

func one(samples ...gpu.Snapshot) []gpu.Snapshot { return samples }

// change returns the look with its reading changed.
func change(s gpu.Snapshot, edits ...func(*gpu.Reading)) gpu.Snapshot {
	for _, edit := range edits {
		edit(&s.Readings[0])
	}
	return s
}

func without(ms int, faults ...gpu.Fault) gpu.Snapshot {
	return gpu.Snapshot{At: at(ms, 0).At, Faults: faults}
}

func noMemory(r *gpu.Reading) { r.Memory.Used = gpu.Unknown("not supported") }

func noList(r *gpu.Reading) { r.Processes, r.ProcessesUnknown = nil, "not trusted" }

// every makes a look at each of these times; none stands for a look a second, five times.
func every(sample func(ms int) gpu.Snapshot, times ...int) (samples []gpu.Snapshot) {
	if len(times) == 0 {
		times = []int{0, 1000, 2000, 3000, 4000}
	}
	for _, ms := range times {
		samples = append(samples, sample(ms))
	}
	return samples
}

// scheduled repeats one state at the times of the schedule for d.
func scheduled(d time.Duration, sample func(ms int) gpu.Snapshot) (samples []gpu.Snapshot) {
	for t := time.Duration(0); t <= d; t += Pause(len(samples)) {
		samples = append(samples, sample(int(t.Milliseconds())))
	}
	return samples
}

// What a series of looks amounts to: its state, since when, why it is unknown, and whether watching may end.
func TestJudge(t *testing.T) {
	orphan := func(ms int) gpu.Snapshot { return at(ms, 20992*mib, process(12, 20983*mib)) }
	exported := func(ms int) gpu.Snapshot { return at(ms, 20*gib) }
	fault := func(f gpu.Fault) func(int) gpu.Snapshot {
		return func(ms int) gpu.Snapshot { return without(ms, f) }
	}
	named := func(id gpu.ID, bus gpu.BusID) func(int) gpu.Snapshot {
		return fault(gpu.Fault{Code: gpu.FaultLost, Device: id, BusID: bus, Detail: "lost"})
	}
	lost := named(card, "")
	broken := fault(gpu.Fault{Code: gpu.FaultDriver, Device: card, Detail: "unknown error"})
	unread := func(ms int) gpu.Snapshot {
		s := change(at(ms, 0), noMemory, noList)
		s.Faults = lost(ms).Faults
		return s
	}
	onBus := func(ms int) gpu.Snapshot { return change(at(ms, 0), func(r *gpu.Reading) { r.Device.BusID = bus }) }
	instance := func(ms int) gpu.Snapshot {
		return change(onBus(ms), func(r *gpu.Reading) { r.Device.Parent = "GPU-1" })
	}
	// 138 GiB in one block, SIGKILL: gone after 150 ms, the dead PID listed until then.
	teardown := one(at(0, 138*gib, process(41, 137*gib)), at(100, 138*gib, process(41, 137*gib)), at(200, 0))
	// 138 GiB in 2 MiB blocks, SIGKILL: readings jump; one call blocked for 380 ms.
	jumps := one(at(0, 143*gib, process(41, 143*gib)), at(480, gib/2, process(41, gib/2)),
		at(580, 143*gib, process(41, 143*gib)), at(680, 0))
	// DataLoader workers notice after about 3 s that their parent is gone.
	workers := append(scheduled(2800*time.Millisecond, func(ms int) gpu.Snapshot {
		return at(ms, 8704*mib, process(77, 8695*mib))
	}), at(3600, 0))
	byID, byBus, byBoth := gpu.Device{ID: card}, gpu.Device{BusID: bus}, gpu.Device{ID: card, BusID: bus}
	const unseen = "unknown device missing from the look"
	for name, tt := range map[string]struct {
		rule    gpu.WatchRule
		device  gpu.Device
		samples []gpu.Snapshot
		want    string
	}{
		"idle":               {idle, byID, one(at(0, 0)), "clean done"},
		"within slack":       {idle, byID, one(at(0, 32*mib-1)), "clean done"},
		"as much as slack":   {idle, byID, one(at(0, 32*mib)), "moving"},
		"no memory, one pid": {idle, byID, one(at(0, 0, process(3, 0))), "moving"},
		"expected":           {expect(5*gib, 7), byID, one(at(0, 5*gib, process(7, 5*gib))), "clean done"},
		"expected, by bus id": {expect(5*gib, 7), byBus, one(change(at(0, 5*gib, process(7, 5*gib)),
			func(r *gpu.Reading) { r.Device.BusID = bus })), "clean done"},
		"expected has gone":  {expect(5*gib, 7), byID, one(at(0, 0)), "clean done"},
		"expected has grown": {expect(5*gib, 7), byID, one(at(0, 6*gib, process(7, 6*gib))), "moving"},
		"another process":    {expect(5*gib, 7), byID, one(at(0, 5*gib, process(8, 5*gib))), "moving"},
		"nothing at all":     {idle, byID, nil, "unknown never looked at"},

		"teardown, second look": {idle, byID, teardown[:2], "moving"},
		"teardown":              {idle, byID, teardown, "clean since 200ms done"},
		"jumps, at the bottom":  {idle, byID, jumps[:2], "moving since 480ms"},
		"jumps, up again":       {idle, byID, jumps[:3], "moving since 580ms"},
		"jumps":                 {idle, byID, jumps, "clean since 680ms done"},
		"workers, before":       {idle, byID, workers[:len(workers)-1], "moving"},
		"workers":               {idle, byID, workers, "clean since 3.6s done"},
		"clean twice":           {idle, byID, append(slices.Clone(teardown), at(400, 0)), "clean since 200ms done"},

		"orphan":                  {idle, byID, scheduled(5*time.Second, orphan), "flat done"},
		"orphan, early":           {idle, byID, scheduled(3*time.Second, orphan), "moving"},
		"orphan after a teardown": {idle, byID, append(one(at(-1000, 30*gib)), every(orphan)...), "flat since 1s done"},
		// What nobody saw is no observation.
		"orphan, one look":             {rule(time.Second, 0), byID, every(orphan, 0), "moving"},
		"orphan, two looks":            {idle, byID, every(orphan, 0, 4000), "moving"},
		"orphan, two looks close by":   {shortFlat, byID, every(orphan, 0, 1000), "moving"},
		"orphan, three looks":          {shortFlat, byID, every(orphan, 0, 500, 1000), "flat done"},
		"orphan, a stalled call":       {idle, byID, every(orphan, 0, 100, 200, 400, 3600), "moving"},
		"orphan, longest gaps":         {idle, byID, every(orphan, 0, 1500, 3000, 4500), "flat done"},
		"orphan, longer gaps":          {idle, byID, every(orphan, 0, 1501, 3002, 4503), "moving"},
		"orphan, suspended in between": {idle, byID, every(orphan, 0, 1000, 2000, 9000), "moving done"},
		"orphan, watched again": {long, byID, every(orphan, 0, 1000, 2000, 9000, 10_000, 11_000, 12_000, 13_000),
			"flat done"},
		"orphan, flat before a stall": {long, byID, every(orphan, 0, 1000, 2000, 3000, 4000, 8000), "flat done"},
		"stamps that go back":         {idle, byID, every(orphan, 5000, 0), "moving"},
		"orphan that lost a page": {idle, byID, append(every(orphan, 0, 1000, 2000),
			at(3000, 20990*mib, process(12, 20983*mib)), at(4000, 20990*mib, process(12, 20983*mib))), "flat done"},
		"orphan that lost two pages": {idle, byID, one(orphan(0), at(3600, 20988*mib, process(12, 20983*mib))),
			"moving since 3.6s"},
		"another pid, same memory": {idle, byID, one(orphan(0), at(3600, 20992*mib, process(13, 20983*mib))),
			"moving since 3.6s"},
		"shrinking steadily": {idle, byID, scheduled(5*time.Second,
			func(ms int) gpu.Snapshot { return at(ms, gib-uint64(ms)*mib/100) }), "moving since 4.6s"},
		"exported handle":        {idle, byID, scheduled(4*time.Second, exported), "flat done"},
		"changing until the end": {idle, byID, one(exported(0), at(6000, gib)), "moving since 6s done"},

		"lost":                       {idle, byID, every(lost, 0), "unknown lost"},
		"lost for long":              {idle, byID, every(lost), "unknown lost done"},
		"lost, two looks":            {idle, byID, every(lost, 0, 4000), "unknown lost"},
		"lost, first in its reading": {idle, byID, append(every(unread, 0), every(lost)[1:]...), "unknown lost done"},
		"lost, after another fault":  {idle, byID, append(every(broken)[:3], every(lost)[3:]...), "unknown since 3s lost"},
		"lost once":                  {idle, byID, one(lost(0), at(100, 0)), "clean since 100ms done"},
		"lost once, with an orphan":  {idle, byID, append(every(lost, 0), every(orphan)[1:3]...), "moving since 1s"},
		"missing from the last look": {idle, byID, append(scheduled(4*time.Second, orphan), without(4700)),
			"unknown since 4.7s device missing from the look"},
		"missing from a look between": {idle, byID, one(orphan(0), without(2000), orphan(3800)), "moving since 3.8s"},
		"memory unknown":              {idle, byID, one(change(at(0, 0), noMemory)), "unknown memory: not supported"},
		"memory unknown, an orphan": {idle, byID, every(func(ms int) gpu.Snapshot { return change(orphan(ms), noMemory) }),
			"flat done"},
		"memory unknown in between": {idle, byID, one(orphan(0), change(orphan(1000), noMemory), orphan(3500)),
			"moving since 3.5s"},
		"list unknown, memory clean": {idle, byID, one(change(at(0, 0), noList)), "unknown processes: not trusted"},
		"list unknown, memory used":  {idle, byID, one(change(at(0, gib), noList)), "moving"},

		// A GPU may be known by its bus id alone, and its faults may be: it counts all the same.
		"bus id, fault with bus id":      {idle, byBus, every(named("", bus)), "unknown lost done"},
		"bus id, fault with both":        {idle, byBus, every(named(card, bus)), "unknown lost done"},
		"both, fault with bus id":        {idle, byBoth, every(named("", bus)), "unknown lost done"},
		"both, fault of another there":   {idle, byBoth, every(named("MIG-1", bus), 0), unseen},
		"id, fault with both":            {idle, byID, every(named(card, bus)), "unknown lost done"},
		"id, fault of another":           {idle, byID, every(named("GPU-1", ""), 0), unseen},
		"id, fault without a name":       {idle, byID, every(named("", ""), 0), unseen},
		"no name, fault without a name":  {idle, gpu.Device{}, every(named("", "")), "unknown lost done"},
		"no name, fault of some device":  {idle, gpu.Device{}, every(lost, 0), unseen},
		"no name is no device's reading": {idle, gpu.Device{}, one(at(0, 0)), unseen},
		"bus id, reading":                {idle, byBus, every(onBus, 0), "clean done"},
		"bus id, an instance's reading":  {idle, byBus, every(instance, 0), unseen},
	} {
		curve := JudgeDevice(tt.rule, tt.device, tt.samples)
		got := string(curve.State)
		if curve.Settled > 0 {
			got += " since " + curve.Settled.String()
		}
		if curve.Why != "" {
			got += " " + curve.Why
		}
		if Done(tt.rule, []gpu.Device{tt.device}, tt.samples) {
			got += " done"
		}
		if got != tt.want || curve.Looks != len(tt.samples) || (curve.Why == "") != (curve.State != record.Unreadable) {
			t.Errorf("%s: got %q, want %q: %+v", name, got, tt.want, curve)
		}
		if curve.State == record.Flat && !curve.Steady || curve.State == record.Moving && curve.Steady {
			t.Errorf("%s: %s, steady %v", name, curve.State, curve.Steady)
		}
	}
}

func TestDoneWaitsForEveryDevice(t *testing.T) {
	samples := one(at(0, 0))
	other := gpu.Reading{Device: gpu.Device{ID: "GPU-1"}, Memory: gpu.Memory{Used: gpu.Bytes(gib)}}
	samples[0].Readings = append(samples[0].Readings, other)
	for want, devices := range map[bool][]gpu.Device{false: {{ID: card}, {ID: "GPU-1"}}, true: {{ID: card}}} {
		if got := Done(idle, devices, samples); got != want {
			t.Errorf("%d devices of which one is clean: got %v, want %v", len(devices), got, want)
		}
	}
	if !Done(idle, nil, samples) {
		t.Error("not done although there is nothing to wait for")
	}
}

// Whatever begins early enough in a watch of the default length is seen often enough to be called flat.
func TestScheduleFitsTheDefaults(t *testing.T) {
	var when []time.Duration
	for n, sum := 1, time.Duration(0); n <= 8; n++ {
		sum += Pause(n)
		when = append(when, sum/time.Millisecond)
	}
	if want := []time.Duration{100, 200, 400, 800, 1600, 2600, 3600, 4600}; !slices.Equal(when, want) {
		t.Errorf("looks at %v ms, want %v", when, want)
	}
	for _, times := range []config.SettleTimes{config.Default().Settle.Prolog, config.Default().Settle.Epilog} {
		rule := rule(time.Duration(times.Max), time.Duration(times.Flat))
		samples := scheduled(rule.Max, func(ms int) gpu.Snapshot { return at(ms, gib) })
		samples = append(samples, at(int(rule.Max.Milliseconds()), gib)) // the last look falls on Max
		flat := 0
		for ; span(samples[flat:]) >= rule.Flat; flat++ {
			if got := JudgeDevice(rule, gpu.Device{ID: card}, samples[flat:]); got.State != record.Flat {
				t.Errorf("%v: from look %d on got %+v", times, flat, got)
			}
		}
		if flat < 4 {
			t.Errorf("%v: flat only from %d looks on", times, flat)
		}
	}
}

// What every look lists has stayed, whatever the total does, and with the least that any of them shows.
func TestStayed(t *testing.T) {
	beside := func(ms int) gpu.Snapshot { // something else moves 64 MiB at each look
		moves := uint64(ms/100%3) * 64 * mib
		return at(ms, 21*gib+moves, process(70, 20*gib), process(71, 64*mib+moves))
	}
	whole := scheduled(6*time.Second, beside)
	edited := func(edit func(*gpu.Reading)) []gpu.Snapshot {
		samples := scheduled(6*time.Second, beside)
		samples[3] = change(samples[3], edit)
		return samples
	}
	figures := func(mibs ...uint64) (samples []gpu.Snapshot) { // of one process, a look a second
		for i, n := range mibs {
			samples = append(samples, at(1000*i, 90*gib, process(70, n*mib)))
		}
		return samples
	}
	for name, tt := range map[string]struct {
		samples []gpu.Snapshot
		want    string // with what is left soon, where that is less
	}{
		"gives all of it back":        {figures(70000, 60000, 45000, 30000, 15000, 9000, 1000), "70:1000<0"},
		"gives back evenly":           {figures(40000, 37000, 34000, 31000, 28000, 25000, 22000), "70:22000<7000"},
		"gives back at the end":       {figures(70000, 70000, 70000, 70000, 70000, 70000, 69300), "70:69300<68925"},
		"gives back a page a look":    {figures(9018, 9015, 9012, 9009, 9006, 9003, 9000), "70:9000<8985"},
		"goes up and down":            {figures(9004, 9000, 9004, 9000, 9004, 9000, 9004), "70:9000"},
		"takes more":                  {figures(1000, 2000, 3000, 4000, 5000, 6000, 7000), "70:1000"},
		"varies by a page":            {figures(1002, 1002, 1000, 1002, 1000, 1002, 1000), "70:1000<998"},
		"takes it again":              {figures(1000, 1000, 500, 500, 1000, 1000, 1000), "70:500"},
		"beside something that moves": {whole, "70:20480 71:64"},
		"shorter than the flat time":  {scheduled(3*time.Second, beside), ""},
		"not in one look":             {edited(func(r *gpu.Reading) { r.Processes = r.Processes[1:] }), "71:64"},
		"less in one look": {edited(func(r *gpu.Reading) { r.Processes[0] = process(70, 300*mib) }),
			"70:300 71:64"},
		"no figure in one look": {edited(func(r *gpu.Reading) {
			r.Processes = []gpu.Process{{PID: 70, Memory: gpu.Unknown("not available")}}
		}), "70:?"},
		"a list that is not trusted": {edited(noList), ""},
		"two looks":                  {every(beside, 0, 4000), ""},
		"no look":                    {nil, ""},
		"a long gap":                 {every(beside, 0, 100, 200, 4000, 4100, 4200), ""},
	} {
		var got []string
		for _, p := range Stayed(idle, gpu.Device{ID: card}, tt.samples) {
			one := fmt.Sprintf("%d:%d", p.PID, p.Memory.Bytes/mib)
			if !p.Memory.Known() {
				one = fmt.Sprintf("%d:?", p.PID)
			}
			if p.Memory.Known() && p.Soon < p.Memory.Bytes {
				one += fmt.Sprintf("<%d", p.Soon/mib)
			}
			got = append(got, one)
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
