package stage

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"bookend/internal/backend"
	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/gpu"
	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/test/must"
)

// began puts the start of a job on record, and that of its end if it is closed, and returns an epilog of that job.
func began(t *testing.T, closed bool) *work {
	t.Helper()
	r, run := a(t, slurm.Epilog)
	r.Config.Paths.Run = run
	r.Job = slurm.Job{ID: 7, Node: "n1", UID: 1000, Start: time.Unix(1_800_000_000, 0), Context: slurm.Epilog}
	must.Do(t, r.Store.Begin(record.Run{Job: r.Job, Start: &record.End{At: time.Second}}))
	found, _, err := r.Store.Find(r.Job)
	must.Do(t, err)
	if r.Past.Run = found; closed {
		must.Do(t, r.Store.Close(found, record.End{At: 2 * time.Second}))
	}
	return r
}

// Right before a test the records are read again: no hook tests whose end another has put on record meanwhile, or whose
// start is on record no more. Without a start there is none to lose.
func TestRecheck(t *testing.T) {
	lost := began(t, false)
	lost.Job.ID = 8 // of which nothing is on record
	without, _ := a(t, slurm.Epilog)
	without.Job = slurm.Job{ID: 7, Node: "n1"}
	starting := func(r *work) *work { r.Phase, r.Past.Run = slurm.Prolog, record.Run{}; return r }
	first, _ := a(t, slurm.Prolog)
	first.Job = without.Job
	for name, tt := range map[string]struct {
		r    *work
		want bool
	}{
		"open": {began(t, false), false}, "closed meanwhile": {began(t, true), true},
		"lost meanwhile": {lost, true}, "without a start": {without, false},
		"a start": {first, false}, "begun meanwhile": {starting(began(t, false)), true},
		"begun and closed meanwhile": {starting(began(t, true)), true},
	} {
		tt.r.Sharing = &slurmconf.Answer{Shared: slurmconf.No}
		if _, again := tt.r.recheck(); again != tt.want {
			t.Errorf("%s: another hook was here: got %v, want %v", name, again, tt.want)
		}
	}
}

// A hook that had to wait for the first of its kind takes its place only if that has not closed the run.
func TestOutlast(t *testing.T) {
	for _, closed := range []bool{true, false} {
		r := began(t, closed)
		r.Past.Second = true
		if r.outlast(); r.Past.Second || r.Past.Again != closed {
			t.Errorf("closed by the first %v: second %v, again %v", closed, r.Past.Second, r.Past.Again)
		}
	}
}

