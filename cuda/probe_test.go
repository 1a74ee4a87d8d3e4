package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/protocol"
	"bookend/test/fakegpu"
	"bookend/test/golden"
	"bookend/test/must"
)

const idleFree = (143771 - 615) * mib // free on an idle card

// probeOf asks for a test of cards of a world, with all that a hook gives.
func probeOf(t *testing.T, w *fakegpu.World, cards ...int) protocol.Request {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "mps"), 0o755))
	req := request(w.NVML())
	req.Op, req.All, req.Options[optionCUDA] = protocol.Probe, false, w.CUDA()
	req.Probe = gpu.ProbeRule{Gap: 64 * mib, Locks: map[gpu.ID]string{}, LockWait: time.Second,
		Empty: filepath.Join(dir, "mps")}
	for _, card := range cards {
		id := gpu.ID(w.UUID(card))
		req.Devices = append(req.Devices, gpu.Device{ID: id, BusID: gpu.BusID(w.BusID(card))})
		req.Probe.Locks[id] = filepath.Join(dir, fmt.Sprintf("card%d.lock", card))
	}
	return req
}

// probed asks, and wants one result for each device and no trouble.
func probed(t *testing.T, req protocol.Request) []gpu.Probe {
	t.Helper()
	a := answerTo(req)
	if len(a.Troubles) > 0 || !a.Complete || len(a.Probes) != len(req.Devices) {
		t.Fatalf("got %d results, complete %v, troubles %v, faults %v", len(a.Probes), a.Complete, a.Troubles, a.Faults)
	}
	for _, p := range a.Probes {
		if told := p.Result == gpu.ProbeOK || p.Result == gpu.ProbeGap; told == (p.Why != "") || p.At <= 0 {
			t.Errorf("a %s with reason %q at %v", p.Result, p.Why, p.At)
		}
	}
	return a.Probes
}

// unused wants the fake driver's bookkeeping empty on a card.
func unused(t *testing.T, w *fakegpu.World, card int) {
	t.Helper()
	used := must.Have(w.Used(card))(t)
	if used != 0 {
		t.Errorf("%d bytes are left on GPU %d", used, card)
	}
}

func TestProbeOfAnIdleCard(t *testing.T) {
	w := world(t, "")
	p := probed(t, probeOf(t, w, 2))[0]
	want := gpu.Probe{
		Device: gpu.ID(w.UUID(2)), Result: gpu.ProbeOK, Method: gpu.Contextless,
		Free: gpu.Bytes(idleFree), Largest: gpu.Bytes(idleFree - 2*mib), Attempts: 1, At: p.At, Times: p.Times,
	}
	if text(t, p) != text(t, want) || p.Times.Init <= 0 || p.Times.Search <= 0 || p.Times.Release <= 0 {
		t.Errorf("got %s", text(t, p))
	}
	unused(t, w, 2)
}

