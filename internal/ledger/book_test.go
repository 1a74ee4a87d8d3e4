package ledger

import (
	"maps"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
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

// run is a job's record on cards, with a start and ends.
func run(id slurm.JobID, cards []gpu.ID, start *End, ends ...End) Run {
	r := Run{Job: slurm.Job{ID: id, UID: 1000}, Epoch: thisEpoch, Start: start, Ends: ends}
	for i, card := range cards {
		r.Devices = append(r.Devices, Assigned{Index: i, Device: gpu.Device{ID: card}})
	}
	return r
}

func saw(second int, readings ...gpu.Reading) End {
	at := time.Duration(second) * time.Second
	return End{At: at, Snapshot: gpu.Snapshot{At: at, Readings: readings}}
}

func at(second int) *End { e := saw(second); return &e }

func used(card gpu.ID, bytes uint64) gpu.Reading {
	return gpu.Reading{Device: gpu.Device{ID: card}, Memory: gpu.Memory{Used: gpu.Bytes(bytes)}}
}

// left is an end that found memory of nobody's on a card.
func left(second int, card gpu.ID) End {
	e := saw(second, used(card, 700*mib))
	e.Findings = []finding.Finding{{Code: code.Residue, GPU: card}}
	return e
}

// Whoever left something is to blame until a look has seen the card idle; what cannot be told acquits nobody.
func TestLeftovers(t *testing.T) {
	reading := func(change func(*gpu.Reading)) gpu.Reading {
		r := used(card0, 0)
		change(&r)
		return r
	}
	for name, tt := range map[string]struct {
		since End
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
		for _, second := range []Run{run(101, []gpu.ID{card0}, &tt.since), run(101, []gpu.ID{card0}, nil, tt.since)} {
			second.Epoch = tt.epoch
			for _, runs := range [][]Run{{first, second}, {second, first}} {
				if got := leftovers(runs, looking()); len(got) != tt.want {
					t.Errorf("%s: %+v", name, got)
				}
			}
		}
	}
	runs := []Run{
		run(100, []gpu.ID{card0}, at(1), left(20, card0)), run(101, []gpu.ID{card1}, at(1), left(30, card1)),
		run(102, []gpu.ID{card0}, nil, saw(40, used(card0, 0))), run(103, []gpu.ID{card0}, nil, left(50, card0)),
	}
	if got := leftovers(runs, looking()); len(got) != 2 || got[0].GPU != card0 || got[1].GPU != card1 {
		t.Errorf("the newest is not first, or a look acquits of another card too: %+v", got)
	}
}

// What the recorder alone saw is no leftover: the job's end did not find it there any more.
func TestRecordedIsNoLeftover(t *testing.T) {
	for level, want := range map[finding.Level]int{finding.Recorded: 0, finding.BySighting: 1} {
		end := left(20, card0)
		end.Findings[0].Owner = &finding.Owner{Job: 101, Level: level}
		if got := leftovers([]Run{run(100, []gpu.ID{card0}, at(1), end)}, looking()); len(got) != want {
			t.Errorf("%s: %+v, want %d", level, got, want)
		}
	}
}

// A process that an end of this boot saw ending is known by its PID and start time, with the first time that was seen.
func TestEnding(t *testing.T) {
	process := func(pid int, state string) finding.Process {
		return finding.Process{PID: pid, Start: time.Duration(pid) * time.Second, State: state}
	}
	first, second, earlier := saw(20), saw(30), saw(10)
	first.Processes = []finding.Process{process(1, "X"), process(2, "D")}
	second.Processes = []finding.Process{process(1, "X"), process(3, "X")}
	earlier.Processes = []finding.Process{process(4, "X")}
	another := run(102, []gpu.ID{card0}, &earlier)
	another.Epoch.Boot = "a"
	reloaded := run(101, []gpu.ID{card1}, &second)
	reloaded.Epoch = otherEpoch
	got := Open([]Run{reloaded, run(100, []gpu.ID{card0}, at(1), first), another}, Run{}, looking()).Ending
	want := map[finding.Instance]time.Duration{
		{PID: 1, Start: time.Second}: 20 * time.Second, {PID: 3, Start: 3 * time.Second}: 30 * time.Second,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Whose memory without a process is rests on all who had the driver open: a record that lost some of them blames no
// job.
func TestLeftoversOfACutRecord(t *testing.T) {
	for name, tt := range map[string]struct {
		code  code.Code
		rest  map[string]int
		owned bool
	}{
		"whole":                     {code.Residue, nil, true},
		"other lists cut":           {code.Residue, map[string]int{"xids": 3}, true},
		"without some candidates":   {code.Residue, map[string]int{"candidates": 1}, false},
		"without evidence":          {code.Residue, map[string]int{everything: 1}, false},
		"a process, by its own PID": {code.Orphan, map[string]int{everything: 1}, true},
	} {
		end := left(50, card0)
		end.Findings[0].Code, end.Findings[0].Owner, end.Rest = tt.code, &finding.Owner{Job: 101}, tt.rest
		found := Open([]Run{run(101, []gpu.ID{card0}, at(10), end)}, Run{}, looking()).Left
		if len(found) != 1 || (found[0].Owner != nil) != tt.owned || end.Findings[0].Owner == nil {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// A run was alone where no other was given one of its cards, or may have been, while it ran. A run that learned nothing
// of its cards may be on any, and so was nobody alone beside it.
func TestAlone(t *testing.T) {
	const live = 0
	ran := func(job slurm.JobID, from, to int, cards ...gpu.ID) finding.Record {
		r := run(job, cards, at(from))
		if to != live {
			r.Ends = []End{saw(to)}
		}
		return record(r)
	}
	nameless := run(2, []gpu.ID{"", card1}, at(15), saw(30))
	presumed, startless := run(2, []gpu.ID{card0}, at(15), saw(30)), run(1, []gpu.ID{card0}, nil, saw(20))
	presumed.Ends[0].Unseen, presumed.Ends[0].Presumed = "given on", true
	self := ran(1, 10, 20, card0)
	for name, tt := range map[string]struct {
		self, other finding.Record
		want        bool
	}{
		"itself":                        {self, self, true},
		"same GPU, same time":           {self, ran(2, 15, 30, card0), false},
		"same GPU, live":                {self, ran(2, 15, live, card0), false},
		"same GPU, its end is presumed": {ran(1, 31, live, card0), record(presumed), false},
		"same GPU, later":               {self, ran(2, 20, 30, card0), true},
		"same GPU, before":              {self, ran(2, 1, 10, card0), true},
		"another GPU":                   {self, ran(2, 15, 30, card1), true},
		"the other has no GPUs":         {self, ran(2, 15, 30), false},
		"one of the other's is unnamed": {self, record(nameless), false},
		"without GPUs, but later":       {self, ran(2, 20, 30), true},
		"without GPUs itself":           {ran(1, 10, 20), ran(2, 15, 30, card1), false},
		"its start is not known":        {record(startless), ran(2, 15, 30, card1), false},
		"another run of the job":        {self, ran(1, 15, 30, card0), false},
		"alone from boot to boot":       {ran(1, 10, live, card0), ran(2, 1, 10, card0), true},
	} {
		if got := alone(tt.self, []finding.Record{tt.self, tt.other}); got != tt.want {
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
			r.Ends = []End{saw(tt.ended)}
			r.Ends[0].Epoch = epochs[tt.end]
		}
		if got := looking().counts(r); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	settled := End{At: 60 * time.Second, Unseen: "its GPU was given to another", Presumed: true}
	if r := run(1, nil, at(50), settled); !looking().counts(changed(r, func(r *Run) { r.Epoch = otherEpoch })) {
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
		if got := leftovers([]Run{r}, looking()); len(got) != tt.want {
			t.Errorf("%s: %d, want %d", name, len(got), tt.want)
		}
	}
}

// A run of an earlier epoch, whose clock was ahead, ends nobody. An older open run of one's own job id is over, whatever
// its record says: it cannot share the card by right. One's own record is none of the others'.
func TestOpen(t *testing.T) {
	old, open := run(102, []gpu.ID{card0}, at(745), saw(755)), run(102, []gpu.ID{card0}, at(42))
	old.Epoch = gpu.Epoch{Boot: "a", Driver: "580", Module: "m"}
	twice := run(102, []gpu.ID{card0}, at(30)) // two prologs made two records, and the epilog closed one
	twice.Epoch = otherEpoch
	kept := changed(run(103, []gpu.ID{card0}, at(50)), func(r *Run) { r.Key = "w1" })
	for name, tt := range map[string]struct {
		other, self Run
		live        bool
	}{
		"another boot": {old, run(103, []gpu.ID{card0}, at(40)), true},
		"its own id":   {old, run(102, []gpu.ID{card0}, nil), false},
		"its own":      {kept, kept, true},
	} {
		book := Open([]Run{tt.other, open}, tt.self, looking())
		if len(book.Others) != 1 || book.Others[0].Job != 102 || book.Others[0].Live() != tt.live || book.Self.Alone {
			t.Errorf("%s: %+v", name, book)
		}
	}
	second := changed(run(102, []gpu.ID{card0}, at(42), saw(60)), func(r *Run) { r.Epoch = otherEpoch })
	book := Open([]Run{twice, second}, run(103, []gpu.ID{card0}, at(70)), looking())
	if len(book.Others) != 1 || book.Others[0].End != 42*time.Second || !book.Self.Alone {
		t.Errorf("a run whose job began anew before the driver was reloaded: %+v", book)
	}
}

// A hook that runs for a job refutes what a health check presumed of that job's end: no later job had the GPU alone.
func TestOwnEndRefutesThePresumedOne(t *testing.T) {
	presumed := saw(60)
	presumed.Unseen, presumed.Presumed = "job 104 was given its GPU", true
	for name, tt := range map[string]struct {
		ends []End
		end  time.Duration
	}{
		"presumed":        {[]End{presumed}, 0},
		"presumed, seen":  {[]End{presumed, saw(90)}, 90 * time.Second},
		"seen":            {[]End{saw(90)}, 90 * time.Second},
		"seen a 2nd time": {[]End{saw(80), saw(90)}, 80 * time.Second},
	} {
		self := run(102, []gpu.ID{card0}, at(40), tt.ends...)
		self.Key = "w1"
		book := Open([]Run{self, run(104, []gpu.ID{card0}, at(70))}, self, looking())
		if book.Self.End != tt.end || book.Self.Unseen || book.Others[0].Alone {
			t.Errorf("%s: %+v", name, book)
		}
	}
}

// An end may be another run's only where Slurm does not say which, and one of the same job has just ended.
func TestMistakable(t *testing.T) {
	job := slurm.Job{ID: 100, UID: 7}
	open := Run{Key: "w2", Job: job, Epoch: gpu.Epoch{Boot: "b"}, Start: &End{At: 30 * time.Second}}
	ended := func(change func(*Run)) []Run {
		r := Run{Key: "w1", Job: job, Epoch: gpu.Epoch{Boot: "b"}, Ends: []End{{At: 20 * time.Second}}}
		change(&r)
		return []Run{open, r}
	}
	same := func(*Run) {}
	sure := job
	sure.Start = time.Unix(1_790_000_000, 0)
	known := open
	known.Job.Start = sure.Start
	for name, tt := range map[string]struct {
		run  Run
		runs []Run
		job  slurm.Job
		now  time.Duration
		want bool
	}{
		"just ended":          {open, ended(same), job, time.Minute, true},
		"long ago":            {open, ended(same), job, time.Hour, false},
		"not by this clock":   {open, ended(same), job, 10 * time.Second, false},
		"the only run":        {open, []Run{open}, job, time.Minute, false},
		"this very run":       {open, ended(func(r *Run) { r.Key = "w2" }), job, time.Minute, false},
		"another job":         {open, ended(func(r *Run) { r.Job.ID = 101 }), job, time.Minute, false},
		"another user's":      {open, ended(func(r *Run) { r.Job.UID = 8 }), job, time.Minute, false},
		"of a former boot":    {open, ended(func(r *Run) { r.Epoch.Boot = "a" }), job, time.Minute, false},
		"still open":          {open, ended(func(r *Run) { r.Ends = nil }), job, time.Minute, false},
		"Slurm tells the run": {known, ended(same), sure, time.Minute, false},
	} {
		if got := tt.run.Mistakable(tt.runs, tt.job, tt.now, 5*time.Minute); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// runOn is a run on a card that it got clean, open where ends is 0.
func runOn(job slurm.JobID, card gpu.ID, starts, ends time.Duration) Run {
	r := Run{
		Job: slurm.Job{ID: job, Partition: "main"}, Epoch: life, Key: "w1",
		Devices: []Assigned{{Device: gpu.Device{ID: card}}},
		Start: &End{
			At: starts, Curves: map[gpu.ID]settle.Curve{card: {State: settle.Clean}},
			Snapshot: gpu.Snapshot{At: starts, Readings: []gpu.Reading{{Device: gpu.Device{ID: card}}}},
		},
	}
	if ends > 0 {
		r.Ends = []End{{At: ends}}
	}
	return r
}

func changed(r Run, change func(*Run)) Run {
	start := *r.Start
	r.Start = &start
	change(&r)
	return r
}

func TestUnended(t *testing.T) {
	open := runOn(100, "GPU-0", 10, 0)
	later := runOn(101, "GPU-0", 20, 30)
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		runs     []Run
		shared   bool
		want     string
		presumed bool
	}{
		"alone":                     {[]Run{open}, false, "", false},
		"its GPU was given again":   {[]Run{open, later}, false, "job 101 was given its GPU", true},
		"where GPUs come in parts":  {[]Run{open, later}, true, "", false},
		"another GPU was given":     {[]Run{open, runOn(101, "GPU-1", 20, 30)}, false, "", false},
		"the later one still runs":  {[]Run{open, runOn(101, "GPU-0", 20, 0)}, false, "", false},
		"the other one was earlier": {[]Run{open, runOn(99, "GPU-0", 5, 30)}, false, "", false},
		"the later one is itself settled": {[]Run{open,
			changed(later, func(r *Run) { r.Ends = []End{{At: 30, Unseen: "x"}} })}, false, "", false},
		"a partition that shares": {[]Run{open, changed(later, func(r *Run) { r.Job.Partition = "shared" })},
			false, "", false},
		"MPS": {[]Run{changed(open, func(r *Run) { r.Job.MPSPercent = "50" }), later},
			false, "", false},
		"the driver was reloaded": {[]Run{open, changed(later, func(r *Run) { r.Epoch = another })}, false,
			"job 101 was given its GPU", true},
		"it began without a driver": {[]Run{changed(open, func(r *Run) { r.Epoch = gpu.Epoch{Boot: "b"} }), later},
			false, "job 101 was given its GPU", true},
		"it knew no epoch": {[]Run{changed(open, func(r *Run) { r.Epoch = gpu.Epoch{} }), later}, false,
			"job 101 was given its GPU", true},
		"the later one knew no boot": {[]Run{open, changed(later, func(r *Run) { r.Epoch.Boot = "" })}, false, "", false},
		"its GPUs are unknown, one was given": {[]Run{changed(open, func(r *Run) { r.Devices = nil }), later}, false,
			"", false},
		"its GPUs are unknown, all were given": {[]Run{changed(open, func(r *Run) { r.Devices = nil }), later,
			runOn(102, "GPU-1", 40, 50)}, false, "later jobs were given every GPU of the node", true},
		"the later one did not get it clean": {[]Run{open,
			changed(later, func(r *Run) { r.Start.Curves = map[gpu.ID]settle.Curve{"GPU-0": {State: settle.Flat}} })},
			false, "", false},
		"somebody was on it": {[]Run{open, changed(later, func(r *Run) {
			r.Start.Snapshot.Readings = []gpu.Reading{{Device: gpu.Device{ID: "GPU-0"},
				Processes: []gpu.Process{{PID: 7}}}}
		})}, false, "", false},
		"a GPU without a name": {[]Run{runOn(100, "", 10, 0), runOn(101, "", 20, 30)}, false, "", false},
		"one of its GPUs has no name": {[]Run{changed(open, func(r *Run) {
			r.Devices = append(r.Devices, Assigned{Index: 1})
		}), later}, false, "job 101 was given its GPU", true},
		"no start on record": {[]Run{{Job: slurm.Job{ID: 100, Partition: "main"}, Epoch: life,
			Devices: open.Devices}, later}, false, "", false},
		"its job id began again": {[]Run{open, runOn(100, "GPU-1", 20, 0)}, true, "its job began again", false},
		"the later one was of a boot whose clock was ahead": {[]Run{changed(open, func(r *Run) { r.Start.Wall = noon }),
			changed(runOn(100, "GPU-0", 50, 60), func(r *Run) { r.Epoch.Boot, r.Start.Wall = "a", noon.Add(time.Hour) })},
			false, "", false},
		"of an earlier boot": {[]Run{changed(open, func(r *Run) { r.Epoch.Boot = "a" })}, true,
			"the node has booted since", false},
		"of an unknown boot":     {[]Run{changed(open, func(r *Run) { r.Epoch = gpu.Epoch{} })}, true, "", false},
		"its own end is on file": {[]Run{runOn(100, "GPU-0", 10, 15), later}, false, "", false},
	} {
		got := Unended(tt.runs, Node{Epoch: life, Shared: []string{"shared"}, GPUs: []gpu.ID{"GPU-0", "GPU-1"},
			Exclusive: func() bool { return !tt.shared }})
		switch {
		case tt.want == "" && len(got) == 0:
		case len(got) != 1 || got[0].Why != tt.want || got[0].Presumed != tt.presumed || got[0].Job.ID != 100 ||
			got[0].Over < 10:
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// An end that nobody saw is one for the ledger, and leaves the run open to the epilog that comes after all.
func TestUnseenEnd(t *testing.T) {
	r := runOn(100, "GPU-0", 10, 0)
	r.Ends = []End{{At: 20, Unseen: "job 101 was given its GPU", Presumed: true}}
	if !r.Closed() || r.Epilog() != nil {
		t.Error("it is over, and no one saw how")
	}
	if _, which := Match([]Run{r}, slurm.Job{ID: 100}); which != OpenRun {
		t.Errorf("an epilog finds it %s", which)
	}
	if rec := record(r); rec.End != 20 || !rec.Unseen {
		t.Errorf("%+v", rec)
	}
	r.Ends = append(r.Ends, End{At: 40})
	if rec := record(r); rec.End != 40 || rec.Unseen || r.Epilog() == nil {
		t.Errorf("after its epilog: %+v", rec)
	}
	if _, which := Match([]Run{r}, slurm.Job{ID: 100}); which != ClosedRun {
		t.Errorf("a second epilog finds it %s", which)
	}
}

// Who looks between jobs reads the same ledger, with nobody's run apart from the others.
func TestBetween(t *testing.T) {
	live, over := runOn(100, "GPU-0", 10, 0), runOn(101, "GPU-1", 10, 20)
	proofs := []finding.Sighting{{PID: 7, Start: time.Second, Owner: slurm.Owner{ID: 101}}}
	b := Open([]Run{live, over, changed(over, func(r *Run) { r.Epoch = another })}, Run{},
		Now{At: 30, Epoch: life, Proofs: proofs})
	if len(b.Others) != 2 || !b.Others[0].Live() || b.Others[1].Live() || !b.Others[1].Alone {
		t.Errorf("%+v", b.Others)
	}
	scene := finding.Scene{Self: b.Self, Others: b.Others, Now: finding.Side{Snapshot: gpu.Snapshot{At: 30}}}
	got := scene.Decide(finding.Process{PID: 7, Start: time.Second}, "GPU-1")
	if got.Job != 101 || got.Level != finding.BySighting {
		t.Errorf("%+v", got)
	}
}

// A job of whose GPUs only some are known may be on any other; on those that are known it still was alone.
func TestPartlyKnownGPUs(t *testing.T) {
	partly, other := run(100, []gpu.ID{card0}, at(1)), run(101, []gpu.ID{card1}, at(1))
	partly.Job.GPUIndexes = []int{0, 1}
	record := Open([]Run{partly, other}, Run{}, looking()).Others[0]
	if !partly.Bare().Given(card1) {
		t.Error("the shortest record of a job that has one more GPU than is known does not say so")
	}
	if !record.MayHold(card1) || !record.Alone || !partly.Given(card1) {
		t.Errorf("%+v, want one that may hold %s and had %s alone", record, card1, card0)
	}
	partly.Devices = append(partly.Devices, Assigned{Index: 1, Device: gpu.Device{ID: card1}})
	if record = Open([]Run{partly}, Run{}, looking()).Others[0]; record.MayHold("GPU-2") {
		t.Errorf("%+v, want one that holds its own GPUs alone", record)
	}
}
