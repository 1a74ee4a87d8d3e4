package attribution

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

const (
	card0 gpu.ID = "GPU-0"
	card1 gpu.ID = "GPU-1"
	mib          = 1 << 20
)

var (
	thisEpoch  = gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	otherEpoch = gpu.Epoch{Boot: "b", Driver: "590", Module: "m"}
)

// looking is a look a hundred seconds after boot.
func looking() Now { return Now{At: 100 * time.Second, Epoch: thisEpoch, Idle: 32 * mib} }

// run returns a record of a job that was given these GPUs.
func run(id slurm.JobID, cards []gpu.ID, start *record.End, ends ...record.End) record.Run {
	r := record.Run{Job: slurm.Job{ID: id, UID: 1000}, Epoch: thisEpoch, Start: start, Ends: ends}
	for i, card := range cards {
		r.Devices = append(r.Devices, record.Assigned{Index: i, Device: gpu.Device{ID: card}})
	}
	return r
}

func saw(second int, readings ...gpu.Reading) record.End {
	at := time.Duration(second) * time.Second
	return record.End{At: at, Snapshot: gpu.Snapshot{At: at, Readings: readings}}
}

func at(second int) *record.End { e := saw(second); return &e }

func used(card gpu.ID, bytes uint64) gpu.Reading {
	return gpu.Reading{Device: gpu.Device{ID: card}, Memory: gpu.Memory{Used: gpu.Bytes(bytes)}}
}

// left returns an end that found memory of no known owner on a GPU.
func left(second int, card gpu.ID) record.End {
	e := saw(second, used(card, 700*mib))
	e.Findings = []record.Finding{{Code: catalog.Residue, GPU: card}}
	return e
}

// A leftover stays a job's until a sample shows the GPU idle. A sample that could not be read does not count.
func TestLeftovers(t *testing.T) {
	reading := func(change func(*gpu.Reading)) gpu.Reading {
		r := used(card0, 0)
		change(&r)
		return r
	}
	for name, tt := range map[string]struct {
		since record.End
		epoch gpu.Epoch
		want  int
	}{
		"not looked at since":   {saw(50), thisEpoch, 1},
		"idle":                  {saw(50, used(card0, 0)), thisEpoch, 0},
		"idle but for a little": {saw(50, used(card0, 32*mib-1)), thisEpoch, 0},
		"in use":                {saw(50, used(card0, 32*mib)), thisEpoch, 1},
		"another GPU idle":      {saw(50, used(card1, 0)), thisEpoch, 1},
		"idle before":           {saw(5, used(card0, 0)), thisEpoch, 1},
		"idle in another epoch": {saw(50, used(card0, 0)), otherEpoch, 1},
		"a process without bytes": {saw(50, reading(func(r *gpu.Reading) { r.Processes = []gpu.Process{{PID: 1}} })),
			thisEpoch, 1},
		"processes unknown": {saw(50, reading(func(r *gpu.Reading) { r.ProcessesUnknown = "old" })), thisEpoch, 1},
		"memory unknown": {saw(50, reading(func(r *gpu.Reading) { r.Memory.Used = gpu.Unknown("old") })), thisEpoch,
			1},
	} {
		first := run(100, []gpu.ID{card0}, at(1), left(20, card0))
		for _, second := range []record.Run{run(101, []gpu.ID{card0}, &tt.since), run(101, []gpu.ID{card0}, nil, tt.since)} {
			second.Epoch = tt.epoch
			for _, runs := range [][]record.Run{{first, second}, {second, first}} {
				if got := leftovers(runs, looking()); len(got) != tt.want {
					t.Errorf("%s: %+v", name, got)
				}
			}
		}
	}
	runs := []record.Run{
		run(100, []gpu.ID{card0}, at(1), left(20, card0)), run(101, []gpu.ID{card1}, at(1), left(30, card1)),
		run(102, []gpu.ID{card0}, nil, saw(40, used(card0, 0))), run(103, []gpu.ID{card0}, nil, left(50, card0)),
	}
	if got := leftovers(runs, looking()); len(got) != 2 || got[0].GPU != card0 || got[1].GPU != card1 {
		t.Errorf("the newest is not first, or a look acquits of another card too: %+v", got)
	}
}

