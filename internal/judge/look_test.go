package judge

import (
	"slices"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

const (
	card = gpu.ID("GPU-0")
	gib  = uint64(1) << 30
	mib  = uint64(1) << 20
)

// eyes see a node whose state is a script: each watch takes the next series of looks.
type eyes struct {
	watches [][]gpu.Snapshot
	who     map[int]attrib.Process
	later   map[int]attrib.Process // from the second question on, where set
	scan    attrib.Scan
	busy    map[gpu.ID]string
	did     []string // in order

	neighbours *gpu.Snapshot
}

func (e *eyes) Watch([]finding.Card, gpu.WatchRule) []gpu.Snapshot {
	e.did = append(e.did, "watch")
	if len(e.watches) == 0 {
		return nil
	}
	looks := e.watches[0]
	e.watches = e.watches[1:]
	return looks
}

func (e *eyes) Neighbours() *gpu.Snapshot { return e.neighbours }

func (e *eyes) Processes(pids []int) map[int]attrib.Process {
	out := map[int]attrib.Process{}
	if len(pids) == 0 {
		return out
	}
	e.did = append(e.did, "processes")
	for _, pid := range pids {
		out[pid] = e.who[pid]
	}
	if e.later != nil {
		e.who = e.later
	}
	return out
}

func (e *eyes) Holders() *attrib.Scan {
	e.did = append(e.did, "scan")
	return &e.scan
}

func (e *eyes) Quiet([]finding.Card) (map[gpu.ID]string, func()) {
	e.did = append(e.did, "quiet")
	return e.busy, func() { e.did = append(e.did, "release") }
}

// looks are n looks at one card, a second apart, from this second on.
func looks(from, n int, used uint64, processes ...gpu.Process) []gpu.Snapshot {
	var all []gpu.Snapshot
	for i := range n {
		all = append(all, gpu.Snapshot{At: time.Duration(from+i) * time.Second, Readings: []gpu.Reading{{
			Device: gpu.Device{ID: card}, Processes: processes,
			Memory: gpu.Memory{Total: gpu.Bytes(140 * gib), Used: gpu.Bytes(used)},
		}}})
	}
	return all
}

func order() Order {
	return Order{
		Cards: []finding.Card{{Device: gpu.Device{ID: card}}},
		Rule:  gpu.WatchRule{Max: 6 * time.Second, Flat: 3500 * time.Millisecond, SlackBytes: 32 * mib},
		Limits: finding.Limits{
			Report: 32 * mib, Drain: 512 * mib, PerClient: 9 * mib,
		},
		Sure: true,
	}
}

// What each state of a card costs: a clean one no look at /proc at all, and only what nobody explains a search of it.
func TestWhatIsAsked(t *testing.T) {
	orphan := gpu.Process{PID: 70, Memory: gpu.Bytes(gib)}
	there := map[int]attrib.Process{70: {PID: 70, Start: 5}}
	gone := map[int]attrib.Process{70: {PID: 70, Gone: true}}
	for _, tt := range []struct {
		name string
		eyes eyes
		did  []string
		want settle.State
	}{
		{"clean", eyes{watches: [][]gpu.Snapshot{looks(0, 1, 0)}}, []string{"watch"}, settle.Clean},
		{"not to be seen", eyes{}, []string{"watch"}, ""},
		{"still moving", eyes{watches: [][]gpu.Snapshot{append(looks(0, 1, gib), looks(1, 1, 2*gib)...)}}, []string{"watch"}, settle.Moving},
		{"a process that explains all", eyes{who: there, watches: [][]gpu.Snapshot{looks(0, 5, gib+9*mib, orphan), looks(5, 1, gib+9*mib, orphan)}},
			[]string{"watch", "processes", "quiet", "watch", "processes", "release"}, settle.Flat},
		{"memory that nobody explains", eyes{watches: [][]gpu.Snapshot{looks(0, 5, gib), looks(5, 1, gib)}},
			[]string{"watch", "quiet", "scan", "watch", "release"}, settle.Flat},
		{"a process that is gone", eyes{who: gone, watches: [][]gpu.Snapshot{looks(0, 5, gib+9*mib, orphan), looks(5, 5, gib+9*mib, orphan)}},
			[]string{"watch", "processes", "quiet", "scan", "watch", "processes", "release"}, settle.Flat},
		{"a process that ends meanwhile", eyes{who: there, later: gone, watches: [][]gpu.Snapshot{looks(0, 5, gib+9*mib, orphan), looks(5, 1, gib+9*mib, orphan)}},
			[]string{"watch", "processes", "quiet", "watch", "processes", "release"}, settle.Moving},
		{"gone at the second look", eyes{watches: [][]gpu.Snapshot{looks(0, 5, gib), looks(5, 1, 0)}},
			[]string{"watch", "quiet", "scan", "watch", "release"}, settle.Clean},
		{"no second look", eyes{watches: [][]gpu.Snapshot{looks(0, 5, gib)}}, []string{"watch", "quiet", "scan", "watch", "release"}, settle.Moving},
		{"a probe at work", eyes{busy: map[gpu.ID]string{card: "a probe"}, watches: [][]gpu.Snapshot{looks(0, 5, gib), looks(5, 1, gib)}},
			[]string{"watch", "quiet", "scan", "watch", "release"}, settle.Unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			side, _ := Look(&tt.eyes, order())
			if got := side.Curves[card].State; got != tt.want {
				t.Errorf("state %q, want %q", got, tt.want)
			}
			if !slices.Equal(tt.eyes.did, tt.did) {
				t.Errorf("did %v, want %v", tt.eyes.did, tt.did)
			}
			if (side.Scan != nil) != slices.Contains(tt.did, "scan") {
				t.Errorf("scan %v", side.Scan)
			}
		})
	}
}

