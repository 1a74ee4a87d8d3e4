package stage

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/judge"
	"bookend/internal/operation"
	"bookend/internal/routine"
	"bookend/internal/settle"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// a hook of a node with state, at work.
func a(t *testing.T, phase slurm.Context) (r *record, run string) {
	t.Helper()
	run = t.TempDir()
	store, err := state.Open(run, "n1")
	if err != nil {
		t.Fatal(err)
	}
	r = &record{Driver: New(operation.Env{Clock: routine.SystemClock()}, phase)}
	r.Store, r.Config = store, config.Default()
	return r, run
}

// Clean-up is for the one epilog of a run that slurmd itself runs, where an admin wants it. A hook without time ends no
// process, and says so.
func TestCleanUp(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*judge.Case)
		want   bool
	}{
		"enabled":                   {func(*judge.Case) {}, true},
		"off":                       {func(c *judge.Case) { c.Config.CleanUp.Enabled = false }, false},
		"inside the job":            {func(c *judge.Case) { c.InJob = true }, false},
		"its end is on record":      {func(c *judge.Case) { c.Past.Again = true }, false},
		"another epilog is at work": {func(c *judge.Case) { c.Past.Second = true }, false},
	} {
		r, _ := a(t, slurm.Epilog)
		r.Config.CleanUp.Enabled = true
		tt.change(&r.Case)
		if got := r.mayCleanUp(); got != tt.want {
			t.Errorf("%s: may clean up: got %v, want %v", name, got, tt.want)
		}
		r.Limit(time.Second)
		if did, ended := r.endAll([]finding.Holder{{}}); len(did) != 1 || did[0].Unknown == "" || ended {
			t.Errorf("got %+v and %v, want one finding that says why, and nothing ended", did, ended)
		}
	}
}

// A start believes an earlier test only as long as it is the last one: another hook may test while this one looks.
func TestTestedWhileAStartLooks(t *testing.T) {
	const id = "GPU-0"
	r, _ := a(t, slurm.Prolog)
	r.Config.Probe.At = config.ProbeEpilog
	epoch := gpu.Epoch{Boot: "b", Driver: "570", Module: "1"}
	test := func(result gpu.ProbeResult) {
		r.Try(r.Store.PutProbes(health.TestRecord{
			Probe: gpu.Probe{Device: id, At: r.Clock.Boot(), Result: result}, Epoch: epoch,
			Kernel: gpu.KernelMark{Seq: 5}, Seen: 1,
		}))
	}
	r.Seen = judge.Seen{
		Epoch: epoch, Cards: []finding.Card{{Device: gpu.Device{ID: id}}}, Kernel: &gpu.KernelLog{},
		Side: finding.Side{
			Snapshot: gpu.Snapshot{At: r.Clock.Boot(), Readings: []gpu.Reading{{Device: gpu.Device{ID: id}}}},
			Curves:   map[gpu.ID]settle.Curve{id: {State: settle.Clean}},
		},
	}
	test(gpu.ProbeOK)
	earlier := r.earlierTests()
	for _, want := range []gpu.ProbeResult{gpu.ProbeOK, gpu.ProbeSkipped} {
		said, open := r.trusted(earlier)
		if len(said) != 1 || len(open) != 0 || said[0].Result != want {
			t.Errorf("got %+v, open %+v, want %s", said, open, want)
		}
		test(gpu.ProbeBroken)
	}
	if found := r.Take(); len(found) > 0 {
		t.Errorf("got %+v, want no trouble", found)
	}
}

// Records that are read again may be damaged by then: that is told, and once.
func TestDamageSinceTheFirstReading(t *testing.T) {
	r, run := a(t, slurm.Epilog)
	node := r.readNode()
	if found := r.Take(); len(found) > 0 {
		t.Fatalf("%+v", found)
	}
	job := filepath.Join(run, "state", "n1", "100")
	if err := os.Mkdir(job, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(job, "r1.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var told []finding.Finding
	for range 2 {
		r.again(*node)
		told = append(told, Once(r.Take(), told)...)
		if len(told) != 1 || told[0].Code != code.StateDamage {
			t.Errorf("got %+v, want the damage once", told)
		}
	}
}

// A finding is one line of the log, and the same one as long as only its figures wander.
func TestWords(t *testing.T) {
	index := 3
	f := finding.Finding{
		Code: code.Orphan, GPU: "GPU-a", Index: &index, Bytes: gpu.Bytes(2 << 30),
		Holder: &finding.Holder{Process: attrib.Process{PID: 70, Name: "x"}},
		Owner:  &finding.Owner{Job: 9, Level: attrib.BySighting},
	}
	for want, f := range map[string]finding.Finding{
		"GPU 3, 2048 MiB, process 70, job 9 (sighting)": f,
		"GPU GPU-a, unknown: no reading":                {Code: code.Unread, GPU: "GPU-a", Unknown: "no reading"},
		"as it was seen":                                {Code: code.BadEnv, Observed: "as it was seen"},
	} {
		if got := words(f); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	more := f
	if more.Bytes = gpu.Bytes(1); subject(f) != subject(more) {
		t.Errorf("%q, then %q: a figure that wanders is said again", subject(f), subject(more))
	}
}
