package ledger

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/diagnosis"
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

func who(list ...attrib.Process) map[int]attrib.Process {
	all := map[int]attrib.Process{}
	for _, p := range list {
		all[p.PID] = p
	}
	return all
}

func inJob(pid int, job slurm.JobID) attrib.Process {
	return attrib.Process{PID: pid, Start: time.Second, UID: 1001, Cgroup: slurm.Owner{ID: job, Step: "0"}}
}

func TestSightedKeepsOneEntryForAProcess(t *testing.T) {
	s := Sighted{}.With(life, onCard(10*time.Second, proc(7, 300)), who(inJob(7, 100)))
	s = s.With(life, onCard(20*time.Second, proc(7, 900)), who(inJob(7, 100)))
	escaped := inJob(7, 100)
	escaped.Cgroup = slurm.Owner{}
	s = s.With(life, onCard(30*time.Second, proc(7, 200)), who(escaped))
	if len(s.Processes) != 1 || len(s.Looks) != 3 {
		t.Fatalf("%+v", s)
	}
	p := s.Processes[0]
	if p.First != 10*time.Second || p.Last != 30*time.Second || p.Most != 900<<20 || p.MostAt != 20*time.Second ||
		p.Bytes.Bytes != 200<<20 || p.Owner != (slurm.Owner{ID: 100}) {
		t.Errorf("%+v", p)
	}
	if got := s.proofs(life); len(got) != 1 ||
		got[0] != (attrib.Sighting{PID: 7, Start: time.Second, Owner: slurm.Owner{ID: 100}}) {
		t.Errorf("proofs %+v", got)
	}
	if got := s.proofs(another); got != nil {
		t.Errorf("of another life of the driver: %+v", got)
	}
}