// An expected PID that is another process by now is not expected: the card is watched again without it.
func TestStrangersAreNotExpected(t *testing.T) {
	listed := gpu.Process{PID: 60, Memory: gpu.Bytes(gib)}
	for _, tt := range []struct {
		name  string
		now   attrib.Process
		known map[int]time.Duration
		want  settle.State
	}{
		{"the same process", attrib.Process{PID: 60, Start: 5}, map[int]time.Duration{60: 5}, settle.Clean},
		{"its PID was used again", attrib.Process{PID: 60, Start: 77}, map[int]time.Duration{60: 5}, settle.Flat},
		{"it is gone, its memory is not", attrib.Process{PID: 60, Gone: true}, map[int]time.Duration{60: 5}, settle.Flat},
		{"it was gone before", attrib.Process{PID: 60, Gone: true}, map[int]time.Duration{60: 0}, settle.Clean},
		{"it was gone before, with other memory", attrib.Process{PID: 60, Gone: true}, map[int]time.Duration{60: 0, 61: 2}, settle.Flat},
		{"nobody could tell then", attrib.Process{PID: 60, Start: 77}, nil, settle.Clean},
		{"nobody can tell now", attrib.Process{PID: 60, Why: "permission denied"}, map[int]time.Duration{60: 5}, settle.Clean},
	} {
		t.Run(tt.name, func(t *testing.T) {
			series := looks(0, 5, gib+9*mib, listed)
			e := &eyes{who: map[int]attrib.Process{60: tt.now}, watches: [][]gpu.Snapshot{series, series, looks(5, 5, gib+9*mib, listed)}}
			o := order()
			o.Known = tt.known
			held := gib
			if len(tt.known) > 1 {
				held = 2 * gib
			}
			o.Rule.Expect = map[gpu.ID]gpu.Expected{card: {Processes: []gpu.ExpectedProcess{{PID: 60, Bytes: held, Share: 9 * mib}}}}
			side, _ := Look(e, o)
			if got := side.Curves[card].State; got != tt.want {
				t.Errorf("state %q, want %q; did %v", got, tt.want, e.did)
			}
		})
	}
}

// A card known by its bus id alone gets its id from the first reading.
func TestIdentified(t *testing.T) {
	const bus = gpu.BusID("00000000:3b:00.0")
	series := looks(0, 1, 0)
	series[0].Readings[0].Device.BusID = bus
	o := order()
	o.Cards = []finding.Card{{Index: 2, Device: gpu.Device{BusID: bus}}}
	side, cards := Look(&eyes{watches: [][]gpu.Snapshot{series}}, o)
	if len(cards) != 1 || cards[0].Device.ID != card || cards[0].Index != 2 || side.Curves[card].State != settle.Clean {
		t.Errorf("cards %+v, curves %+v", cards, side.Curves)
	}
}

