package stage

import (
	"testing"

	"bookend/internal/clock"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/judge"
	"bookend/internal/operation"
	"bookend/internal/session"
	"bookend/internal/settle"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// A start believes an earlier test only as long as it is the last one: another hook may test while this one looks.
func TestTestedWhileAStartLooks(t *testing.T) {
	const id = "GPU-0"
	store, err := state.Open(t.TempDir(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	d := session.New(operation.Env{Clock: clock.System()}, slurm.Prolog)
	d.Store, d.Config = store, config.Default()
	d.Config.Probe.At = config.ProbeEpilog
	epoch := gpu.Epoch{Boot: "b", Driver: "570", Module: "1"}
	test := func(r gpu.ProbeResult) {
		t.Helper()
		record := health.TestRecord{
			Probe: gpu.Probe{Device: id, At: d.Clock.Boot(), Result: r}, Epoch: epoch, Kernel: gpu.KernelMark{Seq: 5}, Seen: 1,
		}
		if err := store.PutProbes(record); err != nil {
			t.Fatal(err)
		}
	}
	c := judge.Case{Phase: slurm.Prolog, Config: d.Config, Seen: judge.Seen{
		Epoch: epoch, Cards: []finding.Card{{Device: gpu.Device{ID: id}}}, Kernel: &gpu.KernelLog{},
		Side: finding.Side{
			Snapshot: gpu.Snapshot{At: d.Clock.Boot(), Readings: []gpu.Reading{{Device: gpu.Device{ID: id}}}},
			Curves:   map[gpu.ID]settle.Curve{id: {State: settle.Clean}},
		},
	}}
	result := func(earlier map[gpu.ID]health.TestRecord) gpu.ProbeResult {
		t.Helper()
		said, open := trusted(d, c, earlier)
		if len(said) != 1 || len(open) != 0 {
			t.Fatalf("got %+v, open %+v", said, open)
		}
		return said[0].Probe.Result
	}
	test(gpu.ProbeOK)
	earlier := earlierTests(d)
	if got := result(earlier); got != gpu.ProbeOK {
		t.Errorf("no one tested since: got %s, want %s", got, gpu.ProbeOK)
	}
	test(gpu.ProbeBroken)
	if got := result(earlier); got != gpu.ProbeSkipped {
		t.Errorf("another hook tested meanwhile: got %s, want %s", got, gpu.ProbeSkipped)
	}
}