// The memory of an idle GPU is written and read where that is asked for. Wrong words are found with their place. What the
// driver refuses says nothing about the memory, but for its own check of it; and nothing of it stays on the GPU.
func TestPattern(t *testing.T) {
	for given, want := range map[string]struct {
		result gpu.ProbeResult
		bytes  uint64
		why    string
	}{
		"":                                 {gpu.ProbeOK, idleFree - (527+64)*mib, ""},
		"gpu0.wrong=0:1 1234567890:100000": {gpu.ProbeWrong, idleFree - (527+64)*mib, ""},
		"gpu0.wrong=99999999999:1":         {gpu.ProbeOK, idleFree - (527+64)*mib, ""}, // beyond its end
		"on.cuStreamQuery=rc 214":          {gpu.ProbeBroken, 0, ""},
		"on.cuStreamQuery=rc 719":          {gpu.ProbeOK, 0, "cuStreamQuery: "},
		"on.cuStreamQuery=rc 600":          {gpu.ProbeOK, 0, "no time left for the test"},
		"on.cuModuleLoadData=rc 222":       {gpu.ProbeOK, 0, "cuModuleLoadData: "},
		"on.cuDevicePrimaryCtxRetain=rc 2": {gpu.ProbeOK, 0, "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY (2)"},
		"on.cuMemAlloc_v2=rc 2":            {gpu.ProbeOK, 0, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)"},
		"on.cuMemcpyDtoH_v2=rc 700":        {gpu.ProbeOK, 0, "cuMemcpyDtoH: "},
		"on.cuLaunchKernel=crash":          {gpu.ProbeOK, 0, "-"},
		"on.cuMemAlloc_v2=rc 2, on.nvmlDeviceGetGraphicsRunningProcesses_v3=rc 999 after 1": {gpu.ProbeOK, 0, "who is on "},
		"on.cuMemFree_v2=rc 1": {gpu.ProbeOK, idleFree - (527+64)*mib, ""},
	} {
		w := world(t, cmp.Or(given, "gpus=1"))
		req := probeOf(t, w, 0)
		req.DeadlineMillis, req.Probe.Pattern = 1500, []gpu.ID{gpu.ID(w.UUID(0))}
		a := answerTo(req)
		if len(a.Probes) == 0 {
			t.Errorf("%s: no result: troubles %v", given, a.Troubles)
			continue
		}
		p := a.Probes[len(a.Probes)-1]
		got := cmp.Or(p.Pattern, &gpu.Pattern{Why: "-"})
		if p.Result != want.result || got.Bytes>>21 != want.bytes>>21 || !strings.HasPrefix(got.Why, want.why) {
			t.Errorf("%s: got %s", given, text(t, p))
		}
		if want.result == gpu.ProbeWrong && (got.Wrong != 4 || len(got.First) != 4 ||
			got.First[1] != gpu.WrongWord{Offset: 8 * 1234567890, Flipped: 1 << 20}) {
			t.Errorf("%s: got %s", given, text(t, got))
		}
		unused(t, w, 0)
	}
}

func TestProbeOfAllCards(t *testing.T) {
	w := world(t, "gpu1.extra_mib=1000", fakegpu.Minors(2, 0, 3, 1))
	req := probeOf(t, w, 3, 1, 0, 2)
	req.Devices = append(req.Devices, req.Devices[0]) // twice
	a := answerTo(req)
	if len(a.Troubles) > 0 || len(a.Probes) != 4 {
		t.Fatalf("got %d results, troubles %v", len(a.Probes), a.Troubles)
	}
	for i, p := range a.Probes {
		free := uint64(idleFree)
		if i == 1 {
			free -= 1000 * mib
		}
		if p.Device != gpu.ID(w.UUID(i)) || p.Result != gpu.ProbeOK || p.Free != gpu.Bytes(free) ||
			p.Largest != gpu.Bytes(free-2*mib) {
			t.Errorf("got %s", text(t, p))
		}
		unused(t, w, i)
	}
}

// Each result, with what it says, by what the driver does: each call that may fail, and codes with and without words.
func TestProbeResults(t *testing.T) {
	golden.Lines(t, *update, "testdata/probe.txt", func(given string) string {
		w := world(t, "gpus=1, "+given)
		p := probed(t, probeOf(t, w, 0))[0]
		broke := p.Result == gpu.ProbeSkipped || p.Result == gpu.ProbeBroken
		if e := p.Error; e != nil {
			words, _ := cuda.LookUp(e.Call, e.Code)
			broke = broke || e.Code == 46
			if e.Name == "" || words.Name != "" && e.Name != words.Name || e.Meaning != words.Meaning ||
				e.Remedy != words.Remedy {
				t.Errorf("%s: got %+v, want %+v", given, e, words)
			}
		}
		if p.Largest.Known() == broke {
			t.Errorf("%s: got %s", given, text(t, p))
		}
		unused(t, w, 0)
		got, free := p.Largest.Bytes>>20, p.Free.Bytes>>20
		return strings.TrimSpace(fmt.Sprintf("%s, %d of %d MiB: %s", p.Result, got, free, p.Why))
	})
}

