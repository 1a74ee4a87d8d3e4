package record

import (
	"fmt"
	"testing"
	"time"

	"bookend/internal/gpu"
)

// What the driver holds for a process is the least that two samples in a row show: memory without a process makes it
// more, and a figure that changes between two calls less, for one sample.
func TestClient(t *testing.T) {
	const mib = uint64(1) << 20
	for name, tt := range map[string]struct {
		beyond   []uint64 // MiB beyond the listed figures, a sample each
		n        int      // processes
		client   uint64
		unlisted uint64
	}{
		"another driver's share":          {[]uint64{160, 160, 160, 160, 160}, 8, 20, 0},
		"other memory came later":         {[]uint64{20, 20, 620, 620, 620, 620}, 1, 20, 600},
		"other memory from the first on":  {[]uint64{700, 700, 700, 700, 700}, 1, 0, 691},
		"memory and list do not fit once": {[]uint64{20, 20, 12, 20, 20}, 1, 20, 0},
		"no process":                      {[]uint64{20, 20, 20, 20, 20}, 0, 0, 0},
		"as measured":                     {[]uint64{72, 72, 72, 72, 72}, 8, 9, 0},
	} {
		r := Recording{Every: time.Second}
		for i, beyond := range append([]uint64{0}, tt.beyond...) {
			look := onCard(time.Duration(i+1) * time.Second)
			if i > 0 {
				for pid := range tt.n {
					look.Readings[0].Processes = append(look.Readings[0].Processes, proc(100+pid, 64))
				}
			}
			look.Readings[0].Memory.Used = gpu.Bytes(uint64(len(look.Readings[0].Processes))*64*mib + beyond*mib)
			r.Add(job100(), Sample{Look: look, Limits: Limits{Report: 32 * mib, PerClient: 9 * mib}})
		}
		if g := r.GPUs[0]; g.Client != tt.client*mib || g.Unlisted.Bytes != tt.unlisted*mib {
			t.Errorf("%s: got %d MiB for a process and %d MiB without one, want %d and %d", name, g.Client/mib,
				g.Unlisted.Bytes/mib, tt.client, tt.unlisted)
		}
	}
}

// The least counts of each model of GPU, under one version of the driver.
func TestClients(t *testing.T) {
	run := func(driver, model string, client uint64) Run {
		r := Run{Epoch: gpu.Epoch{Boot: "b", Driver: driver, Module: "m"}}
		r.Devices = []Assigned{{Device: gpu.Device{ID: "GPU-0", Name: model}}}
		r.Ends = []End{{}, {Recording: &Recording{GPUs: []GPURecording{{ID: "GPU-0", Client: client}}}}}
		return r
	}
	runs := []Run{run("600", "A", 20), run("600", "A", 18), run("600", "A", 0), run("580", "A", 9), run("600", "B", 30)}
	if got := fmt.Sprint(Clients(runs, "600")); got != "map[A:18 B:30]" {
		t.Errorf("got %s", got)
	}
	if got := Clients([]Run{run("", "A", 20)}, ""); len(got) != 0 {
		t.Errorf("without a version: got %v", got)
	}
}