// A process that an end of this boot saw ending is known by its PID and start time, with the first time that was seen.
func TestEnding(t *testing.T) {
	process := func(pid int, state string) record.Process {
		return record.Process{PID: pid, Start: time.Duration(pid) * time.Second, State: state}
	}
	first, second, earlier := saw(20), saw(30), saw(10)
	first.Processes = []record.Process{process(1, "X"), process(2, "D")}
	second.Processes = []record.Process{process(1, "X"), process(3, "X")}
	earlier.Processes = []record.Process{process(4, "X")}
	another := run(102, []gpu.ID{card0}, &earlier)
	another.Epoch.Boot = "a"
	reloaded := run(101, []gpu.ID{card1}, &second)
	reloaded.Epoch = otherEpoch
	got := Open([]record.Run{reloaded, run(100, []gpu.ID{card0}, at(1), first), another}, record.Run{}, looking()).Ending
	want := map[record.Instance]time.Duration{
		{PID: 1, Start: time.Second}: 20 * time.Second, {PID: 3, Start: 3 * time.Second}: 30 * time.Second,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Whose memory without a process is rests on all who had the driver open: a record that lost some of them blames no
// job. What the recorder alone saw is no leftover: the job's end did not find it there any more.
func TestLeftoversOfACutRecord(t *testing.T) {
	for name, tt := range map[string]struct {
		code  catalog.Code
		level record.Level
		rest  map[string]int
		want  string
	}{
		"whole":                     {catalog.Residue, record.ByExclusive, nil, "owned"},
		"other lists cut":           {catalog.Residue, record.ByExclusive, map[string]int{"xids": 3}, "owned"},
		"without some candidates":   {catalog.Residue, record.ByExclusive, map[string]int{"candidates": 1}, "unowned"},
		"without evidence":          {catalog.Residue, record.ByExclusive, map[string]int{record.Everything: 1}, "unowned"},
		"a process, by its own PID": {catalog.Orphan, record.BySighting, map[string]int{record.Everything: 1}, "owned"},
		"only recorded":             {catalog.Foreign, record.ByRecorder, nil, ""},
	} {
		end := left(50, card0)
		end.Findings[0].Code, end.Findings[0].Owner, end.Rest = tt.code, &record.Owner{Job: 101, Level: tt.level}, tt.rest
		got := ""
		for _, f := range Open([]record.Run{run(101, []gpu.ID{card0}, at(10), end)}, record.Run{}, looking()).Left {
			got += map[bool]string{true: "owned", false: "unowned"}[f.Owner != nil]
		}
		if got != tt.want || end.Findings[0].Owner == nil {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A run was alone if no other run was given one of its GPUs, or may have been, while it ran. A run whose GPUs are not
// known may have been on any GPU, so no run at the same time was alone.
func TestAlone(t *testing.T) {
	const live = 0
	ran := func(job slurm.JobID, from, to int, cards ...gpu.ID) Allocation {
		r := run(job, cards, at(from))
		if to != live {
			r.Ends = []record.End{saw(to)}
		}
		return AllocationOf(r)
	}
	nameless := run(2, []gpu.ID{"", card1}, at(15), saw(30))
	presumed, startless := run(2, []gpu.ID{card0}, at(15), saw(30)), run(1, []gpu.ID{card0}, nil, saw(20))
	presumed.Ends[0].Unseen, presumed.Ends[0].Presumed = "given on", true
	self := ran(1, 10, 20, card0)
	for name, tt := range map[string]struct {
		self, other Allocation
		want        bool
	}{
		"itself":                        {self, self, true},
		"same GPU, same time":           {self, ran(2, 15, 30, card0), false},
		"same GPU, live":                {self, ran(2, 15, live, card0), false},
		"same GPU, its end is presumed": {ran(1, 31, live, card0), AllocationOf(presumed), false},
		"same GPU, later":               {self, ran(2, 20, 30, card0), true},
		"same GPU, before":              {self, ran(2, 1, 10, card0), true},
		"another GPU":                   {self, ran(2, 15, 30, card1), true},
		"the other has no GPUs":         {self, ran(2, 15, 30), false},
		"one of the other's is unnamed": {self, AllocationOf(nameless), false},
		"without GPUs, but later":       {self, ran(2, 20, 30), true},
		"without GPUs itself":           {ran(1, 10, 20), ran(2, 15, 30, card1), false},
		"its start is not known":        {AllocationOf(startless), ran(2, 15, 30, card1), false},
		"another run of the job":        {self, ran(1, 15, 30, card0), false},
		"alone from boot to boot":       {ran(1, 10, live, card0), ran(2, 1, 10, card0), true},
	} {
		if got := alone(tt.self, []Allocation{tt.self, tt.other}); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// An open run of this boot counts, whatever else is known of its epoch: its job is live until its end is seen. A closed
// run counts unless the driver was reloaded since. Without a boot id only a run that began before now can be of this one.
func TestCounts(t *testing.T) {
	const none = -1
	epochs := map[string]gpu.Epoch{
		"this": thisEpoch, "a driver reload": otherEpoch, "half": {Boot: "b"}, "none": {},
		"another boot": {Boot: "a", Driver: "580", Module: "m"}, "another boot, half": {Boot: "a"},
		"no boot id": {Driver: "580", Module: "m"}, "no boot id, reload": {Driver: "590", Module: "m"},
	}
	for _, tt := range []struct {
		epoch, end   string // the start's epoch, and the end's where it knew another
		start, ended int    // seconds
		want         bool
	}{
		{"this", "", 50, none, true}, {"this", "", 50, 60, true}, {"this", "", none, 60, true},
		{"a driver reload", "", 50, none, true}, {"a driver reload", "", 50, 60, false},
		{"a driver reload", "this", 50, 60, true}, {"this", "a driver reload", 50, 60, false},
		{"half", "", 50, none, true}, {"half", "", 50, 60, true}, {"half", "", none, 60, true},
		{"half", "this", 50, 60, true}, {"half", "a driver reload", 50, 60, false}, {"this", "half", 50, 60, true},
		{"none", "", 50, none, true}, {"none", "", 50, 60, true}, {"none", "", none, 60, true},
		{"none", "", 101, none, false}, {"none", "", none, 101, false},
		{"another boot", "", 50, none, false}, {"another boot", "", 50, 60, false},
		{"another boot, half", "", 50, none, false}, {"another boot", "this", 50, 60, false}, {"none", "another boot", 50, 60, false},
		{"no boot id", "", 50, none, true}, {"no boot id", "", 101, none, false},
		{"no boot id, reload", "", 50, none, true}, {"no boot id, reload", "", 50, 60, false},
	} {
		r := run(1, nil, nil)
		if r.Epoch = epochs[tt.epoch]; tt.start != none {
			r.Start = at(tt.start)
		}
		if tt.ended != none {
			r.Ends = []record.End{saw(tt.ended)}
			r.Ends[0].Epoch = epochs[tt.end]
		}
		if got := looking().counts(r); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	settled := record.End{At: 60 * time.Second, Unseen: "its GPU was given to another", Presumed: true}
	if r := run(1, nil, at(50), settled); !looking().counts(changed(r, func(r *record.Run) { r.Epoch = otherEpoch })) {
		t.Error("an end that no one saw closes a run that may live on after a reload")
	}
	blind := Now{At: 100 * time.Second} // /proc tells nothing: any run that began before now may be live
	if r := run(1, nil, at(50)); !blind.counts(r) || blind.counts(run(1, nil, at(101))) {
		t.Error("without a boot id, an open run from before now does not count, or one from later does")
	}
}

// What an end saw belongs to the driver's life that the end saw: a job that began without a driver has leftovers too.
func TestLeftoversOfHalfAnEpoch(t *testing.T) {
	for name, tt := range map[string]struct {
		start, end gpu.Epoch
		want       int
	}{
		"one epoch":            {thisEpoch, gpu.Epoch{}, 1},
		"completed at the end": {gpu.Epoch{Boot: "b"}, thisEpoch, 1},
		"reloaded meanwhile":   {otherEpoch, thisEpoch, 1},
		"half at the end":      {thisEpoch, gpu.Epoch{Boot: "b"}, 1},
		"never known":          {gpu.Epoch{Boot: "b"}, gpu.Epoch{}, 0},
		"reloaded since":       {thisEpoch, otherEpoch, 0},
	} {
		r := run(100, []gpu.ID{card0}, at(1), left(20, card0))
		r.Epoch, r.Ends[0].Epoch = tt.start, tt.end
		if got := leftovers([]record.Run{r}, looking()); len(got) != tt.want {
			t.Errorf("%s: %d, want %d", name, len(got), tt.want)
		}
	}
}

// A run of an earlier epoch, whose clock was ahead, ends no other run. An older open run of the same job id is over,
// whatever its record says. The run's own record is not among the others.
func TestOpen(t *testing.T) {
	old, open := run(102, []gpu.ID{card0}, at(745), saw(755)), run(102, []gpu.ID{card0}, at(42))
	old.Epoch = gpu.Epoch{Boot: "a", Driver: "580", Module: "m"}
	twice := run(102, []gpu.ID{card0}, at(30)) // two prologs made two records, and the epilog closed one
	twice.Epoch = otherEpoch
	kept := changed(run(103, []gpu.ID{card0}, at(50)), func(r *record.Run) { r.Key = "w1" })
	for name, tt := range map[string]struct {
		other, self record.Run
		live        bool
	}{
		"another boot": {old, run(103, []gpu.ID{card0}, at(40)), true},
		"its own id":   {old, run(102, []gpu.ID{card0}, nil), false},
		"its own":      {kept, kept, true},
	} {
		book := Open([]record.Run{tt.other, open}, tt.self, looking())
		if len(book.Others) != 1 || book.Others[0].Job != 102 || book.Others[0].Live() != tt.live || book.Self.Alone {
			t.Errorf("%s: %+v", name, book)
		}
	}
	second := changed(run(102, []gpu.ID{card0}, at(42), saw(60)), func(r *record.Run) { r.Epoch = otherEpoch })
	book := Open([]record.Run{twice, second}, run(103, []gpu.ID{card0}, at(70)), looking())
	if len(book.Others) != 1 || book.Others[0].End != 42*time.Second || !book.Self.Alone {
		t.Errorf("a run whose job began anew before the driver was reloaded: %+v", book)
	}
}

// A hook that runs for a job refutes what a health check presumed of that job's end: no later job had the GPU alone.
func TestOwnEndRefutesThePresumedOne(t *testing.T) {
	presumed := saw(60)
	presumed.Unseen, presumed.Presumed = "job 104 was given its GPU", true
	for name, tt := range map[string]struct {
		ends []record.End
		end  time.Duration
	}{
		"presumed":        {[]record.End{presumed}, 0},
		"presumed, seen":  {[]record.End{presumed, saw(90)}, 90 * time.Second},
		"seen":            {[]record.End{saw(90)}, 90 * time.Second},
		"seen a 2nd time": {[]record.End{saw(80), saw(90)}, 80 * time.Second},
	} {
		self := run(102, []gpu.ID{card0}, at(40), tt.ends...)
		self.Key = "w1"
		book := Open([]record.Run{self, run(104, []gpu.ID{card0}, at(70))}, self, looking())
		if book.Self.End != tt.end || book.Self.Unseen || book.Others[0].Alone {
			t.Errorf("%s: %+v", name, book)
		}
	}
}

// Another job of the user counts if it was on the node after the moment, ended or not, or with an end that was not seen.
func TestSameUser(t *testing.T) {
	other := func(edit func(*record.Run)) record.Run { return changed(runOn(101, "GPU-1", 20, 30), edit) }
	for name, tt := range map[string]struct {
		other record.Run
		is    bool
	}{
		"ended meanwhile":     {other(func(*record.Run) {}), true},
		"lives":               {runOn(101, "GPU-1", 20, 0), true},
		"ended before":        {runOn(101, "GPU-1", 2, 9), false},
		"ended during it":     {runOn(101, "GPU-1", 2, 11), true},
		"another user's":      {other(func(r *record.Run) { r.Job.UID = 1001 }), false},
		"an end not seen":     {other(func(r *record.Run) { r.Ends = []record.End{{At: 25, Unseen: "x"}} }), true},
		"of an earlier boot":  {other(func(r *record.Run) { r.Epoch.Boot = "a" }), false},
		"the same, run again": {other(func(r *record.Run) { r.Job.ID, r.Key = 100, "t1" }), false},
	} {
		self := runOn(100, "GPU-0", 12, 0)
		got := Open([]record.Run{self, tt.other}, self, looking()).SameUser(10)
		if (strings.Join(got, " ") == "101") != tt.is || len(got) > 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestUnended(t *testing.T) {
	open := runOn(100, "GPU-0", 10, 0)
	later := runOn(101, "GPU-0", 20, 30)
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		runs     []record.Run
		shared   bool
		want     string
		presumed bool
	}{
		"alone":                     {[]record.Run{open}, false, "", false},
		"its GPU was given again":   {[]record.Run{open, later}, false, "job 101 was given its GPU", true},
		"where GPUs come in parts":  {[]record.Run{open, later}, true, "", false},
		"another GPU was given":     {[]record.Run{open, runOn(101, "GPU-1", 20, 30)}, false, "", false},
		"the later one still runs":  {[]record.Run{open, runOn(101, "GPU-0", 20, 0)}, false, "", false},
		"the other one was earlier": {[]record.Run{open, runOn(99, "GPU-0", 5, 30)}, false, "", false},
		"the later one is itself settled": {[]record.Run{open,
			changed(later, func(r *record.Run) { r.Ends = []record.End{{At: 30, Unseen: "x"}} })}, false, "", false},
		"a partition that shares": {[]record.Run{open, changed(later, func(r *record.Run) { r.Job.Partition = "shared" })},
			false, "", false},
		"MPS": {[]record.Run{changed(open, func(r *record.Run) { r.Job.MPSPercent = "50" }), later},
			false, "", false},
		"the driver was reloaded": {[]record.Run{open, changed(later, func(r *record.Run) { r.Epoch = otherEpoch })}, false,
			"job 101 was given its GPU", true},
		"it began without a driver": {[]record.Run{changed(open, func(r *record.Run) { r.Epoch = gpu.Epoch{Boot: "b"} }), later},
			false, "job 101 was given its GPU", true},
		"it knew no epoch": {[]record.Run{changed(open, func(r *record.Run) { r.Epoch = gpu.Epoch{} }), later}, false,
			"job 101 was given its GPU", true},
		"the later one knew no boot": {[]record.Run{open, changed(later, func(r *record.Run) { r.Epoch.Boot = "" })}, false, "", false},
		"its GPUs are unknown, one was given": {[]record.Run{changed(open, func(r *record.Run) { r.Devices = nil }), later}, false,
			"", false},
		"its GPUs are unknown, all were given": {[]record.Run{changed(open, func(r *record.Run) { r.Devices = nil }), later,
			runOn(102, "GPU-1", 40, 50)}, false, "later jobs were given every GPU of the node", true},
		"the later one did not get it clean": {[]record.Run{open,
			changed(later, func(r *record.Run) { r.Start.Curves = map[gpu.ID]record.Curve{"GPU-0": {State: record.Flat}} })},
			false, "", false},
		"somebody was on it": {[]record.Run{open, changed(later, func(r *record.Run) {
			r.Start.Snapshot.Readings = []gpu.Reading{{Device: gpu.Device{ID: "GPU-0"},
				Processes: []gpu.Process{{PID: 7}}}}
		})}, false, "", false},
		"a GPU without a name": {[]record.Run{runOn(100, "", 10, 0), runOn(101, "", 20, 30)}, false, "", false},
		"one of its GPUs has no name": {[]record.Run{changed(open, func(r *record.Run) {
			r.Devices = append(r.Devices, record.Assigned{Index: 1})
		}), later}, false, "job 101 was given its GPU", true},
		"no start on record": {[]record.Run{{Job: slurm.Job{ID: 100, Partition: "main"}, Epoch: thisEpoch,
			Devices: open.Devices}, later}, false, "", false},
		"its job id began again": {[]record.Run{open, runOn(100, "GPU-1", 20, 0)}, true, "its job began again", false},
		"the later one was of a boot whose clock was ahead": {[]record.Run{changed(open, func(r *record.Run) { r.Start.Wall = noon }),
			changed(runOn(100, "GPU-0", 50, 60), func(r *record.Run) { r.Epoch.Boot, r.Start.Wall = "a", noon.Add(time.Hour) })},
			false, "", false},
		"of an earlier boot": {[]record.Run{changed(open, func(r *record.Run) { r.Epoch.Boot = "a" })}, true,
			"the node has booted since", false},
		"of an unknown boot":     {[]record.Run{changed(open, func(r *record.Run) { r.Epoch = gpu.Epoch{} })}, true, "", false},
		"its own end is on file": {[]record.Run{runOn(100, "GPU-0", 10, 15), later}, false, "", false},
	} {
		got := Unended(tt.runs, Node{Epoch: thisEpoch, Shared: []string{"shared"}, GPUs: []gpu.ID{"GPU-0", "GPU-1"},
			Exclusive: func() bool { return !tt.shared }})
		switch {
		case tt.want == "" && len(got) == 0:
		case len(got) != 1 || got[0].Why != tt.want || got[0].Presumed != tt.presumed || got[0].Job.ID != 100 ||
			got[0].Over < 10:
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A run whose end was not seen counts as over, and its epilog may still come.
func TestUnseenEnd(t *testing.T) {
	r := runOn(100, "GPU-0", 10, 0)
	r.Ends = []record.End{{At: 20, Unseen: "job 101 was given its GPU", Presumed: true}}
	if !r.Closed() || r.Epilog() != nil {
		t.Error("it is over, and no one saw how")
	}
	if found := record.Match([]record.Run{r}, slurm.Job{ID: 100}); found.Job.ID != 100 || found.Epilog() != nil {
		t.Errorf("an epilog finds %+v", found)
	}
	if rec := AllocationOf(r); rec.End != 20 || !rec.Unseen {
		t.Errorf("%+v", rec)
	}
	r.Ends = append(r.Ends, record.End{At: 40})
	if rec := AllocationOf(r); rec.End != 40 || rec.Unseen || r.Epilog() == nil {
		t.Errorf("after its epilog: %+v", rec)
	}
	if found := record.Match([]record.Run{r}, slurm.Job{ID: 100}); found.Epilog() == nil {
		t.Errorf("a second epilog finds %+v", found)
	}
}

// A health check reads the same records, and has no run of its own among them.
func TestBetween(t *testing.T) {
	live, over := runOn(100, "GPU-0", 10, 0), runOn(101, "GPU-1", 10, 20)
	proofs := []record.Sighting{{PID: 7, Start: time.Second, Owner: slurm.Owner{ID: 101}}}
	b := Open([]record.Run{live, over, changed(over, func(r *record.Run) { r.Epoch = otherEpoch })}, record.Run{},
		Now{At: 30, Epoch: thisEpoch, Proofs: proofs})
	if len(b.Others) != 2 || !b.Others[0].Live() || b.Others[1].Live() || !b.Others[1].Alone {
		t.Errorf("%+v", b.Others)
	}
	jobs := Jobs{Self: b.Self, Others: b.Others, At: 30}
	got := jobs.Owner(record.Process{PID: 7, Start: time.Second}, "GPU-1")
	if got.Job != 101 || got.Level != record.BySighting {
		t.Errorf("%+v", got)
	}
}

// A job of whose GPUs only some are known may be on any other; on those that are known it still was alone.
func TestPartlyKnownGPUs(t *testing.T) {
	partly, other := run(100, []gpu.ID{card0}, at(1)), run(101, []gpu.ID{card1}, at(1))
	partly.Job.GPUIndexes = []int{0, 1}
	given := Open([]record.Run{partly, other}, record.Run{}, looking()).Others[0]
	if !partly.Bare().Given(card1) {
		t.Error("the shortest given of a job that has one more GPU than is known does not say so")
	}
	if !given.MayHold(card1) || !given.Alone || !partly.Given(card1) {
		t.Errorf("%+v, want one that may hold %s and had %s alone", given, card1, card0)
	}
	partly.Devices = append(partly.Devices, record.Assigned{Index: 1, Device: gpu.Device{ID: card1}})
	of := other
	of.Numbering.Perhaps = []gpu.ID{card0}
	both := Open([]record.Run{partly, of}, record.Run{}, looking()).Others
	if !of.Bare().Given(card0) || of.Given("GPU-2") || !both[1].Keeps(card0) || both[0].Alone {
		t.Errorf("%+v, want one that may hold %s too, so that the other did not have it alone", both, card0)
	}
	if given = Open([]record.Run{partly}, record.Run{}, looking()).Others[0]; given.MayHold("GPU-2") {
		t.Errorf("%+v, want one that holds its own GPUs alone", given)
	}
}

// The newest condition of each GPU counts. A record cut short tells it all the same; one that does not is not passed over
// for an older one.
func TestLastHealth(t *testing.T) {
	look := func(at time.Duration, device gpu.ID, count string) record.End {
		return record.End{At: at, Health: []gpu.Health{{Device: device,
			Facts: []gpu.Fact{{Code: gpu.ECCUncorrected, Value: count}}}}}
	}
	key := 0
	run := func(ends ...record.End) record.Run {
		key++
		return record.Run{Key: fmt.Sprint("w", key), Job: slurm.Job{ID: 1}, Epoch: thisEpoch, Ends: ends}
	}
	reloaded := run(look(8, "A", "90"))
	reloaded.Epoch.Module = "older"
	before := run(look(1, "A", "2"))
	for name, tt := range map[string]struct {
		runs []record.Run
		want map[gpu.ID]string
	}{
		"the newest of each": {[]record.Run{run(look(2, "A", "3")), run(look(5, "A", "4"), look(4, "B", "1"))},
			map[gpu.ID]string{"A": "4", "B": "1"}},
		"without facts": {[]record.Run{before, run(record.End{At: 9, Health: []gpu.Health{{Device: "A"}}})},
			map[gpu.ID]string{"A": "2, and later unknown"}},
		"an end that read some alone": {[]record.Run{before, run(record.End{At: 9, Health: []gpu.Health{{Device: "A",
			Facts: []gpu.Fact{{Code: gpu.RecoveryAction, Value: "none"}}}}})}, map[gpu.ID]string{"A": "2, and later unknown"}},
		"another life": {[]record.Run{before, reloaded}, map[gpu.ID]string{"A": "2"}},
		"bare":         {[]record.Run{before, run(look(2, "A", "5")).Bare()}, map[gpu.ID]string{"A": "5"}},
		"bare, of an earlier release": {[]record.Run{before, run(record.End{At: 2, Rest: map[string]int{record.Everything: 1}})},
			map[gpu.ID]string{}},
	} {
		got := map[gpu.ID]string{}
		for id, h := range LastHealth(tt.runs, record.Run{}, Now{At: 100, Epoch: thisEpoch}) {
			f, _ := h.Fact(gpu.ECCUncorrected)
			if got[id] = f.Value; f.Unknown != "" {
				got[id] += ", and later unknown"
			}
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
	if none := LastHealth([]record.Run{before}, record.Run{}, Now{At: 100}); len(none) != 0 {
		t.Errorf("an epoch that is not known has %v", none)
	}
	check := record.Check{Health: before.Ends[0].Health}.Bare()
	if len(check.Health) != 1 || len(check.Health[0].Facts) != 1 {
		t.Errorf("of a health check: %+v", check.Health)
	}
}

// A count is the job's own only if no other job could have met the errors since the last one: each that had the GPU
// meanwhile has an end on record that read the count.
func TestLastHealthBehindAnUnreadEnd(t *testing.T) {
	count := record.End{At: 20, Health: []gpu.Health{{Device: "A", Facts: []gpu.Fact{{Code: gpu.ECCUncorrected, Value: "2"}}}}}
	job := func(id slurm.JobID, on gpu.ID, start time.Duration, ends ...record.End) record.Run {
		r := record.Run{Key: "w1", Job: slurm.Job{ID: id}, Epoch: thisEpoch, Start: &record.End{At: start}, Ends: ends}
		r.Devices = []record.Assigned{{Device: gpu.Device{ID: on}}}
		return r
	}
	first, self := job(1, "A", 10, count), job(9, "A", 50)
	for name, tt := range map[string]struct {
		between record.Run
		known   bool
	}{
		"another GPU's":                {job(2, "B", 30, record.End{At: 40}), true},
		"an end that read nothing":     {job(2, "A", 30, record.End{At: 40}), false},
		"an end that was not seen":     {job(2, "A", 30, record.End{At: 40, Unseen: "its job began again"}), false},
		"no end":                       {job(2, "A", 30), false},
		"it is live, and shares":       {job(2, "A", 60), false},
		"it began after this look":     {job(2, "A", 200), true},
		"it was over before the count": {job(2, "A", 5, record.End{At: 9}), true},
		"it ended after the count":     {job(2, "A", 5, record.End{At: 21}), false},
		"its GPUs are unknown":         {record.Run{Key: "w1", Job: slurm.Job{ID: 2}, Epoch: thisEpoch, Start: &record.End{At: 30}}, false},
		"it began without a driver": {changed(job(2, "A", 30), func(r *record.Run) { r.Epoch = gpu.Epoch{Boot: "b"} }),
			false},
		"of another boot":   {changed(job(2, "A", 30), func(r *record.Run) { r.Epoch.Boot = "a" }), true},
		"this very run":     {self, true},
		"it read the count": {job(2, "A", 30, record.End{At: 40, Health: count.Health}), true},
	} {
		last := LastHealth([]record.Run{first, tt.between}, self, Now{At: 100, Epoch: thisEpoch})
		f, _ := last["A"].Fact(gpu.ECCUncorrected)
		if f.Value != "2" || (f.Unknown == "") != tt.known {
			t.Errorf("%s: %+v", name, f)
		}
	}
	last := LastHealth([]record.Run{first}, self, Now{At: 100, Epoch: thisEpoch, Unread: "not all records were read"})
	if f, _ := last["A"].Fact(gpu.ECCUncorrected); f.Unknown == "" {
		t.Error("certain, though not all records were read")
	}
}

// State that is kept over a boot has runs of two: of one job id the later boot's is the one that runs, whatever the
// boot times say, and no run of the boot before is live.
func TestRunsOfTwoBoots(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	run := func(id slurm.JobID, boot string, up time.Duration, wall time.Time) record.Run {
		return record.Run{Key: boot, Job: slurm.Job{ID: id}, Epoch: gpu.Epoch{Boot: boot}, Start: &record.End{At: up, Wall: wall}}
	}
	before, other := run(7, "first", 90*time.Hour, noon), run(8, "first", 91*time.Hour, noon)
	now := run(7, "second", time.Minute, noon.Add(time.Hour))
	all := []record.Run{before, now, other}
	if got := record.Match(all, slurm.Job{ID: 7}); got.Key != "second" || got.Epilog() != nil {
		t.Errorf("%+v", got)
	}
	for _, r := range []record.Run{before, other} {
		if by := r.Superseded(all); by == nil || by.First().At != time.Minute {
			t.Errorf("job %d: over by %v", r.Job.ID, by)
		}
	}
	if now.Superseded(all) != nil {
		t.Error("the run of this boot is over")
	}
	over := changed(before, func(r *record.Run) { r.Ends = []record.End{{At: 95 * time.Hour, Wall: noon.Add(time.Minute)}} })
	if over.Superseded(all) != nil {
		t.Error("a run that has ended ends a second time")
	}
	// a start that could not read the boot: by boot time, as within one
	unread := run(7, "", time.Hour, noon.Add(2*time.Hour))
	if unread.Superseded([]record.Run{now}) != nil {
		t.Error("over")
	}
	if now.Superseded([]record.Run{unread}) == nil {
		t.Error("not over")
	}
}

// runOn returns a run that got its GPU clean; it is open if ends is 0.
func runOn(job slurm.JobID, card gpu.ID, starts, ends time.Duration) record.Run {
	r := record.Run{
		Job: slurm.Job{ID: job, Partition: "main"}, Epoch: thisEpoch, Key: "w1",
		Devices: []record.Assigned{{Device: gpu.Device{ID: card}}},
		Start: &record.End{
			At: starts, Curves: map[gpu.ID]record.Curve{card: {State: record.Clean}},
			Snapshot: gpu.Snapshot{At: starts, Readings: []gpu.Reading{{Device: gpu.Device{ID: card}}}},
		},
	}
	if ends > 0 {
		r.Ends = []record.End{{At: ends}}
	}
	return r
}

func changed(r record.Run, change func(*record.Run)) record.Run {
	start := *r.Start
	r.Start = &start
	change(&r)
	return r
}
