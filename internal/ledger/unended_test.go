package ledger

import (
	"testing"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// runOn is a run on a card that it got clean, open where ends is 0.
func runOn(job slurm.JobID, card gpu.ID, starts, ends time.Duration) Run {
	r := Run{
		Job: slurm.Job{ID: job, Partition: "main"}, Epoch: life, Key: "w1",
		Devices: []Assigned{{Device: gpu.Device{ID: card}}},
		Start: &End{
			At: starts, Curves: map[gpu.ID]settle.Curve{card: {State: settle.Clean}},
			Snapshot: gpu.Snapshot{At: starts, Readings: []gpu.Reading{{Device: gpu.Device{ID: card}}}},
		},
	}
	if ends > 0 {
		r.Ends = []End{{At: ends}}
	}
	return r
}

func changed(r Run, change func(*Run)) Run {
	start := *r.Start
	r.Start = &start
	change(&r)
	return r
}

func TestUnended(t *testing.T) {
	open := runOn(100, "GPU-0", 10, 0)
	later := runOn(101, "GPU-0", 20, 30)
	for name, tt := range map[string]struct {
		runs     []Run
		shared   bool
		want     string
		presumed bool
	}{
		"alone":                     {[]Run{open}, false, "", false},
		"its GPU was given again":   {[]Run{open, later}, false, "job 101 was given its GPU", true},
		"where GPUs come in parts":  {[]Run{open, later}, true, "", false},
		"another GPU was given":     {[]Run{open, runOn(101, "GPU-1", 20, 30)}, false, "", false},
		"the later one still runs":  {[]Run{open, runOn(101, "GPU-0", 20, 0)}, false, "", false},
		"the other one was earlier": {[]Run{open, runOn(99, "GPU-0", 5, 30)}, false, "", false},
		"the later one is itself settled": {[]Run{open,
			changed(later, func(r *Run) { r.Ends = []End{{At: 30, Unseen: "x"}} })}, false, "", false},
		"a partition that shares": {[]Run{open, changed(later, func(r *Run) { r.Job.Partition = "shared" })},
			false, "", false},
		"MPS": {[]Run{changed(open, func(r *Run) { r.Job.MPSPercent = "50" }), later},
			false, "", false},
		"another life of the driver": {[]Run{open, changed(later, func(r *Run) { r.Epoch = another })}, false,
			"", false},
		"the later one did not get it clean": {[]Run{open,
			changed(later, func(r *Run) { r.Start.Curves = map[gpu.ID]settle.Curve{"GPU-0": {State: settle.Flat}} })},
			false, "", false},
		"somebody was on it": {[]Run{open, changed(later, func(r *Run) {
			r.Start.Snapshot.Readings = []gpu.Reading{{Device: gpu.Device{ID: "GPU-0"},
				Processes: []gpu.Process{{PID: 7}}}}
		})}, false, "", false},
		"a GPU without a name": {[]Run{runOn(100, "", 10, 0), runOn(101, "", 20, 30)}, false, "", false},
		"no start on record": {[]Run{{Job: slurm.Job{ID: 100, Partition: "main"}, Epoch: life,
			Devices: open.Devices}, later}, false, "", false},
		"its job id began again": {[]Run{open, runOn(100, "GPU-1", 20, 0)}, true, "its job began again", false},
		"of an earlier boot": {[]Run{changed(open, func(r *Run) { r.Epoch.Boot = "a" })}, true,
			"the node has booted since", false},
		"of an unknown boot":     {[]Run{changed(open, func(r *Run) { r.Epoch = gpu.Epoch{} })}, true, "", false},
		"its own end is on file": {[]Run{runOn(100, "GPU-0", 10, 15), later}, false, "", false},
	} {
		got := Unended(tt.runs, Node{Epoch: life, Shared: []string{"shared"},
			Exclusive: func() bool { return !tt.shared }})
		switch {
		case tt.want == "" && len(got) == 0:
		case len(got) != 1 || got[0].Why != tt.want || got[0].Presumed != tt.presumed || got[0].Job.ID != 100 ||
			got[0].Over < 10:
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// An end that nobody saw is one for the ledger, and leaves the run open to the epilog that comes after all.
func TestUnseenEnd(t *testing.T) {
	r := runOn(100, "GPU-0", 10, 0)
	r.Ends = []End{{At: 20, Unseen: "job 101 was given its GPU", Presumed: true}}
	if !r.Closed() || r.Epilog() != nil {
		t.Error("it is over, and no one saw how")
	}
	if _, which := Match([]Run{r}, slurm.Job{ID: 100}); which != OpenRun {
		t.Errorf("an epilog finds it %s", which)
	}
	if rec := record(r); rec.End != 20 || !rec.Unseen {
		t.Errorf("%+v", rec)
	}
	r.Ends = append(r.Ends, End{At: 40})
	if rec := record(r); rec.End != 40 || rec.Unseen || r.Epilog() == nil {
		t.Errorf("after its epilog: %+v", rec)
	}
	if _, which := Match([]Run{r}, slurm.Job{ID: 100}); which != ClosedRun {
		t.Errorf("a second epilog finds it %s", which)
	}
}

// Who looks between jobs reads the same ledger, with nobody's run apart from the others.
func TestBetween(t *testing.T) {
	live, over := runOn(100, "GPU-0", 10, 0), runOn(101, "GPU-1", 10, 20)
	proofs := []finding.Sighting{{PID: 7, Start: time.Second, Owner: slurm.Owner{ID: 101}}}
	b := Open([]Run{live, over, changed(over, func(r *Run) { r.Epoch = another })}, Run{},
		Now{At: 30, Epoch: life, Proofs: proofs})
	if len(b.Others) != 2 || !b.Others[0].Live() || b.Others[1].Live() || !b.Others[1].Alone {
		t.Errorf("%+v", b.Others)
	}
	scene := finding.Scene{Self: b.Self, Others: b.Others, Now: finding.Side{Snapshot: gpu.Snapshot{At: 30}}}
	got := scene.Decide(finding.Process{PID: 7, Start: time.Second}, "GPU-1")
	if got.Job != 101 || got.Level != finding.BySighting {
		t.Errorf("%+v", got)
	}
}
