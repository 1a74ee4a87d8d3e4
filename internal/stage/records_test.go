package stage

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"bookend/internal/backend"
	"bookend/internal/code"
	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/test/must"
)

// began puts the start of a job on record, and that of its end if it is closed, and returns an epilog of that job.
func began(t *testing.T, closed bool) *record {
	t.Helper()
	r, run := a(t, slurm.Epilog)
	r.Config.Paths.Run = run
	r.Job = slurm.Job{ID: 7, Node: "n1", UID: 1000, Start: time.Unix(1_800_000_000, 0), Context: slurm.Epilog}
	must.Do(t, r.Store.Begin(ledger.Run{Job: r.Job, Start: &ledger.End{At: time.Second}}))
	found, _, err := r.Store.Find(r.Job)
	must.Do(t, err)
	if r.Past.Run = found; closed {
		must.Do(t, r.Store.Close(found, ledger.End{At: 2 * time.Second}))
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
	for name, tt := range map[string]struct {
		r    *record
		want bool
	}{
		"open": {began(t, false), false}, "closed meanwhile": {began(t, true), true},
		"lost meanwhile": {lost, true}, "without a start": {without, false},
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
	reading := func(id gpu.ID) gpu.Reading { return gpu.Reading{Device: gpu.Device{ID: id}} }
	for name, tt := range map[string]struct {
		health []gpu.Health
		found  []finding.Finding
		want   bool
	}{
		"all of them":    {[]gpu.Health{{Device: "GPU-a"}, {Device: "GPU-b"}}, nil, true},
		"one of two":     {[]gpu.Health{{Device: "GPU-a"}}, nil, false},
		"none":           {nil, nil, false},
		"with a finding": {[]gpu.Health{{Device: "GPU-a"}, {Device: "GPU-b"}}, []finding.Finding{{Code: code.ECC}}, false},
	} {
		r, _ := a(t, slurm.HealthCheck)
		must.Do(t, r.Store.SetExamined(time.Second))
		r.Seen.Side.Snapshot.Readings = []gpu.Reading{reading("GPU-a"), reading("GPU-b")}
		r.Seen.Health, r.Found = tt.health, tt.found
		if r.examined(); (r.Store.Examined() > 0) != tt.want {
			t.Errorf("%s: examined at %v, want any %v", name, r.Store.Examined(), tt.want)
		}
	}
}

// What a job's numbers meant at its start they mean at its end, if the record surely is of this run.
func TestNumbersSettledAtTheStart(t *testing.T) {
	job := slurm.Job{ID: 7, GPUIndexes: []int{0, 3}, Start: time.Unix(1_800_000_000, 0)}
	run := ledger.Run{Job: job, Devices: []ledger.Assigned{{Index: 0}, {Index: 3}}}
	run.Numbering.Source = slurmconf.BySlurmd
	for name, tt := range map[string]struct {
		change func(*ledger.Run, *slurm.Job)
		want   bool
	}{
		"open":                          {func(*ledger.Run, *slurm.Job) {}, true},
		"open, without a start to tell": {func(_ *ledger.Run, j *slurm.Job) { j.Start = time.Time{} }, true},
		"closed, of this run":           {func(r *ledger.Run, _ *slurm.Job) { r.Ends = []ledger.End{{}} }, true},
		"closed, perhaps of another": {func(r *ledger.Run, j *slurm.Job) {
			r.Ends, j.Start = []ledger.End{{}}, time.Time{}
		}, false},
		"ambiguous":      {func(r *ledger.Run, _ *slurm.Job) { r.Numbering.Source = slurmconf.Ambiguous }, false},
		"without GPUs":   {func(r *ledger.Run, _ *slurm.Job) { r.Devices = nil }, false},
		"another number": {func(_ *ledger.Run, j *slurm.Job) { j.GPUIndexes = []int{0, 1} }, false},
		"one less":       {func(_ *ledger.Run, j *slurm.Job) { j.GPUIndexes = []int{0} }, false},
	} {
		r, j := run, job
		if tt.change(&r, &j); settled(r, j) != tt.want {
			t.Errorf("%s: got %v, want %v", name, !tt.want, tt.want)
		}
	}
}

// A lost GPU that the driver reports outside a reading may be another job's: it never drains.
func TestLostByTheDriver(t *testing.T) {
	r, _ := a(t, slurm.Epilog)
	faults := []gpu.Fault{{Code: gpu.FaultLost, Detail: "GPU is lost"}, {Code: gpu.FaultDriver, Detail: "oops"}}
	found := r.troubles(backend.Answer{Faults: faults}, "watch: ")
	i := slices.IndexFunc(found, func(f finding.Finding) bool { return f.Code == code.Lost })
	if len(found) != 2 || i < 0 || len(found[i].Doubts) != 1 || len(found[1-i].Doubts) != 0 {
		t.Errorf("%+v", found)
	}
}

// An exit that a damaged record held is forgotten, also when an earlier hook met the damage and even when the GPUs have
// been clean since: the health check does not resume the node without it.
func TestDrainOfADamagedRecord(t *testing.T) {
	r := began(t, false)
	r.Seen.Epoch.Boot = "b1"
	in := r.drainInput(drain.Memory{})
	must.Not(t, in.Partial || in.Lost, "a whole record: %+v", in)
	records := must.Have(filepath.Glob(filepath.Join(r.Config.Paths.Run, "state/n1/*/*.json")))(t)
	must.Be(t, "records", len(records), 1)
	must.Do(t, os.WriteFile(records[0], []byte("{"), 0o600))
	_, damage := r.Store.Runs()
	must.Be(t, "an earlier hook's damage", len(damage), 1)
	in = r.drainInput(drain.Memory{})
	must.Not(t, in.Partial || !in.Lost, "set aside: %+v", in)
	must.Do(t, r.Store.Settle(7))
	in = r.drainInput(drain.Memory{})
	must.Not(t, in.Partial || !in.Lost, "settled: %+v", in)
}
