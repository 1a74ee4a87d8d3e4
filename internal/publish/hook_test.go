package publish

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/drain"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
	"bookend/test/onrecord"
)

// A finding is one line of the log, and the same one as long as only its figures wander.
func TestWords(t *testing.T) {
	index := 3
	f := record.Finding{
		Code: catalog.Orphan, GPU: "GPU-a", Index: &index, Bytes: gpu.Bytes(2 << 30),
		Holder: &record.Holder{Process: record.Process{PID: 70, Name: "x"}},
		Owner:  &record.Owner{Job: 9, Level: record.BySighting},
	}
	for want, f := range map[string]record.Finding{
		"GPU 3, 2048 MiB, process 70, job 9 (sighting)": f,
		"GPU GPU-a, unknown: no reading":                {Code: catalog.Unread, GPU: "GPU-a", Unknown: "no reading"},
		"as it was seen":                                {Code: catalog.BadEnv, Observed: "as it was seen"},
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

// Of two hooks that drain at the same moment one writes its reason: not the one whose decision another has overtaken.
func TestOneReason(t *testing.T) {
	for _, overtaken := range []bool{true, false} {
		a, run := onrecord.Node(t, slurm.Epilog)
		a.Config.Slurm.Scontrol = filepath.Join(run, "missing")
		if overtaken {
			must.Do(t, a.Store.SwapDrain(drain.Remembered{}, drain.Remembered{Settled: []drain.Ref{{Job: 6}}}))
		}
		own := drain.Exit{Ref: drain.Ref{Job: 7, At: time.Hour}, Phase: slurm.Epilog, Wall: a.Env.Clock.Wall(),
			Reason: "BKD-RESIDUE gpu=0 600MiB job=7 epilog; see: bookend show 7", Causes: []drain.Cause{{Code: catalog.Residue, GPU: "GPU-a"}}}
		_, err := writeReason(a, scontrol(a, "", func() time.Duration { return time.Second }), drain.Facts{Now: a.Env.Clock.Wall()}, own)
		if (err == nil) != overtaken {
			t.Errorf("overtaken %v: %v, want scontrol, which is missing, started or not", overtaken, err)
		}
	}
}

// An exit that a damaged record held is forgotten, also when an earlier hook met the damage and even when the GPUs have
// been clean since: the health check does not resume the node without it.
func TestDrainOfADamagedRecord(t *testing.T) {
	a, _ := onrecord.Epilog(t, false)
	input := func() drain.Facts {
		in, _ := drainInput(a, judge.Seen{Epoch: gpu.Epoch{Boot: "b1"}}, drain.Remembered{})
		return in
	}
	in := input()
	must.Not(t, in.Partial || in.Lost, "a whole record: %+v", in)
	records := must.Have(filepath.Glob(filepath.Join(a.Config.Paths.Run, "state/n1/*/*.json")))(t)
	must.Be(t, "records", len(records), 1)
	must.Do(t, os.WriteFile(records[0], []byte("{"), 0o600))
	_, damage := a.Store.Runs()
	must.Be(t, "an earlier hook's damage", len(damage), 1)
	in = input()
	must.Not(t, in.Partial || !in.Lost, "set aside: %+v", in)
	must.Do(t, a.Store.Settle(7))
	in = input()
	must.Not(t, in.Partial || !in.Lost, "settled: %+v", in)
}
