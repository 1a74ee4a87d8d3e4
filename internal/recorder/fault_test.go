package recorder

import (
	"fmt"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// faultRuns are open runs: 1 and 2 share GPU-a, 3 has GPU-b, and there is no recording of 4 yet.
func faultRuns() (runs []record.Run, recorded record.Recordings) {
	recorded = record.Recordings{}
	for i, id := range []gpu.ID{"GPU-a", "GPU-a", "GPU-b", "GPU-a"} {
		r := record.Run{Job: slurm.Job{ID: slurm.JobID(i + 1)}, Key: "w1", Start: &record.End{At: time.Second * time.Duration(i+1)},
			Devices: []record.Assigned{{Device: gpu.Device{ID: id}}}}
		runs = append(runs, r)
		if i < 3 {
			recorded[r.Name()] = record.Recording{Samples: 1, GPUs: []record.GPURecording{{ID: id}}}
		}
	}
	return runs, recorded
}

// An error is of the runs that had the GPU before it can have occurred, and names the other jobs there.
func TestFaultOfRuns(t *testing.T) {
	for since, want := range map[time.Duration]string{
		time.Second:     "[] [] []",
		2 * time.Second: "[79 [2 4]] [] []",
		time.Minute:     "[79 [2 4]] [79 [1 4]] []",
	} {
		runs, recorded := faultRuns()
		isMeant := func(d gpu.Device) bool { return d.ID == "GPU-a" }
		added := addFault(recorded, record.RecordedFault{Code: 79, Lines: 1}, since, isMeant, runs)
		got := ""
		for _, run := range runs[:3] {
			all := []any{}
			for _, f := range recorded[run.Name()].GPUs[0].Faults {
				all = append(all, f.Code, f.Jobs)
			}
			got += fmt.Sprint(all) + " "
		}
		if got != want+" " || added != (since > time.Second) {
			t.Errorf("since %v: got %s, added %v, want %s", since, got, added, want)
		}
	}
}

// However many errors there are, few are kept: one of each code, with its first and last time, and who else was there.
func TestFaultsAreBounded(t *testing.T) {
	g := record.GPURecording{}
	for i := range 1000 {
		at := time.Duration(i) * time.Second
		keepFault(&g, record.RecordedFault{Code: 1 + i%20, First: at, Last: at, Lines: 1, Jobs: []slurm.JobID{slurm.JobID(i)}})
		keepFault(&g, record.RecordedFault{Code: 1 + i%20, First: at, Last: at, Events: 1})
	}
	if len(g.Faults) != maxFaults || g.MoreFaults != 2*4*50 {
		t.Fatalf("%d kept, %d not", len(g.Faults), g.MoreFaults)
	}
	f := g.Faults[2]
	if f.Code != 3 || f.First != 2*time.Second || f.Last != 982*time.Second || f.Times() != 50 || len(f.Jobs) != maxFaultJobs {
		t.Errorf("%+v", f)
	}
}
