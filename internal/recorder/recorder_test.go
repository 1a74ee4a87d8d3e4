package recorder

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/must"
	"bookend/test/onrecord"
)

// The recorder begins no session too early after the last, nor while the driver's modules are in use as they were then.
func TestBeginSession(t *testing.T) {
	a, run := onrecord.Node(t, slurm.Epilog)
	a.Config.Paths.Sys, a.Config.Backend = t.TempDir(), filepath.Join(run, "missing")
	a.Env.Clock.Boot = func() time.Duration { return time.Hour }
	module := filepath.Join(a.Config.Paths.Sys, "module/nvidia")
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
		rec := recorder{a: a, env: a.Env, ended: make(chan end, 1), sessions: map[string]*session{}, pauses: map[string]pause{"nvidia": tt.last}}
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
	a, run := onrecord.Node(t, slurm.Epilog)
	a.Config.Paths.Sys, a.Config.Backend = t.TempDir(), filepath.Join(run, "missing")
	rec := recorder{a: a, env: a.Env, ended: make(chan end, len(gpu.Vendors)), sessions: map[string]*session{}, pauses: map[string]pause{}}
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

// Searches for the files of many jobs leave time for samples, and each job has its turn.
func TestNoteOutputs(t *testing.T) {
	a, _ := onrecord.Node(t, slurm.Epilog)
	now := time.Hour
	a.Env.Clock.Boot = func() time.Duration { now += 400 * time.Millisecond; return now } // as if each search took that
	var runs []record.Run
	for id := range slurm.JobID(20) {
		runs = append(runs, record.Run{Job: slurm.Job{ID: id + 1}, Key: "w1", Start: &record.End{At: time.Minute}})
	}
	rec, before := recorder{a: a, env: a.Env}, map[string]time.Duration{}
	for pass := range 10 {
		began, searched := now, 0
		rec.noteOutputs(runs)
		for name, age := range rec.searched {
			if age != before[name] {
				searched++
			}
		}
		if before = rec.searched; searched == 0 || searched > 3 {
			t.Errorf("pass %d: %d of %d searched, in %v", pass, searched, len(runs), now-began)
		}
	}
	for name, age := range rec.searched {
		must.Not(t, age == 0, "%s was never searched", name)
	}
}

// A recorder whose configuration changes goes on with the state that it has locked, also where that cannot be opened
// just now, and leaves another state to another recorder.
func TestChangedConfiguration(t *testing.T) {
	a, run := onrecord.Node(t, slurm.Epilog)
	file := filepath.Join(run, "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	for name, tt := range map[string]struct {
		run   string
		every time.Duration
		want  bool
	}{
		"the same state":        {run, time.Second, true},
		"not to be opened now":  {filepath.Join(file, "run"), time.Second, true},
		"another state":         {t.TempDir(), time.Second, false},
		"nothing to record now": {run, 0, false},
	} {
		rec, next := recorder{a: a}, node.With(a.Env, slurm.Epilog, a.Config, 0)
		next.Config.Paths.Run, next.Job.Node, next.Config.Record.Every = tt.run, "n1", config.Duration(tt.every)
		if got := rec.adopt(next); got != tt.want || rec.a.Store == nil {
			t.Errorf("%s: goes on %v, want %v, with %v", name, got, tt.want, rec.a.Store)
		}
	}
}

// An error is on record at once, whether the kernel log or the driver reports it: of an open run, on its own GPU, and
// only one that has occurred since the run began, however late it is read.
func TestFaults(t *testing.T) {
	a, _ := onrecord.Node(t, slurm.Epilog)
	now := 10 * time.Second
	a.Env.Clock.Boot = func() time.Duration { return now }
	gpuA := gpu.Device{ID: "GPU-a", BusID: "0000:1b:00.0"}
	run := record.Run{Job: slurm.Job{ID: 7}, Key: "w1", Start: &record.End{At: 5 * time.Second},
		Devices: []record.Assigned{{Device: gpuA}}}
	var log []gpu.Xid
	rec := recorder{a: a, env: a.Env, news: func() []gpu.Xid { return log }, reports: map[string]string{},
		words: func(*node.Access, record.Run, record.Recording, record.Side, bool) (_, _ string) { return }}
	s := &session{vendor: gpu.NVIDIA.Name}
	sample := func(events ...gpu.Event) {
		now += time.Second
		rec.take(taken{s, gpu.Snapshot{At: now, Readings: []gpu.Reading{{Device: gpuA}}, Events: events}}, []record.Run{run})
	}
	read := func(xids ...gpu.Xid) {
		log = xids
		rec.keepLogged([]record.Run{run})
	}
	early, other := gpu.Event{Device: gpuA.ID, Code: 13}, gpu.Event{Device: "GPU-b", Code: 48}
	sample(early) // when the first sample of a session was is not known to be after the run's start
	read(gpu.Xid{BusID: gpuA.BusID, Code: 14})
	sample(gpu.Event{Device: gpuA.ID, Code: 79}, other)
	read(gpu.Xid{BusID: gpuA.BusID, Code: 79}, gpu.Xid{BusID: gpuA.BusID, Code: 31, More: 2}, gpu.Xid{BusID: "0000:2b:00.0", Code: 48}, gpu.Xid{Code: 62})
	got := state.Recorded.Peek(a.Store).Runs.About(run)
	if got == nil || len(got.GPUs) != 1 || len(got.GPUs[0].Faults) != 2 {
		t.Fatalf("%+v", got)
	}
	lost, fault := got.GPUs[0].Faults[0], got.GPUs[0].Faults[1]
	if lost.Code != 79 || lost.First != now || lost.Wall.IsZero() || lost.Lines != 1 || lost.Events != 1 {
		t.Errorf("%+v", lost)
	}
	if fault.Code != 31 || fault.Lines != 3 || fault.Events != 0 {
		t.Errorf("%+v", fault)
	}
}

// A sample is an answer of the driver: hooks need not wait for one another.
func TestSampleIsAnAnswer(t *testing.T) {
	a, _ := onrecord.Node(t, slurm.Epilog)
	met := must.Have(a.Store.Turns.AskDriver(state.Library, time.Now(), 0))(t)
	defer met(false)
	must.Fail(t, "before the sample", must.Err(a.Store.Turns.AskDriver(state.Library, time.Now(), 0)), state.ErrLocked)
	rec := recorder{a: a, env: a.Env, reports: map[string]string{}}
	rec.take(taken{&session{vendor: gpu.NVIDIA.Name}, gpu.Snapshot{At: time.Second}}, nil)
	must.Do(t, must.Err(a.Store.Turns.AskDriver(state.Library, time.Now(), 0)))
}