// Slow facts are spared only if the job and all its steps ended well, and a health check has read them lately.
func TestBrief(t *testing.T) {
	well := slurm.ExitStatus{Known: true}
	for name, tt := range map[string]struct {
		exit slurm.ExitStatus
		ago  time.Duration
		want bool
	}{
		"ended well":           {well, time.Minute, true},
		"failed":               {slurm.ExitStatus{Known: true, Raw: 256}, time.Minute, false},
		"a step failed":        {slurm.ExitStatus{Known: true, Derived: 1}, time.Minute, false},
		"not known":            {slurm.ExitStatus{}, time.Minute, false},
		"read long ago":        {well, 11 * time.Minute, false},
		"read in time to come": {well, -time.Minute, false},
	} {
		r, _ := a(t, slurm.Epilog)
		r.Clock.Boot = func() time.Duration { return time.Hour }
		r.Job.Exit = tt.exit
		must.Do(t, r.Store.SetExamined(time.Hour-tt.ago))
		if got := r.brief(); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// Ends do without slow facts only after a health check that read those of every GPU and found nothing.
func TestExamined(t *testing.T) {
	both := []gpu.Health{{Device: "GPU-a"}, {Device: "GPU-b"}}
	two := []gpu.Reading{{Device: gpu.Device{ID: "GPU-a"}}, {Device: gpu.Device{ID: "GPU-b"}}}
	for name, tt := range map[string]struct {
		seen   []gpu.Reading
		health []gpu.Health
		found  []record.Finding
		want   bool
	}{
		"all of them":    {two, both, nil, true},
		"one of two":     {two, both[:1], nil, false},
		"none":           {two, nil, nil, false},
		"nothing seen":   {nil, nil, nil, false},
		"with a finding": {two, both, []record.Finding{{Code: catalog.ECC}}, false},
	} {
		r, _ := a(t, slurm.HealthCheck)
		must.Do(t, r.Store.SetExamined(time.Second))
		r.Seen.Side.Snapshot.Readings, r.Seen.Health, r.Found = tt.seen, tt.health, tt.found
		if r.examined(); (r.Store.Examined() > 0) != tt.want {
			t.Errorf("%s: examined at %v, want any %v", name, r.Store.Examined(), tt.want)
		}
	}
}

// What a job's numbers meant at its start they mean at its end, if the record surely is of this run.
func TestNumbersSettledAtTheStart(t *testing.T) {
	job := slurm.Job{ID: 7, GPUIndexes: []int{0, 3}, Start: time.Unix(1_800_000_000, 0)}
	run := record.Run{Job: job, Devices: []record.Assigned{{Index: 0}, {Index: 3}}}
	run.Numbering.Source = record.BySlurmd
	for name, tt := range map[string]struct {
		change func(*record.Run, *slurm.Job)
		want   bool
	}{
		"open":                          {func(*record.Run, *slurm.Job) {}, true},
		"open, without a start to tell": {func(_ *record.Run, j *slurm.Job) { j.Start = time.Time{} }, true},
		"closed, of this run":           {func(r *record.Run, _ *slurm.Job) { r.Ends = []record.End{{}} }, true},
		"closed, perhaps of another": {func(r *record.Run, j *slurm.Job) {
			r.Ends, j.Start = []record.End{{}}, time.Time{}
		}, false},
		"ambiguous":      {func(r *record.Run, _ *slurm.Job) { r.Numbering.Source = record.Ambiguous }, false},
		"without GPUs":   {func(r *record.Run, _ *slurm.Job) { r.Devices = nil }, false},
		"another number": {func(_ *record.Run, j *slurm.Job) { j.GPUIndexes = []int{0, 1} }, false},
		"one less":       {func(_ *record.Run, j *slurm.Job) { j.GPUIndexes = []int{0} }, false},
	} {
		r, j := run, job
		if tt.change(&r, &j); settled(r, j) != tt.want {
			t.Errorf("%s: got %v, want %v", name, !tt.want, tt.want)
		}
	}
}

// Clean-up tells of which GPU it ended a process, by the first that lists it; one that only had a GPU open is on none.
func TestEndedOn(t *testing.T) {
	r, _ := a(t, slurm.Epilog)
	for i, id := range []gpu.ID{"GPU-a", "GPU-b", "GPU-c"} {
		device := gpu.Device{ID: id}
		r.Seen.Cards = append(r.Seen.Cards, record.Assigned{Index: i, Device: device})
		reading := gpu.Reading{Device: device}
		if i > 0 {
			reading.Processes = []gpu.Process{{PID: 70}}
		}
		r.Seen.Side.Snapshot.Readings = append(r.Seen.Side.Snapshot.Readings, reading)
	}
	for pid, want := range map[int]gpu.ID{70: "GPU-b", 71: ""} {
		f := r.outcome(record.Holder{Process: record.Process{PID: pid}}, procscan.CleanupResult{PID: pid})
		if f.GPU != want || (f.Index != nil) != (want != "") || f.Index != nil && *f.Index != 1 {
			t.Errorf("process %d: %+v, want it on %q", pid, f, want)
		}
	}
}

// Each hook has its own phase's deadlines; a health check has its own, and watches as an end does.
func TestTimesOfAPhase(t *testing.T) {
	want := config.Default()
	for phase, times := range map[slurm.Context]config.HookDeadline{
		slurm.Prolog: want.Deadlines.Prolog, slurm.Epilog: want.Deadlines.Epilog,
		slurm.HealthCheck: want.Deadlines.HealthCheck.Hook(),
	} {
		missing := filepath.Join(t.TempDir(), "missing.yaml")
		d := New(child.Env{Getenv: func(string) string { return missing }, EUID: 1, Clock: child.SystemClock()}, phase)
		d.Configure()
		settle := want.Settle.Epilog
		if phase == slurm.Prolog {
			settle = want.Settle.Prolog
		}
		if d.Times != times || d.Settle != settle {
			t.Errorf("%s: %+v and %+v, want %+v and %+v", phase, d.Times, d.Settle, times, settle)
		}
	}
}

// Of two hooks that drain at the same moment one writes its reason: not the one whose decision another has overtaken.
func TestOneReason(t *testing.T) {
	for _, overtaken := range []bool{true, false} {
		r, run := a(t, slurm.Epilog)
		r.Job.Node, r.Config.Slurm.Scontrol = "n1", filepath.Join(run, "missing")
		if overtaken {
			must.Do(t, r.Store.SwapDrain(drain.Remembered{}, drain.Remembered{Settled: []drain.Ref{{Job: 6}}}))
		}
		own := drain.Exit{Ref: drain.Ref{Job: 7, At: time.Hour}, Phase: slurm.Epilog, Wall: r.Clock.Wall(),
			Reason: "BKD-RESIDUE gpu=0 600MiB job=7 epilog; see: bookend show 7", Causes: []drain.Cause{{Code: catalog.Residue, GPU: "GPU-a"}}}
		err := r.writeReason(r.scontrol("", func() time.Duration { return time.Second }), drain.Facts{Now: r.Clock.Wall()}, own)
		if (err == nil) != overtaken {
			t.Errorf("overtaken %v: %v, want scontrol, which is missing, started or not", overtaken, err)
		}
	}
}

// An end that could not look keeps the GPUs of the start; one that could adds its own, and completes a start's life of
// the driver only where that knew none.
func TestCompleted(t *testing.T) {
	old, now := gpu.Epoch{Boot: "b", Driver: "570", Module: "1"}, gpu.Epoch{Boot: "b", Driver: "580", Module: "2"}
	of := func(ids ...gpu.ID) (all []record.Assigned) {
		for _, id := range ids {
			all = append(all, record.Assigned{Device: gpu.Device{ID: id}})
		}
		return all
	}
	for name, tt := range map[string]struct {
		began       gpu.Epoch
		start, seen []record.Assigned
		want        []record.Assigned
		epoch       gpu.Epoch
	}{
		"nothing seen":             {old, of("GPU-a"), nil, of("GPU-a"), old},
		"seen":                     {old, of("GPU-a"), of("GPU-a"), of("GPU-a"), old},
		"not known at the start":   {old, of(""), of("GPU-b"), of("GPU-b"), old},
		"of a later run":           {old, of("GPU-a", "GPU-b"), of("GPU-b", "GPU-c"), of("GPU-b", "GPU-c", "GPU-a"), old},
		"began without the driver": {gpu.Epoch{}, of("GPU-a"), nil, of("GPU-a"), now},
	} {
		r, _ := a(t, slurm.Epilog)
		r.Past.Run = record.Run{Epoch: tt.began, Devices: tt.start}
		r.Seen.Cards, r.Seen.Epoch = tt.seen, now
		if run := r.completed(); !slices.Equal(run.Devices, tt.want) || run.Epoch != tt.epoch {
			t.Errorf("%s: %+v, want %+v in %+v", name, run, tt.want, tt.epoch)
		}
	}
}

// The recorder begins no session too early after the last, nor while the driver's modules are in use as they were then.
func TestBeginSession(t *testing.T) {
	r, run := a(t, slurm.Epilog)
	r.Config.Paths.Run, r.Config.Paths.Sys, r.Config.Backend = run, t.TempDir(), filepath.Join(run, "missing")
	r.Clock.Boot = func() time.Duration { return time.Hour }
	module := filepath.Join(r.Config.Paths.Sys, "module/nvidia")
	must.Do(t, os.MkdirAll(module, 0o755))
	must.Do(t, os.WriteFile(filepath.Join(module, "refcnt"), []byte("3\n"), 0o600))
	for name, tt := range map[string]struct {
		last pause
		want bool
	}{
		"the first":          {pause{}, true},
		"too early":          {pause{until: time.Hour + 1}, false},
		"late enough":        {pause{until: time.Hour}, true},
		"in use as it was":   {pause{in: "nvidia=3 "}, false},
		"in use by one more": {pause{in: "nvidia=2 "}, true},
		"and that too early": {pause{until: time.Hour + 1, in: "nvidia=2 "}, false},
	} {
		rec := recorder{Driver: r.Driver, ended: make(chan end, 1), sessions: map[string]*session{}, pauses: map[string]pause{"nvidia": tt.last}}
		rec.begin("nvidia", nil)
		s := rec.sessions["nvidia"]
		if (s != nil) != tt.want {
			t.Errorf("%s: begun %v, want %v", name, s != nil, tt.want)
		}
		if s != nil {
			<-rec.ended
		}
	}
}

// The recorder keeps sessions only on GPUs of open runs, each GPU once.
func TestFollow(t *testing.T) {
	r, run := a(t, slurm.Epilog)
	r.Config.Paths.Run, r.Config.Paths.Sys, r.Config.Backend = run, t.TempDir(), filepath.Join(run, "missing")
	rec := recorder{Driver: r.Driver, ended: make(chan end, len(gpu.Vendors)), sessions: map[string]*session{}, pauses: map[string]pause{}}
	of := func(ids ...gpu.ID) (run record.Run) {
		for _, id := range ids {
			run.Devices = append(run.Devices, record.Assigned{Device: gpu.Device{ID: id, Vendor: gpu.NVIDIA.Name}})
		}
		return run
	}
	rec.follow([]record.Run{of("GPU-a", "GPU-b"), of("GPU-b", "")})
	if s := rec.sessions[gpu.NVIDIA.Name]; len(rec.sessions) != 1 || s == nil || len(s.devices) != 2 {
		t.Errorf("%+v", rec.sessions)
	}
	if rec.follow(nil); len(rec.sessions) > 0 {
		t.Errorf("without a run: %+v", rec.sessions)
	}
}

// A lost GPU that the driver reports outside a reading may be another job's: it never drains.
func TestLostByTheDriver(t *testing.T) {
	r, _ := a(t, slurm.Epilog)
	faults := []gpu.Fault{{Code: gpu.FaultLost, Detail: "GPU is lost"}, {Code: gpu.FaultDriver, Detail: "oops"}}
	found := r.troubles(backend.Answer{Faults: faults}, "watch: ")
	i := slices.IndexFunc(found, func(f record.Finding) bool { return f.Code == catalog.Lost })
	if len(found) != 2 || i < 0 || len(found[i].Doubts) != 1 || len(found[1-i].Doubts) != 0 {
		t.Errorf("%+v", found)
	}
}

// An exit that a damaged record held is forgotten, also when an earlier hook met the damage and even when the GPUs have
// been clean since: the health check does not resume the node without it.
func TestDrainOfADamagedRecord(t *testing.T) {
	r := began(t, false)
	r.Seen.Epoch.Boot = "b1"
	in := r.drainInput(drain.Remembered{})
	must.Not(t, in.Partial || in.Lost, "a whole record: %+v", in)
	records := must.Have(filepath.Glob(filepath.Join(r.Config.Paths.Run, "state/n1/*/*.json")))(t)
	must.Be(t, "records", len(records), 1)
	must.Do(t, os.WriteFile(records[0], []byte("{"), 0o600))
	_, damage := r.Store.Runs()
	must.Be(t, "an earlier hook's damage", len(damage), 1)
	in = r.drainInput(drain.Remembered{})
	must.Not(t, in.Partial || !in.Lost, "set aside: %+v", in)
	must.Do(t, r.Store.Settle(7))
	in = r.drainInput(drain.Remembered{})
	must.Not(t, in.Partial || !in.Lost, "settled: %+v", in)
}
