package main

import (
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/protocol"
	"bookend/test/fakegpu"
)

// asked are the ways in which a request may name a world's first card; nil asks for all cards.
func asked(w *fakegpu.World) map[string][]gpu.Device {
	id, bus := gpu.ID(w.UUID(0)), gpu.BusID(w.BusID(0))
	return map[string][]gpu.Device{
		"by both": {{ID: id, BusID: bus}}, "by bus id": {{BusID: bus}}, "by id": {{ID: id}}, "all": nil,
	}
}

func watchOf(w *fakegpu.World, devices []gpu.Device) protocol.Request {
	req := request(w.NVML())
	req.Op, req.All, req.Devices = protocol.Watch, devices == nil, devices
	req.Watch = gpu.WatchRule{Max: 10 * time.Second, Flat: 350 * time.Millisecond, SlackBytes: 32 << 20}
	return req
}

// One failed call is no verdict: the next look asks again, and the card is what it then says.
func TestCardThatFailsOnceIsAskedAgain(t *testing.T) {
	for how, functions := range map[string][]string{
		"by both":   {"nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo_v2"},
		"by bus id": {"nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo_v2"},
		"by id":     {"nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo_v2"},
		"all": {"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID",
			"nvmlDeviceGetMemoryInfo_v2"},
	} {
		for _, function := range functions {
			t.Run(how+" "+function, func(t *testing.T) {
				rule := "on." + function
				if function != "nvmlDeviceGetCount_v2" {
					rule += ".gpu0"
				}
				w := world(t, "gpus=2, "+rule+"=rc 15 times 1")
				devices := asked(w)[how]
				all := looks(t, watchOf(w, devices))
				if len(all) != 2 || len(all[0].Faults) != 1 || len(all[1].Faults) != 0 {
					t.Fatalf("got %d looks, %s", len(all), text(t, all))
				}
				f := all[0].Faults[0]
				if f.Code != gpu.FaultLost || len(devices) > 0 && devices[0].ID != "" && f.Device != devices[0].ID ||
					len(devices) > 0 && devices[0].BusID != "" && f.BusID != devices[0].BusID {
					t.Errorf("got fault %+v of %+v", f, devices)
				}
				reading(t, all[1], w.UUID(0))
			})
		}
	}
}

// A card that takes long to say no must not be asked when the alarm would come first: that looked like a hang.
func TestNoSlowRetryIntoTheAlarm(t *testing.T) {
	w := world(t, "on.nvmlDeviceGetHandleByPciBusId_v2.gpu0=sleep 4000, on.nvmlDeviceGetUUID.gpu0=rc 15")
	req := watchOf(w, asked(w)["by both"])
	req.DeadlineMillis = 11000
	req.Watch.Flat, req.Watch.Max = time.Minute, time.Minute
	looks(t, req) // wants a complete answer
}

// A library that cannot be initialised for a moment is no fault of the driver; one that never can is, whatever its code.
// The first call is made before Go's runtime starts.
func TestLibraryIsInitialisedAgain(t *testing.T) {
	for rule, want := range map[string]gpu.FaultCode{
		"rc 999 times 3": "", "rc 999": gpu.FaultDriver, "rc 777": gpu.FaultDriver, "rc 18": gpu.FaultMismatch,
		"rc 9 times 1": "", "rc 9 times 2": gpu.FaultNoDriver,
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			w := world(t, "gpus=1, on.nvmlInit_v2="+rule)
			a := answerTo(request(w.NVML()))
			faulty := len(a.Faults) == 1 && a.Faults[0].Code == want
			if !a.Complete || want == "" && len(a.Snapshots) != 1 || want != "" && !faulty {
				t.Errorf("got %+v", a)
			}
		})
	}
}

// NVML starts while Go's runtime does, before there is a request.
func TestLibraryStartsFirst(t *testing.T) {
	w := world(t, "gpus=1, on.nvmlInit_v2=exit 9")
	p := startByHand(t, "", "/usr/bin/env", "BOOKEND_NVML="+w.NVML())
	if got := p.wait(t); got.ExitCode() != 9 {
		t.Errorf("got %v", got)
	}
}
