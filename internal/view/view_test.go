package view

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/policy"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

const card0 = gpu.ID("GPU-0")

// heir is a job that got a card with 20 GiB of somebody else's on it and gave it back so.
func heir() ledger.Run {
	device := gpu.Device{ID: card0}
	seen := func(s settle.State, v policy.Verdict) ledger.End {
		return ledger.End{
			Wall: time.Date(2026, 11, 21, 7, 35, 20, 0, time.Local),
			Snapshot: gpu.Snapshot{Readings: []gpu.Reading{{
				Device: device, Memory: gpu.Memory{Used: gpu.Bytes(20 << 30), Total: gpu.Bytes(80 << 30)},
				Processes: []gpu.Process{{PID: 70}},
			}}},
			Curves:  map[gpu.ID]settle.Curve{card0: {State: s, Looks: 1, Settled: 200 * time.Millisecond}},
			Verdict: v,
		}
	}
	start := seen(settle.Flat, policy.Verdict{Action: config.Warn, Code: "BKD-DIRTY"})
	return ledger.Run{
		Job: slurm.Job{ID: 3, Node: "n1"}, Devices: []ledger.Assigned{{Index: 0, Device: device}},
		Start: &start, Ends: []ledger.End{seen(settle.Clean, policy.Verdict{})},
	}
}

// A card that was dirty at the start and is so at the end must not be called clean.
func TestJobOnADirtyCard(t *testing.T) {
	var b strings.Builder
	Job(&b, heir())
	const table = `  GPU 0  GPU-0  81920 MiB
                   start                         end
    used           20480 MiB                     20480 MiB
    free           0 MiB                         0 MiB
    largest block  not tested                    not tested
    processes      1                             1
    watched        flat over 0.0 s (1 look)      no more than at the start after 0.2 s (1 look)
start: `
	if strings.Contains(b.String(), "clean after") || !strings.Contains(b.String(), table) {
		t.Errorf("a job on a dirty card:\n%s\nwant\n%s", b.String(), table)
	}
	clean := heir()
	clean.Start.Curves[card0] = settle.Curve{State: settle.Clean, Looks: 1}
	b.Reset()
	Job(&b, clean)
	if !strings.Contains(b.String(), "clean after 0.2 s (1 look)") {
		t.Errorf("the end of a job on a clean card:\n%s", b.String())
	}
}

func TestStatusHasWhatTheStartFound(t *testing.T) {
	var b strings.Builder
	Status(&b, Node{Name: "n1", Mode: config.Observe, Runs: []ledger.Run{heir()}})
	if want := "  job 3  GPU 0  07:35:20  clean; still there from before: 20480 MiB; at its start: warn (BKD-DIRTY)\n"; !strings.Contains(b.String(), want) {
		t.Errorf("status lacks %q:\n%s", want, b.String())
	}
}

// What a record leaves out is said with it.
func TestRestIsSaid(t *testing.T) {
	var b strings.Builder
	Job(&b, ledger.Run{Start: &ledger.End{Rest: map[string]int{"holdings": 352, "candidates": 7}}})
	if want := "left out of the record, which would be too large: candidates 7, holdings 352\n"; !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
}