// A look may wait for the driver: who has the PID by the time that /proc is read need not be who was listed.
func TestPIDOfAYoungerProcess(t *testing.T) {
	for name, tt := range map[string]struct {
		start time.Duration
		known bool
	}{
		"older than the look":    {9 * time.Second, true},
		"started as it was read": {16 * time.Second, true},
		"younger":                {16*time.Second + attrib.Tick, false},
	} {
		e := &eyes{watches: [][]gpu.Snapshot{looks(10, 7, 2*gib, gpu.Process{PID: 70, Memory: gpu.Bytes(2 * gib)})}}
		e.who = map[int]attrib.Process{70: {PID: 70, Start: tt.start, UID: 1001}}
		side, _ := Look(e, order())
		if got := side.Processes[70]; (got.Why == "") != tt.known || got.UID == 1001 != tt.known {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Who came after the search was not looked into.
func TestMemoryAfterTheSearch(t *testing.T) {
	for name, tt := range map[string]struct {
		last    uint64
		partial bool
	}{
		"as much as then": {2 * gib, false},
		"a little more":   {2*gib + 4*mib, false},
		"less":            {gib, false},
		"more":            {3 * gib, true},
	} {
		e := &eyes{watches: [][]gpu.Snapshot{looks(10, 7, 2*gib), looks(20, 7, tt.last)}}
		side, _ := Look(e, order())
		if side.Scan == nil || (side.Scan.Partial != "") != tt.partial {
			t.Errorf("%s: %+v", name, side.Scan)
		}
	}
}

// A PID that became another's between the two questions says nothing of who is listed.
func TestPIDReusedSince(t *testing.T) {
	listed := gpu.Process{PID: 70, Memory: gpu.Bytes(2 * gib)}
	for name, tt := range map[string]struct {
		later attrib.Process
		known bool
	}{
		"the same":       {attrib.Process{PID: 70, Start: time.Second}, true},
		"gone":           {attrib.Process{PID: 70, Gone: true}, true},
		"another's":      {attrib.Process{PID: 70, Start: 18 * time.Second}, false},
		"not to be read": {attrib.Process{PID: 70, Why: "denied"}, true},
	} {
		e := &eyes{watches: [][]gpu.Snapshot{looks(10, 7, 2*gib, listed), looks(20, 7, 2*gib, listed)}}
		e.who = map[int]attrib.Process{70: {PID: 70, Start: time.Second, UID: 1001}}
		e.later = map[int]attrib.Process{70: tt.later}
		side, _ := Look(e, order())
		if got := side.Processes[70]; (got.Why == "") != tt.known {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A process that was listed on another GPU when /proc was read, and has ended since, need not be the one that the last
// look lists on this GPU: its PID may have been used again, and that process have ended too.
func TestPIDListedSince(t *testing.T) {
	listed := gpu.Process{PID: 70, Memory: gpu.Bytes(gib)}
	for name, tt := range map[string]struct {
		first, later []gpu.Process
		now          attrib.Process
		known        bool
	}{
		"listed here, and lives":    {[]gpu.Process{listed}, []gpu.Process{listed}, attrib.Process{PID: 70, Start: time.Second}, true},
		"listed here, and gone":     {[]gpu.Process{listed}, []gpu.Process{listed}, attrib.Process{PID: 70, Gone: true}, true},
		"listed there, and lives":   {nil, []gpu.Process{listed}, attrib.Process{PID: 70, Start: time.Second}, true},
		"listed there, and gone":    {nil, []gpu.Process{listed}, attrib.Process{PID: 70, Gone: true}, false},
		"listed there, and not now": {nil, nil, attrib.Process{PID: 70, Gone: true}, true},
	} {
		e := &eyes{watches: [][]gpu.Snapshot{looks(10, 7, 2*gib, tt.first...), looks(20, 7, 2*gib, tt.later...)}}
		e.neighbours = &gpu.Snapshot{At: 16 * time.Second, Readings: []gpu.Reading{{Device: gpu.Device{ID: "GPU-1"}, Processes: []gpu.Process{listed}}}}
		e.who = map[int]attrib.Process{70: {PID: 70, Start: time.Second, UID: 1001, Cgroup: slurm.Owner{ID: 7}}}
		e.later = map[int]attrib.Process{70: tt.now}
		side, _ := Look(e, order())
		if got := side.Processes[70]; (got.Why == "") != tt.known || got.Cgroup.Found() != tt.known {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A process that is listed on two GPUs, and whose PID is another's now, has ended on both.
func TestPIDReusedOnTwoGPUs(t *testing.T) {
	listed := gpu.Process{PID: 70, Memory: gpu.Bytes(2 * gib)}
	o, both := order(), [][]gpu.Snapshot{looks(10, 7, 2*gib, listed), looks(20, 7, 2*gib, listed)}
	o.Cards = append(o.Cards, finding.Card{Index: 1, Device: gpu.Device{ID: "GPU-1"}})
	for _, series := range both {
		for i := range series {
			r := series[i].Readings[0]
			r.Device.ID = "GPU-1"
			series[i].Readings = append(series[i].Readings, r)
		}
	}
	e := &eyes{watches: both, who: map[int]attrib.Process{70: {PID: 70, Start: time.Second}}}
	e.later = map[int]attrib.Process{70: {PID: 70, Start: 18 * time.Second}}
	side, _ := Look(e, o)
	for _, c := range o.Cards {
		if got := side.Curves[c.Device.ID].State; got != settle.Moving {
			t.Errorf("%s: %s", c.Device.ID, got)
		}
	}
}

// With whoever had the driver open, memory that nobody is listed for may go.
func TestHolderEndsMeanwhile(t *testing.T) {
	for name, tt := range map[string]struct {
		minors []int
		used   uint64
		want   settle.State
	}{
		"on the driver alone":                {nil, 2 * gib, settle.Flat},
		"on this card":                       {[]int{3}, 2 * gib, settle.Flat},
		"on another card":                    {[]int{1}, 2 * gib, settle.Flat},
		"it has ended, on the driver alone":  {nil, 2 * gib, settle.Moving},
		"it has ended, on this card":         {[]int{3}, 2 * gib, settle.Moving},
		"it has ended, on another card":      {[]int{1}, 2 * gib, settle.Moving},
		"it has ended, and nothing is there": {[]int{1}, 0, settle.Clean},
	} {
		minor, holder := 3, attrib.Process{PID: 70, Start: 5}
		last := looks(20, 7, tt.used)
		e := &eyes{watches: [][]gpu.Snapshot{looks(10, 7, 2*gib), last}, who: map[int]attrib.Process{70: holder}}
		e.scan.Holdings = []attrib.Holding{{Process: holder, Control: true, Minors: tt.minors}}
		if tt.want != settle.Flat {
			e.who = map[int]attrib.Process{70: {PID: 70, Gone: true}}
		}
		o := order()
		o.Cards[0].Device.Minor = &minor
		for _, s := range last {
			s.Readings[0].Device.Minor = &minor
		}
		side, _ := Look(e, o)
		if got := side.Curves[card].State; got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// On a GPU that does not settle the processes that were there all the time have stayed: those whose start time says
// that each look showed the same one, and that are there still.
func TestStayed(t *testing.T) {
	held := gpu.Process{PID: 70, Memory: gpu.Bytes(20 * gib)}
	beside := func(from, n int, also ...gpu.Process) (series []gpu.Snapshot) {
		for i := range n {
			used := uint64(i%3) * 64 * mib
			series = append(series, looks(from+i, 1, 20*gib+gib/2+18*mib+used, append(also, gpu.Process{PID: 71, Memory: gpu.Bytes(gib/2 + used)})...)...)
		}
		return series
	}
	old := map[int]attrib.Process{70: {PID: 70, Start: 5}, 71: {PID: 71, Why: "not read"}}
	is := func(p attrib.Process) map[int]attrib.Process { return map[int]attrib.Process{70: p, 71: old[71]} }
	asked := []string{"watch", "processes", "quiet", "watch", "processes", "release"}
	searched := []string{"watch", "processes", "quiet", "scan", "watch", "processes", "release"}
	first := beside(10, 7, held)
	for _, tt := range []struct {
		name   string
		eyes   eyes
		stayed bool
		did    []string
	}{
		{"all the time", eyes{who: old, watches: [][]gpu.Snapshot{first, beside(17, 1, held)}}, true, asked},
		{"its PID was used again", eyes{who: is(attrib.Process{PID: 70, Start: 11 * time.Second}), watches: [][]gpu.Snapshot{first, beside(17, 1, held)}}, false, []string{"watch", "processes"}},
		{"/proc does not tell", eyes{who: is(attrib.Process{PID: 70, Why: "denied"}), watches: [][]gpu.Snapshot{first, beside(17, 1, held)}}, false, []string{"watch", "processes"}},
		{"it ends meanwhile", eyes{who: old, later: is(attrib.Process{PID: 70, Gone: true}), watches: [][]gpu.Snapshot{first, beside(17, 1, held)}}, false, asked},
		{"not in the last look", eyes{who: old, watches: [][]gpu.Snapshot{first, beside(17, 1)}}, false, asked},
		{"no last look", eyes{who: old, watches: [][]gpu.Snapshot{first}}, false, []string{"watch", "processes", "quiet", "watch", "processes", "release"}},
		{"not in the first look", eyes{who: old, watches: [][]gpu.Snapshot{append(beside(10, 1), beside(11, 7, held)...)}}, false, []string{"watch", "processes"}},
		{"gone, and listed for another watch", eyes{who: is(attrib.Process{PID: 70, Gone: true}), watches: [][]gpu.Snapshot{first, beside(17, 7, held)}}, true, searched},
		{"gone, and listed once more", eyes{who: is(attrib.Process{PID: 70, Gone: true}), watches: [][]gpu.Snapshot{first, beside(17, 1, held)}}, false, searched},
	} {
		side, _ := Look(&tt.eyes, order())
		stayed := slices.ContainsFunc(side.Stayed[card], func(p settle.Stay) bool { return p.PID == 70 && p.Memory == held.Memory })
		if stayed != tt.stayed || stayed != (len(side.Stayed[card]) > 0) || side.Curves[card].State != settle.Moving {
			t.Errorf("%s: stayed %v, %s", tt.name, side.Stayed, side.Curves[card].State)
		}
		if !slices.Equal(tt.eyes.did, tt.did) {
			t.Errorf("%s: did %v, want %v", tt.name, tt.eyes.did, tt.did)
		}
	}
}