func TestSightedTellsProcessesApart(t *testing.T) {
	later := inJob(7, 101)
	later.Start = 15 * time.Second // its number was given again
	moved := inJob(8, 101)
	s := Sighted{}.With(life, onCard(10*time.Second, proc(7, 1), proc(8, 1), proc(9, 1), proc(10, 1)),
		who(inJob(7, 100), inJob(8, 100), attrib.Process{PID: 9, Gone: true}, attrib.Process{PID: 10, Why: "not read"}))
	s = s.With(life, onCard(11*time.Second, proc(11, 1)), who(inJob(11, 100)))
	both := inJob(11, 0)
	both.Cgroup.Conflict = "cgroups name two jobs, 100 and 101"
	s = s.With(life, onCard(12*time.Second, proc(11, 1)), who(both))
	s = s.With(life, onCard(20*time.Second, proc(7, 1), proc(8, 1)), who(later, moved))
	s = s.With(life, onCard(30*time.Second, proc(8, 1)), who(moved))
	var got []string
	for _, p := range s.Processes {
		got = append(got, fmt.Sprint(p.PID, p.Start, p.Owner.ID, p.Owner.Conflict != ""))
	}
	slices.Sort(got)
	want := []string{"11 1s 0 true", "7 15s 101 false", "7 1s 100 false", "8 1s 0 true"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if proofs := s.proofs(life); len(proofs) != 2 {
		t.Errorf("what two jobs' cgroups named proves nothing: %+v", proofs)
	}
	if s = s.With(another, onCard(40*time.Second), nil); len(s.Processes) != 0 || len(s.Looks) != 1 {
		t.Errorf("after the driver was loaded again: %+v", s)
	}
}

func TestSightedIsBounded(t *testing.T) {
	s, last := Sighted{}, time.Duration(maxSeen+100)*time.Second
	for i := range maxSeen + 100 {
		p := inJob(1000+i, 100)
		s = s.With(life, onCard(time.Duration(i+1)*time.Second, proc(p.PID, 1)), who(p))
	}
	if len(s.Processes) != maxSeen || len(s.Looks) != maxLooks || s.Processes[0].PID != 1000+maxSeen+99 ||
		s.Looks[0].At != 101*time.Second {
		t.Errorf("%d processes, %d looks, newest %+v", len(s.Processes), len(s.Looks), s.Processes[0])
	}
	for after, want := range map[time.Duration]int{keepSeen: 1, keepSeen + time.Second: 0} {
		if got := s.With(life, onCard(last+after), nil); len(got.Processes) != want {
			t.Errorf("%d processes %v after the last was seen", len(got.Processes), after)
		}
	}
}

func TestSightedDuring(t *testing.T) {
	self := Run{Job: slurm.Job{ID: 100, UID: 1001}, Epoch: life, Devices: []Assigned{{Device: gpu.Device{ID: "GPU-0"}}}}
	stray := func(pid int, uid uint32) attrib.Process {
		return attrib.Process{PID: pid, Start: time.Second, UID: uid}
	}
	apart := stray(6, 100000)
	apart.OtherPIDs = true
	s := Sighted{}.With(life, onCard(10, proc(1, 9), proc(2, 9), proc(3, 9), proc(4, 9), proc(5, 9), proc(6, 9)),
		who(inJob(1, 100), inJob(2, 101), stray(3, 1002), stray(4, 0), stray(5, 1001), apart))
	elsewhere := self
	elsewhere.Devices = []Assigned{{Device: gpu.Device{ID: "GPU-1"}}}
	for _, tt := range []struct {
		self     Run
		from, to time.Duration
		want     string
	}{
		{self, 5, 15, "1 of 100 own; 2 of 101; 3 of 0 stranger; 4 of 0; 5 of 0; 6 of 0; "},
		{self, 10, 20, ""}, {self, 0, 10, ""}, // at the very ends
		{elsewhere, 0, time.Hour, ""},
	} {
		got := ""
		for _, d := range s.During(tt.self, tt.from, tt.to) {
			got += fmt.Sprintf("%d of %d%s; ", d.PID, d.Owner.ID, map[bool]string{d.Own: " own", d.Stranger: " stranger"}[true])
			if d.Bytes != gpu.Bytes(9<<20) {
				t.Errorf("%+v", d)
			}
		}
		if got != tt.want {
			t.Errorf("between %d and %d: %q, want %q", tt.from, tt.to, got, tt.want)
		}
	}
}

// What a process had before the job began is not what it had during it, nor after it.
func TestSightedWhen(t *testing.T) {
	self := Run{Epoch: life, Devices: []Assigned{{Device: gpu.Device{ID: "GPU-0"}}}}
	s := Sighted{Epoch: life, Processes: []Seen{{GPU: "GPU-0", PID: 7, First: 10, Last: 30, Bytes: gpu.Bytes(5),
		Most: 900, MostAt: 20}}}
	for _, tt := range []struct {
		from, to time.Duration
		want     string
	}{
		{5, 40, "10: 0 20: 900 30: 5 "}, {25, 40, "30: 5 "}, {15, 30, "20: 900 "}, {5, 20, "10: 0 "}, {30, 40, ""}, {5, 10, ""},
	} {
		got := ""
		for _, d := range s.During(self, tt.from, tt.to) {
			got += fmt.Sprintf("%d: %d ", d.At, d.Bytes.Bytes)
			if d.Bytes.Known() == (d.At == 10) {
				t.Errorf("at %d: %+v", d.At, d.Bytes)
			}
		}
		if got != tt.want {
			t.Errorf("from %d to %d: %q, want %q", tt.from, tt.to, got, tt.want)
		}
	}
}

func TestLooksDuring(t *testing.T) {
	self := Run{Epoch: life, Devices: []Assigned{{Device: gpu.Device{ID: "GPU-0"}}}}
	blind := onCard(20 * time.Second)
	blind.Readings[0].ProcessesUnknown = "the driver does not say"
	lost := gpu.Snapshot{At: 30 * time.Second, Faults: []gpu.Fault{{Device: "GPU-0"}}}
	s := Sighted{}.With(life, onCard(10*time.Second), nil).With(life, blind, nil).With(life, lost, nil).With(life,
		onCard(40*time.Second), nil)
	if n := s.LooksDuring(self, 0, time.Hour); n != 2 {
		t.Errorf("%d looks told", n)
	}
	if n := s.LooksDuring(self, 10*time.Second, 40*time.Second); n != 0 {
		t.Errorf("%d looks between", n)
	}
	self.Epoch = another
	if n := s.LooksDuring(self, 0, time.Hour); n != 0 {
		t.Errorf("%d looks of another epoch", n)
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
		"another life":  {[]Run{before, reloaded}, map[gpu.ID]string{"A": "2"}},
		"bare":          {[]Run{before, run(look(2, "A", "5")).Bounded(Bare)}, map[gpu.ID]string{"A": "5"}},
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
			Processes: []attrib.Process{{PID: 7, Cgroup: slurm.Owner{ID: 42}}, {PID: 8, Cgroup: slurm.Owner{ID: 43}},
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
