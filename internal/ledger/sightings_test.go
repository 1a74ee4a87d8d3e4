package ledger

import (
	"reflect"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

func TestLastHealth(t *testing.T) {
	epoch := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	look := func(at time.Duration, device gpu.ID, count string) End {
		return End{At: at, Health: []gpu.Health{{Device: device,
			Facts: []gpu.Fact{{Code: gpu.ECCUncorrected, Value: count}}}}}
	}
	bare := End{At: 9 * time.Second, Health: []gpu.Health{{Device: "A", Accounting: gpu.Accounting{Mode: "on"}}}}
	runs := []Run{
		{Epoch: epoch, Ends: []End{look(2*time.Second, "A", "3")}},
		{Epoch: epoch, Ends: []End{look(5*time.Second, "A", "4"), look(4*time.Second, "B", "1")}},
		{Epoch: epoch, Ends: []End{bare}},
		{Epoch: gpu.Epoch{Boot: "b", Driver: "580", Module: "older"}, Ends: []End{look(8*time.Second, "A", "90")}},
	}
	got := map[gpu.ID]string{}
	for id, h := range LastHealth(runs, epoch) {
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
	epoch := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	look := func(at time.Duration, count string) Run {
		health := []gpu.Health{{
			Device: "A", Facts: []gpu.Fact{{Code: gpu.ECCUncorrected, Value: count}},
			Accounting: gpu.Accounting{Processes: make([]gpu.Accounted, 900)},
		}}
		return Run{Epoch: epoch, Ends: []End{{At: at, Health: health}}}
	}
	before, now := look(time.Second, "2"), look(2*time.Second, "5")
	// of an earlier release
	early := Run{Epoch: epoch, Ends: []End{{At: 2 * time.Second, Rest: map[string]int{everything: 1}}}}
	cut := Run{Epoch: epoch, Ends: []End{{At: 2 * time.Second, Rest: map[string]int{"health": 1}}}}
	for name, tt := range map[string]struct {
		last Run
		want string
	}{
		"whole": {now, "5"}, "bare": {now.Bounded(Bare), "5"}, "bare, of an earlier release": {early, ""},
		"too many GPUs": {cut, ""},
	} {
		got := LastHealth([]Run{before, tt.last}, epoch)["A"]
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
	epoch := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	on := func(device gpu.ID, pids ...int) gpu.Reading {
		r := gpu.Reading{Device: gpu.Device{ID: device}}
		for _, pid := range pids {
			r.Processes = append(r.Processes, gpu.Process{PID: pid, Memory: gpu.Bytes(uint64(pid))})
		}
		return r
	}
	end := func(at time.Duration, own gpu.Reading, elsewhere ...gpu.Reading) End {
		// its end is not its look
		e := End{At: at + time.Minute, Snapshot: gpu.Snapshot{At: at, Readings: []gpu.Reading{own}}}
		if elsewhere != nil {
			e.Neighbours = &gpu.Snapshot{At: at, Readings: elsewhere}
		}
		e.Processes = []attrib.Process{{PID: 7, Cgroup: slurm.Owner{ID: 42}}, {PID: 8, Cgroup: slurm.Owner{ID: 43}},
			{PID: 9},
			{PID: 10, UID: 1002}, {PID: 11, UID: 1002, Container: "docker"}, {PID: 12, UID: 1002, OtherPIDs: true},
			{PID: 13, UID: 1002, Why: "not read"}}
		return e
	}
	self := Run{Job: slurm.Job{ID: 42}, Epoch: epoch, Devices: []Assigned{{Index: 0, Device: gpu.Device{ID: "A"}}}}
	before, after := end(time.Second, on("B", 1), on("A", 7)), end(20*time.Second, on("B", 1), on("A", 7))
	late, early := end(8*time.Second, on("B", 1), on("A", 7, 9, 10, 11, 12, 13, 14), on("C", 7)),
		end(5*time.Second, on("A", 8))
	runs := []Run{{Epoch: epoch, Start: &before, Ends: []End{late, after}}, {Epoch: epoch, Ends: []End{early}},
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
