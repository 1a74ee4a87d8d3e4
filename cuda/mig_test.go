package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/test/fakegpu"
	"bookend/test/must"
)

// cutWorld has two cards of which the second is cut: indexes 0, 2 and 3, with a hole, the last two on one GPU instance.
func cutWorld(t *testing.T, settings string) *fakegpu.World {
	t.Helper()
	return world(t, "gpus=2, "+settings, fakegpu.Instance(1, 0, 7, 0, 18000), fakegpu.Instance(1, 2, 3, 0, 36000),
		fakegpu.Instance(1, 3, 3, 1, 36000))
}

func instance(w *fakegpu.World, index int) gpu.Device {
	return gpu.Device{ID: gpu.ID(w.InstanceUUID(1, index))}
}

func TestInstances(t *testing.T) {
	w := cutWorld(t, "")
	small := start(t, w, "alloc", "--gpu", "1", "--mib", "1000")
	large := start(t, w, "alloc", "--gpu", "1", "--mib", "2000")
	must.Do(t, w.Place(1, 0, small.PID))
	must.Do(t, w.Place(1, 2, large.PID))
	s := look(t, request(w.NVML()))
	if len(s.Readings) != 5 || len(s.Faults) != 0 {
		t.Fatalf("got %s", text(t, s))
	}
	const context = 527
	for index, want := range map[int]struct {
		total, used uint64
		pids        []int
		unknown     string // the processes
		shared      bool
	}{
		0: {18000, 1000 + context, []int{small.PID}, "", false},
		2: {36000, 2000 + context, []int{}, "no telling", true},
		3: {36000, 2000 + context, []int{}, "", true},
	} {
		r := reading(t, s, w.InstanceUUID(1, index))
		if r.Memory.Total != gpu.Bytes(want.total<<20) || r.Memory.Used != gpu.Bytes(want.used<<20) ||
			!slices.Equal(listed(r), want.pids) || !strings.Contains(r.ProcessesUnknown, want.unknown) ||
			(r.ProcessesUnknown == "") != (want.unknown == "") {
			t.Errorf("instance %d: got %s", index, text(t, r))
		}
		if r.Device.Parent != gpu.ID(w.UUID(1)) || r.Device.BusID != gpu.BusID(w.BusID(1)) ||
			!strings.Contains(r.Device.Name, "MIG") {
			t.Errorf("instance %d is %s", index, text(t, r.Device))
		}
		if strings.Contains(r.Memory.Unjudged, "GPU instance 3") != want.shared ||
			(r.Memory.Unjudged != "") != want.shared {
			t.Errorf("instance %d: unjudged %q", index, r.Memory.Unjudged)
		}
	}
	// What runs on a card in MIG mode is its instances' to say.
	card := reading(t, s, w.UUID(1))
	if len(card.Processes) != 0 || card.ProcessesUnknown != isCut || card.Memory.Unjudged != isCut ||
		!card.Parts {
		t.Errorf("GPU: got %s", text(t, card))
	}
	whole := reading(t, s, w.UUID(0))
	if whole.ProcessesUnknown != "" || whole.Memory.Unjudged != "" {
		t.Errorf("the other GPU: got %s", text(t, whole))
	}
}

// A driver that lists the whole card's processes for each instance must not make a sibling's an instance's own.
func TestInstanceListsItsOwnProcesses(t *testing.T) {
	w := cutWorld(t, "gpu1.mig_lists=parent")
	mine := start(t, w, "alloc", "--gpu", "1", "--mib", "1000")
	sibling := start(t, w, "alloc", "--gpu", "1", "--mib", "30000") // more than this instance has
	must.Do(t, w.Place(1, 0, mine.PID))
	must.Do(t, w.Place(1, 3, sibling.PID))
	read := func() gpu.Reading {
		return reading(t, look(t, askFor(w, instance(w, 0))), w.InstanceUUID(1, 0))
	}
	if r := read(); !slices.Equal(listed(r), []int{mine.PID}) || r.ProcessesUnknown != "" {
		t.Errorf("got %s", text(t, r))
	}
	must.Do(t, w.Place(1, 3)) // a process of which the driver does not say where it runs
	if r := read(); len(r.Processes) != 0 || !strings.Contains(r.ProcessesUnknown, "no telling on which MIG instance") {
		t.Errorf("got %s", text(t, r))
	}
}

// What is not there is missing: neither idle nor a leak. An instance that could not be opened may be the one asked for.
func TestInstanceThatIsNotThere(t *testing.T) {
	onCard := func(w *fakegpu.World, d gpu.Device) gpu.Device {
		d.BusID, d.Parent = gpu.BusID(w.BusID(1)), gpu.ID(w.UUID(1))
		return d
	}
	w := cutWorld(t, "")
	gone := instance(w, 0)
	none := func() error { return nil }
	tests := map[string]struct {
		device gpu.Device
		change func() error
		fault  gpu.FaultCode
	}{
		"1 there, as an earlier reading named it": {onCard(w, gone), none, ""},
		"2 there, by its id":                      {gone, none, ""},
		"3 not to be opened": {gone,
			func() error { return w.Set("on.nvmlDeviceGetMigDeviceHandleByIndex.gpu1", "rc 999") }, gpu.FaultDriver},
		"4 destroyed, by its id": {gone, func() error {
			must.Do(t, w.Set("on.nvmlDeviceGetMigDeviceHandleByIndex.gpu1", ""))
			return w.Destroy(1, 0)
		}, gpu.FaultNoDevice},
		"5 destroyed, by its bus id": {onCard(w, gone), none, gpu.FaultNoDevice},
		"6 never made":               {gpu.Device{ID: "MIG-4"}, none, gpu.FaultNoDevice},
		"7 MIG mode turned off": {onCard(w, instance(w, 2)), func() error { return w.Set("gpu1.mig", "0") },
			gpu.FaultNoDevice},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) { // in order: the world changes
		tt := tests[name]
		must.Do(t, tt.change())
		s := look(t, askFor(w, tt.device))
		missing := len(s.Readings) == 0 && len(s.Faults) == 1 && s.Faults[0].Code == tt.fault &&
			s.Faults[0].Device == tt.device.ID
		there := len(s.Readings) == 1 && s.Readings[0].Device.ID == tt.device.ID && len(s.Faults) == 0
		if tt.fault == "" && !there || tt.fault != "" && !missing {
			t.Errorf("%s: got %s", name, text(t, s))
		}
	}
}

func TestListLongerThanItsOffer(t *testing.T) {
	var list strings.Builder
	for pid := range 1500 {
		fmt.Fprintf(&list, "%d:1 ", pid+1)
	}
	w := cutWorld(t, "gpu1.mig0_list="+list.String())
	if n := len(reading(t, look(t, request(w.NVML())), w.InstanceUUID(1, 0)).Processes); n != 1500 {
		t.Errorf("got %d processes", n)
	}
}
