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
	s := Sighted{}
	for i := range maxSeen + 100 {
		p := inJob(1000+i, 100)
		s = s.With(life, onCard(time.Duration(i+1)*time.Second, proc(p.PID, 1)), who(p))
	}
	if len(s.Processes) != maxSeen || len(s.Looks) != maxLooks || s.Processes[0].PID != 1000+maxSeen+99 ||
		s.Looks[0].At != 101*time.Second {
		t.Errorf("%d processes, %d looks, newest %+v", len(s.Processes), len(s.Looks), s.Processes[0])
	}
	if s = s.With(life, onCard((maxSeen+100)*time.Second+7*24*time.Hour), nil); len(s.Processes) != 1 {
		t.Errorf("%d processes a week after the last was seen", len(s.Processes))
	}
	if s = s.With(life, onCard(8*24*time.Hour), nil); len(s.Processes) != 0 {
		t.Errorf("%d processes a day later", len(s.Processes))
	}
}

func TestSightedDuring(t *testing.T) {
	self := Run{Job: slurm.Job{ID: 100, UID: 1001}, Epoch: life, Devices: []Assigned{{Device: gpu.Device{ID: "GPU-0"}}}}
	stray := func(pid int, uid uint32) attrib.Process {
		return attrib.Process{PID: pid, Start: time.Second, UID: uid}
	}
	apart := stray(6, 100000)
	apart.OtherPIDs = true
	s := Sighted{}.With(life, onCard(10*time.Second, proc(1, 100), proc(2, 100), proc(3, 100), proc(4, 100),
		proc(5, 100), proc(6, 100)),
		who(inJob(1, 100), inJob(2, 101), stray(3, 1002), stray(4, 0), stray(5, 1001), apart))
	got := map[int]string{}
	for _, d := range s.During(self, 5*time.Second, 15*time.Second) {
		got[d.PID] = fmt.Sprintf("own %v, stranger %v, job %d, %d MiB", d.Own, d.Stranger, d.Owner.ID,
			d.Bytes.Bytes>>20)
	}
	want := map[int]string{
		1: "own true, stranger false, job 100, 100 MiB", 2: "own false, stranger false, job 101, 100 MiB",
		3: "own false, stranger true, job 0, 100 MiB", 4: "own false, stranger false, job 0, 100 MiB",
		5: "own false, stranger false, job 0, 100 MiB", 6: "own false, stranger false, job 0, 100 MiB",
	}
	for pid, text := range want {
		if got[pid] != text {
			t.Errorf("process %d: %q, want %q", pid, got[pid], text)
		}
	}
	for _, window := range [][2]time.Duration{{10 * time.Second, 20 * time.Second}, {0, 10 * time.Second}} {
		if d := s.During(self, window[0], window[1]); len(d) != 0 {
			t.Errorf("at the very ends %v: %+v", window, d)
		}
	}
	elsewhere := self
	elsewhere.Devices = []Assigned{{Device: gpu.Device{ID: "GPU-1"}}}
	if d := s.During(elsewhere, 0, time.Hour); len(d) != 0 {
		t.Errorf("on another GPU: %+v", d)
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
		{5, 40, "10: unknown, 20: 900, 30: 5, "}, {25, 40, "30: 5, "}, {15, 30, "20: 900, "}, {5, 20, "10: unknown, "},
		{30, 40, ""}, {5, 10, ""},
	} {
		got := ""
		for _, d := range s.During(self, tt.from, tt.to) {
			figure := fmt.Sprint(d.Bytes.Bytes)
			if !d.Bytes.Known() {
				figure = "unknown"
			}
			got += fmt.Sprintf("%d: %s, ", d.At, figure)
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

func TestLastHealth(t *testing.T) {
	look := func(at time.Duration, device gpu.ID, count string) End {
		return End{At: at, Health: []gpu.Health{{Device: device,
			Facts: []gpu.Fact{{Code: gpu.ECCUncorrected, Value: count}}}}}
	}
	bare := End{At: 9 * time.Second, Health: []gpu.Health{{Device: "A", Accounting: gpu.Accounting{Mode: "on"}}}}
	runs := []Run{
		{Epoch: life, Ends: []End{look(2*time.Second, "A", "3")}},
		{Epoch: life, Ends: []End{look(5*time.Second, "A", "4"), look(4*time.Second, "B", "1")}},
		{Epoch: life, Ends: []End{bare}},
		{Epoch: gpu.Epoch{Boot: "b", Driver: "580", Module: "older"}, Ends: []End{look(8*time.Second, "A", "90")}},
	}
	got := map[gpu.ID]string{}
	for id, h := range LastHealth(runs, life) {
		f, _ := h.Fact(gpu.ECCUncorrected)
		got[id] = f.Value
	}
	if want := map[gpu.ID]string{"A": "4", "B": "1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if none := LastHealth(runs, gpu.Epoch{}); len(none) != 0 {
		t.Errorf("an epoch that is not known has %v", none)
	}
}

// A record cut short tells the last condition all the same; one that does not is not passed over for an older one.
func TestLastHealthOfBareRecords(t *testing.T) {
	look := func(at time.Duration, count string) Run {
		health := []gpu.Health{{
			Device: "A", Facts: []gpu.Fact{{Code: gpu.ECCUncorrected, Value: count}},
			Accounting: gpu.Accounting{Processes: make([]gpu.Accounted, 900)},
		}}
		return Run{Epoch: life, Ends: []End{{At: at, Health: health}}}
	}
	before, now := look(time.Second, "2"), look(2*time.Second, "5")
	// of an earlier release
	early := Run{Epoch: life, Ends: []End{{At: 2 * time.Second, Rest: map[string]int{everything: 1}}}}
	cut := Run{Epoch: life, Ends: []End{{At: 2 * time.Second, Rest: map[string]int{"health": 1}}}}
	for name, tt := range map[string]struct {
		last Run
		want string
	}{
		"whole": {now, "5"}, "bare": {now.Bounded(Bare), "5"}, "bare, of an earlier release": {early, ""},
		"too many GPUs": {cut, ""},
	} {
		got := LastHealth([]Run{before, tt.last}, life)["A"]
		if f, _ := got.Fact(gpu.ECCUncorrected); f.Value != tt.want {
			t.Errorf("%s: %q, want %q", name, f.Value, tt.want)
		}
		if name == "bare" && len(got.Accounting.Processes) > 0 {
			t.Error("what the driver accounted for was kept")
		}
	}
	check := Check{Health: now.Ends[0].Health}.Bounded(Bare)
	if len(check.Health) != 1 || len(check.Health[0].Facts) != 1 {
		t.Errorf("of a health check: %+v", check.Health)
	}
}

func TestSightings(t *testing.T) {
	on := func(device gpu.ID, pids ...int) gpu.Reading {
		r := gpu.Reading{Device: gpu.Device{ID: device}}
		for _, pid := range pids {
			r.Processes = append(r.Processes, gpu.Process{PID: pid, Memory: gpu.Bytes(uint64(pid))})
		}
		return r
	}
	end := func(at time.Duration, readings ...gpu.Reading) End {
		// its end is not its look
		e := End{At: at + time.Minute, Snapshot: gpu.Snapshot{At: at, Readings: readings}}
		e.Processes = []attrib.Process{{PID: 7, Cgroup: slurm.Owner{ID: 42}}, {PID: 8, Cgroup: slurm.Owner{ID: 43}},
			{PID: 9},
			{PID: 10, UID: 1002}, {PID: 11, UID: 1002, Container: "docker"}, {PID: 12, UID: 1002, OtherPIDs: true},
			{PID: 13, UID: 1002, Why: "not read"}}
		return e
	}
	self := Run{Job: slurm.Job{ID: 42}, Epoch: life, Devices: []Assigned{{Index: 0, Device: gpu.Device{ID: "A"}}}}
	before, after := end(time.Second, on("B", 1), on("A", 7)), end(20*time.Second, on("B", 1), on("A", 7))
	late, early := end(8*time.Second, on("B", 1), on("A", 7, 9, 10, 11, 12, 13, 14), on("C", 7)),
		end(5*time.Second, on("A", 8))
	runs := []Run{{Epoch: life, Start: &before, Ends: []End{late, after}}, {Epoch: life, Ends: []End{early}},
		{Epoch: gpu.Epoch{Boot: "other"}, Ends: []End{early}}}
	got := Sightings(runs, self, 2*time.Second, 10*time.Second)
	want := []diagnosis.Sighting{
		{At: 5 * time.Second, Device: "A", PID: 8, Bytes: gpu.Bytes(8), Owner: slurm.Owner{ID: 43}},
		{At: 8 * time.Second, Device: "A", PID: 7, Bytes: gpu.Bytes(7), Owner: slurm.Owner{ID: 42}, Own: true},
		{At: 8 * time.Second, Device: "A", PID: 9, Bytes: gpu.Bytes(9)},
		{At: 8 * time.Second, Device: "A", PID: 10, Bytes: gpu.Bytes(10), Stranger: true},
		{At: 8 * time.Second, Device: "A", PID: 11, Bytes: gpu.Bytes(11)},
		{At: 8 * time.Second, Device: "A", PID: 12, Bytes: gpu.Bytes(12)},
		{At: 8 * time.Second, Device: "A", PID: 13, Bytes: gpu.Bytes(13)},
		{At: 8 * time.Second, Device: "A", PID: 14, Bytes: gpu.Bytes(14)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}
