package finding

import (
	"testing"

	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

func minor(n int) *int { return &n }

// searched is the end of job 10 with what a search of /proc found.
func searched(now Side, found ...Holding) Scene {
	now.Scan = &Scan{Looked: 300, Holdings: found}
	s := ending(now)
	s.Cards[0].Device.Minor = minor(3)
	return s
}

func onCard(p Process, minors ...int) Holding {
	return Holding{Process: p, Minors: minors, Control: true, UVM: true}
}

func onDriver(p Process) Holding { return Holding{Process: p, Control: true} }

// Only what a cgroup proves to be the ended job's may ever be ended.
func TestProven(t *testing.T) {
	by := func(l Level, id slurm.JobID) *Owner { return &Owner{Job: id, UID: alice, Level: l} }
	live := Holder{Process: Process{PID: 70, UID: alice, Start: at(150)}}
	of := func(o *Owner) Holder { h := live; h.Owner = o; return h }
	dead := Holder{Process: Process{PID: 70, Gone: true}}
	unread := Holder{Process: Process{PID: 70, Why: "permission denied"}}
	for name, tt := range map[string]struct {
		f    Finding
		want int
	}{
		"orphan by cgroup":        {Finding{Code: code.Orphan, Holder: &live, Owner: by(ByCgroup, 10)}, 1},
		"orphan by sighting":      {Finding{Code: code.Orphan, Holder: &live, Owner: by(BySighting, 10)}, 1},
		"orphan by exclusive use": {Finding{Code: code.Orphan, Holder: &live, Owner: by(ByExclusive, 10)}, 0},
		"another job's":           {Finding{Code: code.Orphan, Holder: &live, Owner: by(ByCgroup, 11)}, 0},
		"gone":                    {Finding{Code: code.Orphan, Holder: &dead, Owner: by(ByCgroup, 10)}, 0},
		"not to be read":          {Finding{Code: code.Orphan, Holder: &unread, Owner: by(ByCgroup, 10)}, 0},
		"an exported handle's":    {Finding{Code: code.Residue, Candidates: []Holder{of(by(ByCgroup, 10))}}, 0},
		"unknown":                 {Finding{Code: code.Orphan, Holder: &live, Owner: by(ByCgroup, 10), Unknown: "x"}, 0},
		"a phantom's holder":      {Finding{Code: code.Phantom, Holder: &dead, Candidates: []Holder{of(by(ByCgroup, 10)), of(by(ByExclusive, 10)), of(nil)}}, 1},
		"found before the job":    {Finding{Code: code.Dirty, Holder: &live, Owner: by(ByCgroup, 10)}, 0},
	} {
		got := Proven([]Finding{tt.f}, slurm.Job{ID: 10, UID: alice})
		if len(got) != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
		sure := Finding{Code: code.Orphan, Holder: &live, Owner: by(ByCgroup, 10)}
		if got := Proven([]Finding{tt.f, sure}, slurm.Job{ID: 10, UID: alice}); len(got) != tt.want+1 {
			t.Errorf("%s, before one that is proven: %+v", name, got)
		}
	}
}

// A process on a card that is not this job's is reported when a cgroup proves a job that was not given that card.
func TestTrespasses(t *testing.T) {
	there := gpu.Reading{Device: gpu.Device{ID: "GPU-1"}, Processes: []gpu.Process{listed(70, gib)}}
	live := Record{Job: 11, UID: 1002, GPUs: []gpu.ID{"GPU-2"}, Start: at(90)}
	proven := Process{PID: 70, UID: 1002, Start: at(150), Cgroup: slurm.Owner{ID: 11}}
	for _, tt := range []struct {
		name    string
		who     Process
		edit    func(*Scene)
		want    bool
		unknown bool
	}{
		{"a live job that has another GPU", proven, nil, true, false},
		{"a live job that has this GPU", proven, func(s *Scene) { s.Others[0].GPUs = []gpu.ID{"GPU-1"} }, false, false},
		{"an ended job", proven, func(s *Scene) { s.Others[0].End = at(180) }, false, false},
		{"a job without a record: it may have no GPUs", Process{PID: 70, Cgroup: slurm.Owner{ID: 77}}, nil, true, true},
		{"by environment alone", Process{PID: 70, UID: 1002, Start: at(150), EnvJobID: 11}, nil, false, false},
		{"gone meanwhile", Process{PID: 70, Gone: true}, nil, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := ending(side(at(200), settle.Clean, reading(0), tt.who))
			r := there
			s.Now.Neighbours = &gpu.Snapshot{At: at(200), Readings: []gpu.Reading{r}}
			s.Others = []Record{live}
			if tt.edit != nil {
				tt.edit(&s)
			}
			found := Trespasses(s)
			if (len(found) == 1) != tt.want || len(found) > 1 {
				t.Fatalf("%+v, want %v", found, tt.want)
			}
			if tt.want && (found[0].Code != code.Trespass || found[0].GPU != "GPU-1" || (found[0].Unknown != "") != tt.unknown || found[0].Owner == nil) {
				t.Errorf("%+v", found[0])
			}
		})
	}
}

// Which processes outside of jobs and services keep the driver open.
func TestKeepers(t *testing.T) {
	exporter := Holding{Process: Process{PID: 50, Start: at(10), Name: "dcgm-exporter"}, Control: true}
	edited := func(edit func(*Holding)) Holding { h := exporter; edit(&h); return h }
	for name, tt := range map[string]struct {
		h            Holding
		want, unread bool
	}{
		"a user's, the driver alone":        {edited(func(h *Holding) { h.UID = alice }), true, false},
		"a service":                         {edited(func(h *Holding) { h.Service = "nvidia-dcgm.service" }), false, false},
		"MPS":                               {edited(func(h *Holding) { h.Exe = "/usr/bin/nvidia-cuda-mps-control" }), false, false},
		"a job's":                           {edited(func(h *Holding) { h.Cgroup = slurm.Owner{ID: 7} }), false, false},
		"a job's without a record":          {edited(func(h *Holding) { h.Cgroup = slurm.Owner{ID: 99} }), true, false},
		"of two jobs":                       {edited(func(h *Holding) { h.Cgroup.Conflict = "two jobs" }), false, true},
		"one that could not be looked into": {edited(func(h *Holding) { h.Why = "denied" }), false, true},
		"Bookend's own":                     {edited(func(h *Holding) { h.Exe = "/libexec/bookend-gpu" }), false, false},
	} {
		got, unread := Keepers([]Holding{tt.h}, "/libexec/bookend-gpu",
			func(o slurm.Owner) bool { return o.ID != 99 })
		if len(got) > 1 || (len(got) == 1) != tt.want || (unread == 1) != tt.unread {
			t.Errorf("%s: %+v, %d unread", name, got, unread)
		}
	}
}
