package ledger

import (
	"time"

	"reflect"
	"testing"

	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

var (
	life    = gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	another = gpu.Epoch{Boot: "b", Driver: "580", Module: "n"}
)

// onCard is a look at one card with these processes, a second after the other.
func onCard(at time.Duration, listed ...gpu.Process) gpu.Snapshot {
	return gpu.Snapshot{At: at, Readings: []gpu.Reading{{Device: gpu.Device{ID: "GPU-0"}, Processes: listed}}}
}

func proc(pid int, mib uint64) gpu.Process {
	return gpu.Process{PID: pid, Memory: gpu.Bytes(mib << 20)}
}

func who(list ...finding.Process) map[int]finding.Process {
	all := map[int]finding.Process{}
	for _, p := range list {
		all[p.PID] = p
	}
	return all
}

func inJob(pid int, job slurm.JobID) finding.Process {
	return finding.Process{PID: pid, Start: time.Second, UID: 1001, Cgroup: slurm.Owner{ID: job, Step: "0"}}
}

// What two looks said of a process's job is joined.
func TestSameOwner(t *testing.T) {
	job := func(id slurm.JobID) slurm.Owner { return slurm.Owner{ID: id, Step: "0", Daemon: true} }
	both := slurm.Owner{Conflict: "cgroups name two jobs, 100 and 101"}
	for name, tt := range map[string]struct {
		was, now slurm.Owner
		id       slurm.JobID
		conflict bool
	}{
		"the same":                 {job(100), job(100), 100, false},
		"no longer in its cgroup":  {job(100), slurm.Owner{}, 100, false},
		"not yet in one":           {slurm.Owner{}, job(100), 100, false},
		"moved to another job's":   {job(100), job(101), 0, true},
		"two at once":              {job(100), both, 0, true},
		"two at once, then in one": {both, job(100), 0, true},
	} {
		tt.was.Step, tt.was.Daemon = "", false
		got := sameOwner(tt.was, tt.now)
		if got.ID != tt.id || (got.Conflict != "") != tt.conflict || got.Step != "" || got.Daemon {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The newest condition of each GPU counts. A record cut short tells it all the same; one that does not is not passed over
// for an older one.
func TestLastHealth(t *testing.T) {
	look := func(at time.Duration, device gpu.ID, count string) End {
		return End{At: at, Health: []gpu.Health{{Device: device,
			Facts:      []gpu.Fact{{Code: gpu.ECCUncorrected, Value: count}},
			Accounting: gpu.Accounting{Processes: make([]gpu.Accounted, 900)}}}}
	}
	run := func(ends ...End) Run { return Run{Epoch: life, Ends: ends} }
	reloaded := run(look(8, "A", "90"))
	reloaded.Epoch.Module = "older"
	before := run(look(1, "A", "2"))
	for name, tt := range map[string]struct {
		runs []Run
		want map[gpu.ID]string
	}{
		"the newest of each": {[]Run{run(look(2, "A", "3")), run(look(5, "A", "4"), look(4, "B", "1"))},
			map[gpu.ID]string{"A": "4", "B": "1"}},
		"without facts": {[]Run{before, run(End{At: 9, Health: []gpu.Health{{Device: "A"}}})}, map[gpu.ID]string{"A": "2"}},
		"an end that read some alone": {[]Run{before, run(End{At: 9, Health: []gpu.Health{{Device: "A",
			Facts: []gpu.Fact{{Code: gpu.RecoveryAction, Value: "none"}}}}})}, map[gpu.ID]string{"A": "2"}},
		"another life": {[]Run{before, reloaded}, map[gpu.ID]string{"A": "2"}},
		"bare":         {[]Run{before, run(look(2, "A", "5")).Bounded(Bare)}, map[gpu.ID]string{"A": "5"}},
		"bare, of an earlier release": {[]Run{before, run(End{At: 2, Rest: map[string]int{everything: 1}})},
			map[gpu.ID]string{}},
	} {
		got := map[gpu.ID]string{}
		for id, h := range LastHealth(tt.runs, life) {
			f, _ := h.Fact(gpu.ECCUncorrected)
			got[id] = f.Value
			if name == "bare" && len(h.Accounting.Processes) > 0 {
				t.Error("what the driver accounted for was kept")
			}
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
	if none := LastHealth([]Run{before}, gpu.Epoch{}); len(none) != 0 {
		t.Errorf("an epoch that is not known has %v", none)
	}
	check := Check{Health: before.Ends[0].Health}.Bounded(Bare)
	if len(check.Health) != 1 || len(check.Health[0].Facts) != 1 {
		t.Errorf("of a health check: %+v", check.Health)
	}
}

// What other hooks saw on a job's GPU between its ends, with whose it was as far as a cgroup or a user proves it.
func TestSightings(t *testing.T) {
	end := func(at time.Duration, on gpu.ID, pids ...int) End {
		r := gpu.Reading{Device: gpu.Device{ID: on}}
		for _, pid := range pids {
			r.Processes = append(r.Processes, gpu.Process{PID: pid, Memory: gpu.Bytes(uint64(pid))})
		}
		// its end is not its look
		return End{At: at + time.Minute, Snapshot: gpu.Snapshot{At: at, Readings: []gpu.Reading{r}},
			Processes: []finding.Process{{PID: 7, Cgroup: slurm.Owner{ID: 42}}, {PID: 8, Cgroup: slurm.Owner{ID: 43}},
				{PID: 9}, {PID: 10, UID: 1002}, {PID: 11, UID: 1002, Container: "docker"},
				{PID: 12, UID: 1002, OtherPIDs: true}, {PID: 13, UID: 1002, Why: "not read"}}}
	}
	self := Run{Job: slurm.Job{ID: 42}, Epoch: life, Devices: []Assigned{{Index: 0, Device: gpu.Device{ID: "A"}}}}
	before, late := end(1, "A", 7), end(8, "A", 7, 9, 10, 11, 12, 13, 14)
	runs := []Run{{Epoch: life, Start: &before, Ends: []End{late, end(20, "A", 7), end(8, "C", 7)}},
		{Epoch: life, Ends: []End{end(5, "A", 8)}}, {Epoch: gpu.Epoch{Boot: "other"}, Ends: []End{end(5, "A", 8)}}}
	got := Sightings(runs, self, 2, 10)
	want := []diagnosis.Sighting{{At: 5, Device: "A", PID: 8, Bytes: gpu.Bytes(8), Owner: slurm.Owner{ID: 43}}}
	for _, pid := range []int{7, 9, 10, 11, 12, 13, 14} {
		s := diagnosis.Sighting{At: 8, Device: "A", PID: pid, Bytes: gpu.Bytes(uint64(pid)), Own: pid == 7, Stranger: pid == 10}
		if pid == 7 {
			s.Owner.ID = 42
		}
		want = append(want, s)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}
