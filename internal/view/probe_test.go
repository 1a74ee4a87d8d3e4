package view

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/probe"
)

const large = gpu.ProbeOK

func TestJobHasItsTests(t *testing.T) {
	r := heir()
	r.Start.At, r.Ends[0].At = 100*time.Second, 200*time.Second // both at 07:35:20
	r.Start.Probes = []gpu.Probe{{
		Device: card0, Result: large, Free: gpu.Bytes(900 << 20), Largest: gpu.Bytes(898 << 20), Attempts: 2, At: 40 * time.Second,
		Times: gpu.ProbeTimes{Init: 200 * time.Millisecond, Release: 10 * time.Millisecond},
	}}
	r.Ends[0].Probes = []gpu.Probe{
		{Device: "GPU-9", Result: large},
		{Device: card0, Result: gpu.ProbeBroken, At: 201 * time.Second, Error: &gpu.CallError{
			Call: "cuInit", Code: 802, Name: "CUDA_ERROR_SYSTEM_NOT_READY", Meaning: "not \x1b[2Jready", Remedy: "wait",
		}},
		{Device: card0, Result: gpu.ProbeSkipped, Why: "others may use it"},
		{Device: card0, Result: gpu.ProbeGap, Method: gpu.WithContext, Free: gpu.Bytes(900 << 20), Largest: gpu.Unknown("x"), Attempts: 1},
		{Device: card0, Result: gpu.ProbeBroken, Why: "the backend crashed"},
	}
	var b strings.Builder
	Job(&b, r)
	start, end, _ := strings.Cut(b.String(), "\nend:")
	if want := "\n  GPU 0  test allocation: ok, largest block 898 MiB of 900 MiB free (2 attempts, 210 ms), tested at 2026-11-21 07:34:20"; !strings.Contains(start, want) {
		t.Errorf("lacks %q:\n%s", want, start)
	}
	for _, want := range []string{
		"\n  GPU 0  test allocation: broken: cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802); not \\x1b[2Jready; wait\n",
		"\n  GPU 0  test allocation: not made: others may use it\n",
		"gap, largest block unknown of 900 MiB free (1 attempt, 0 ms, in a context, which takes some 500 MiB itself)\n",
		"test allocation: broken: the backend crashed\n",
	} {
		if !strings.Contains(end, want) {
			t.Errorf("lacks %q:\n%s", want, end)
		}
	}
	if strings.Count(end, "test allocation") != 4 {
		t.Errorf("another card's is shown:\n%s", end)
	}
}

func TestTestsOnRecord(t *testing.T) {
	now := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	old := now
	old.Module = "m0"
	at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.Local)
	ok := gpu.Probe{Device: card0, Result: large, Free: gpu.Bytes(4 << 20), Largest: gpu.Bytes(2 << 20), Attempts: 2}
	var b strings.Builder
	Tests(&b, map[gpu.ID]probe.Record{card0: {Probe: ok, Epoch: now, Wall: at}, "GPU-1": {Probe: probe.Skipped("GPU-1", "hung"), Epoch: old, Wall: at}}, now)
	want := "last test of GPU-0, 2026-11-21 08:00:00: test allocation: ok, largest block 2 MiB of 4 MiB free (2 attempts, 0 ms)\n" +
		"last test of GPU-1, 2026-11-21 08:00:00: test allocation: not made: hung; void: the driver was reloaded or the node booted since, or nobody can tell\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