func TestProbeOfACardThatIsAnother(t *testing.T) {
	w := world(t, "gpus=2")
	req := probeOf(t, w, 0)
	req.Devices[0].BusID = gpu.BusID(w.BusID(1))
	if p := probed(t, req)[0]; p.Result != gpu.ProbeSkipped || p.Why != "not found at its bus id" {
		t.Errorf("exchanged: %s", text(t, p))
	}
	// NVML cannot say which card it is, so that only CUDA can.
	must.Do(t, w.Set("on.nvmlDeviceGetUUID", "rc 3"))
	req = probeOf(t, w, 0, 1)
	req.Devices[0].BusID, req.Devices[1].BusID = req.Devices[1].BusID, req.Devices[0].BusID
	for _, p := range probed(t, req) {
		if p.Result != gpu.ProbeSkipped || !strings.Contains(p.Why, "CUDA has another GPU at its place") {
			t.Errorf("exchanged, seen by CUDA: %s", text(t, p))
		}
	}
}

// CUDA's list ends at a card in MIG mode: the others are not blamed for that.
func TestProbeBesideACardThatCUDADoesNotShow(t *testing.T) {
	w := world(t, "gpus=3, gpu0.mig=1")
	for _, cards := range [][]int{{0, 1, 2}, {0, 1}} {
		all := probed(t, probeOf(t, w, cards...))
		for _, p := range all {
			if p.Result != gpu.ProbeSkipped {
				t.Errorf("of %d: %s", len(cards), text(t, p))
			}
		}
		if why := all[len(cards)-1].Why; !strings.Contains(why, "CUDA_ERROR_NO_DEVICE (100)") ||
			!strings.Contains(why, "ask for it alone") {
			t.Errorf("got %q", why)
		}
	}
	must.Do(t, w.Set("gpu0.mig", "0"))
	must.Do(t, w.Set("on.cuDeviceGetByPCIBusId", "rc 101 after 1"))
	all := probed(t, probeOf(t, w, 0, 1, 2))
	if all[0].Result != gpu.ProbeOK || all[1].Result != gpu.ProbeSkipped || all[2].Result != gpu.ProbeSkipped {
		t.Errorf("got %s", text(t, all))
	}
	must.Do(t, w.Set("on.cuDeviceGetByPCIBusId", "rc 101"))
	if p := probed(t, probeOf(t, w, 1))[0]; p.Result != gpu.ProbeBroken || p.Error.Code != 101 {
		t.Errorf("alone: got %s", text(t, p))
	}
}

func TestProbeOfAnInstance(t *testing.T) {
	w := world(t, "gpus=1", fakegpu.Instance(0, 0, 1, 0, 20000))
	req := probeOf(t, w)
	req.Devices = []gpu.Device{{ID: gpu.ID(w.InstanceUUID(0, 0)), BusID: gpu.BusID(w.BusID(0)), Parent: gpu.ID(w.UUID(0))}}
	if p := probed(t, req)[0]; p.Result != gpu.ProbeSkipped || p.Why != "MIG instances are not tested" {
		t.Errorf("got %s", text(t, p))
	}
}

func TestProbeWithoutLibrary(t *testing.T) {
	w := world(t, "gpus=2")
	req := probeOf(t, w, 0, 1)
	req.Options[optionCUDA] = filepath.Join(w.Dir(), "none.so")
	for _, p := range probed(t, req) {
		if p.Result != gpu.ProbeBroken || p.Error == nil || p.Error.Call != "dlopen" ||
			p.Error.Name != "no CUDA library" || p.Error.Remedy == "" ||
			!strings.Contains(p.Why, "cannot open shared object file") {
			t.Errorf("no CUDA: %s", text(t, p))
		}
	}
	req = probeOf(t, w, 0, 1)
	req.Options[optionNVML] = filepath.Join(w.Dir(), "none.so")
	a := answerTo(req)
	if len(a.Troubles) > 0 || len(a.Faults) != 1 || a.Faults[0].Code != gpu.FaultNoLibrary || len(a.Probes) != 2 ||
		a.Probes[1].Result != gpu.ProbeSkipped {
		t.Errorf("no NVML: got faults %v, troubles %v, %s", a.Faults, a.Troubles, text(t, a.Probes))
	}
	unused(t, w, 0)
}

