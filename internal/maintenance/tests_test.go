package maintenance

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/must"
	"bookend/test/onrecord"
)

// A start believes an earlier test only as long as it is the last one: another hook may test while this one looks.
func TestTestedWhileAStartLooks(t *testing.T) {
	const id = "GPU-0"
	a, _ := onrecord.Node(t, slurm.Prolog)
	c := a.Case()
	c.Config.Probe.At = config.ProbeEpilog
	epoch := gpu.Epoch{Boot: "b", Driver: "570", Module: "1"}
	test := func(result gpu.ProbeResult) {
		must.Do(t, state.Probes.Put(a.Store, record.TestRecord{
			Probe: gpu.Probe{Device: id, At: a.Env.Clock.Boot(), Result: result}, Epoch: epoch,
			Kernel: gpu.KernelMark{Seq: 5}, Seen: 1,
		}))
	}
	c.Seen = judge.Seen{
		Epoch: epoch, Cards: []record.Assigned{{Device: gpu.Device{ID: id}}}, Kernel: &gpu.KernelLog{},
		Side: record.Side{
			Snapshot: gpu.Snapshot{At: a.Env.Clock.Boot(), Readings: []gpu.Reading{{Device: gpu.Device{ID: id}}}},
			Curves:   map[gpu.ID]record.Curve{id: {State: record.Clean}},
		},
	}
	test(gpu.ProbeOK)
	earlier := must.Have(state.Probes.Load(a.Store))(t)
	for _, want := range []gpu.ProbeResult{gpu.ProbeOK, gpu.ProbeSkipped} {
		l := lastAtStart(a, c, earlier)
		if len(l.outcomes) != 1 || len(l.open)+len(l.faults) != 0 || l.outcomes[0].Result != want {
			t.Errorf("got %+v, want %s", l, want)
		}
		test(gpu.ProbeBroken)
	}
}

// Tests take no longer than their own limit, what the deadline leaves and, in a prolog, what is left of the driver's
// time. Only as many GPUs are tested as fit into that.
func TestRoomForTests(t *testing.T) {
	const sec, ms = time.Second, time.Millisecond
	for name, tt := range map[string]struct {
		phase  slurm.Context
		now    time.Duration // since the hook began
		cards  int
		budget time.Duration
		room   int
	}{
		"an end":                       {slurm.Epilog, 1 * sec, 2, 2200 * ms, 2},
		"an end, late":                 {slurm.Epilog, 7500 * ms, 2, 1500 * ms, 2},
		"an end, too late for two":     {slurm.Epilog, 8 * sec, 2, 1 * sec, 1},
		"an end, too late":             {slurm.Epilog, 8500 * ms, 1, 500 * ms, 0},
		"just enough":                  {slurm.Epilog, 8050 * ms, 1, 950 * ms, 1},
		"a start":                      {slurm.Prolog, 1 * sec, 2, 2200 * ms, 2},
		"a start, the driver was slow": {slurm.Prolog, 3 * sec, 2, 1 * sec, 1},
	} {
		at := child.Clock{Boot: func() time.Duration { return 100*sec + tt.now }}
		a := &node.Access{
			Env: child.Env{Clock: at}, Deadline: child.Deadline{Start: 100 * sec, End: 110 * sec, Clock: at}, Phase: tt.phase,
		}
		a.Times.Driver, a.Times.Probe = config.Duration(4*sec), config.Duration(2200*ms)
		a.Times.Outputs = config.Duration(sec)
		tester := &tester{a: a, starts: tt.phase == slurm.Prolog}
		if budget, room := tester.budget(), tester.room(tt.cards); budget != tt.budget || room != tt.room {
			t.Errorf("%s: got %v for %d GPUs, want %v for %d", name, budget, room, tt.budget, tt.room)
		}
	}
}

// The memory of as many GPUs is written and read as there is time for, those first for which it is longest ago. A start
// takes no time for it.
func TestRoomForPatterns(t *testing.T) {
	const hour = time.Hour
	at := child.Clock{Boot: func() time.Duration { return 100 * hour }}
	pattern := func(ago time.Duration) record.TestRecord {
		return record.TestRecord{Probe: gpu.Probe{Pattern: &gpu.Pattern{At: 100*hour - ago, Bytes: 1}}}
	}
	last := map[gpu.ID]record.TestRecord{"a": pattern(hour), "b": pattern(30 * hour), "c": pattern(40 * hour)}
	cards := []record.Assigned{{Device: gpu.Device{ID: "a"}}, {Device: gpu.Device{ID: "b"}}, {Device: gpu.Device{ID: "c"}}}
	for limit, want := range map[time.Duration]string{
		time.Second: "[c]", 3 * time.Second: "[c]", 4 * time.Second: "[c b]", 20 * time.Second: "[c b]",
	} {
		a := &node.Access{
			Env:   child.Env{Clock: at},
			Phase: slurm.Epilog, Deadline: child.Deadline{Start: 100 * hour, End: 101 * hour, Clock: at},
		}
		a.Times.Probe, a.Config.Probe.Pattern = config.Duration(limit), config.Duration(24*hour)
		for starts, want := range map[bool]string{false: want, true: ""} {
			got := (&tester{a: a, starts: starts, last: last}).patterns(cards)
			if text := fmt.Sprint(got); text != cmp.Or(want, "[]") {
				t.Errorf("%v, at a start %v: got %v, want %v", limit, starts, got, want)
			}
		}
	}
}

// Right before a test the records are read again: no hook tests whose end another has put on record meanwhile, or whose
// start is on record no more. Without a start there is none to lose.
func TestRecheck(t *testing.T) {
	for name, tt := range map[string]struct {
		starts, known, closed bool // a start, of a run that this hook knows, which is closed
		job                   slurm.JobID
		want                  bool
	}{
		"open":                       {known: true, job: 7},
		"closed meanwhile":           {known: true, closed: true, job: 7, want: true},
		"lost meanwhile":             {known: true, job: 8, want: true},
		"without a start":            {job: 8},
		"a start":                    {starts: true, job: 8},
		"begun meanwhile":            {starts: true, job: 7, want: true},
		"begun and closed meanwhile": {starts: true, closed: true, job: 7, want: true},
	} {
		a, c := onrecord.Epilog(t, tt.closed) // of job 7
		if a.Job.ID = tt.job; !tt.known {
			c.Past.Run = record.Run{}
		}
		if _, again, _ := (&tester{a: a, starts: tt.starts}).recheck(c, true); again != tt.want {
			t.Errorf("%s: another hook was here: got %v, want %v", name, again, tt.want)
		}
	}
}

// Only the first hook of a start or end makes a test allocation.
func TestOnlyTheFirstTests(t *testing.T) {
	a, _ := onrecord.Node(t, slurm.Epilog)
	cards := []record.Assigned{{Device: gpu.Device{ID: "GPU-0"}}}
	tester := &tester{a: a}
	tested, skipped := tester.test(judge.Undecided, cards, nil)
	const want = "whether another hook of this job is at work could not be told"
	if len(tested)+len(tester.faults) != 0 || len(skipped) != 1 || skipped[0].Why != want {
		t.Errorf("got %+v, %+v and %+v, want one that was skipped", tested, skipped, tester.faults)
	}
}