// Requests that only a broken hook makes.
func TestProbeRefuses(t *testing.T) {
	w := world(t, "gpus=1")
	for name, change := range map[string]func(*protocol.Request){
		"relative path": func(r *protocol.Request) { r.Options[optionCUDA] = "libcuda.so.1" },
		"no id":         func(r *protocol.Request) { r.Devices[0].ID = "" },
	} {
		req := probeOf(t, w, 0)
		change(&req)
		if a := answerTo(req); len(a.Troubles) == 0 || len(a.Probes) > 0 {
			t.Errorf("%s: got troubles %v, %s", name, a.Troubles, text(t, a.Probes))
		}
	}
	req := probeOf(t, w, 0)
	req.Devices = nil
	if a := answerTo(req); len(a.Troubles) > 0 || !a.Complete || len(a.Probes) > 0 {
		t.Errorf("nothing asked: troubles %v", a.Troubles)
	}
}

// A start of the driver's libraries that takes long is no fault of the driver: the test is not made, and this process
// ends in time, whoever it left in the driver.
func TestProbeWithASlowStart(t *testing.T) {
	for name, rule := range map[string]string{
		"slow": "on.cuInit=sleep 4000", "a hang": "on.cuInit=hang", "a hang for good": "on.cuInit=hang-hard",
		"NVML": "on.nvmlInit_v2=hang",
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t, "gpu3.mig=1, "+rule)
			req := probeOf(t, w, 0, 1)
			req.DeadlineMillis = 2000
			for _, p := range probed(t, req) {
				if p.Result != gpu.ProbeSkipped || !strings.HasPrefix(p.Why, "CUDA did not start within ") ||
					p.Error != nil {
					t.Errorf("got %s", text(t, p))
				}
			}
			unused(t, w, 0)
		})
	}
}

// A pattern test that crashes, hangs or takes too long takes no result from another GPU, and only a crash is a trouble.
func TestPatternThatDoesNotEnd(t *testing.T) {
	for rule, trouble := range map[string]bool{
		"on.cuLaunchKernel.gpu1=crash": true, "on.cuModuleLoadData=hang": false,
		"on.cuDevicePrimaryCtxRetain.gpu0=sleep 4000": false,
	} {
		t.Run(rule, func(t *testing.T) {
			w := world(t, rule)
			req := probeOf(t, w, 0, 1, 2)
			req.DeadlineMillis, req.Probe.Pattern = 2000, []gpu.ID{gpu.ID(w.UUID(0)), gpu.ID(w.UUID(1))}
			a := answerTo(req)
			if len(a.Troubles) > 0 != trouble || a.Complete == trouble || len(a.Probes) != 3 {
				t.Fatalf("got troubles %v, %s", a.Troubles, text(t, a.Probes))
			}
			for _, p := range a.Probes {
				if p.Result != gpu.ProbeOK || !trouble && p.Pattern != nil && p.Pattern.Why != "no time left for the test" {
					t.Errorf("got %s", text(t, p))
				}
			}
			unused(t, w, 0)
		})
	}
}

// What was known before a crash or a hang at a later card still counts.
func TestProbeThatDoesNotEnd(t *testing.T) {
	tests := map[string]struct {
		rule string
		code catalog.Code
	}{
		"crash in the middle": {"on.cuMemCreate.gpu2=crash", catalog.BackendCrash},
		"hang in the middle":  {"on.cuMemCreate.gpu2=hang", catalog.Hang},
		"crash with memory":   {"on.cuMemRelease.gpu2=crash", catalog.BackendCrash},
		"hang with memory":    {"on.cuMemRelease.gpu2=hang-hard", catalog.Hang},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := world(t, "gpu3.compute_mode=2, "+tt.rule)
			req := probeOf(t, w, 0, 1, 2, 3)
			req.DeadlineMillis = 2000
			a := answerTo(req)
			if len(a.Troubles) != 1 || a.Troubles[0].Code != tt.code || a.Complete || len(a.Probes) != 3 {
				t.Fatalf("got troubles %v, %d results", a.Troubles, len(a.Probes))
			}
			for _, p := range a.Probes {
				if skipped := p.Device == gpu.ID(w.UUID(3)); p.Result != gpu.ProbeOK && !skipped ||
					skipped != (p.Result == gpu.ProbeSkipped) {
					t.Errorf("got %s", text(t, p))
				}
			}
			unused(t, w, 2)
		})
	}
}
