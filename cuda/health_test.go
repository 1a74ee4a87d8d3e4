package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/backendkit"
	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/protocol"
	"bookend/test/fakegpu"
	"bookend/test/golden"
	"bookend/test/must"
)

func healthOf(w *fakegpu.World, devices ...gpu.Device) protocol.Request {
	req := askFor(w, devices...)
	req.Health = true
	return req
}

// health asks and wants a complete answer without trouble, with a look and the health of these devices, in order.
func health(t *testing.T, req protocol.Request, devices ...gpu.ID) []gpu.Health {
	t.Helper()
	a := answerTo(req)
	var got []gpu.ID
	for _, h := range a.Health {
		got = append(got, h.Device)
	}
	if len(a.Troubles) > 0 || !a.Complete || len(a.Snapshots) != 1 || !slices.Equal(got, devices) {
		t.Fatalf("got health of %v, want %v; %d looks, complete %v, troubles %v, faults %v", got, devices,
			len(a.Snapshots), a.Complete, a.Troubles, a.Faults)
	}
	return a.Health
}

// atRest is what a healthy H200 says, with its sources.
var atRest = []gpu.Fact{
	{Code: gpu.ECCUncorrected, Value: "0", Source: "nvmlDeviceGetTotalEccErrors"},
	{Code: gpu.RemapRows, Value: "0", Source: "nvmlDeviceGetRemappedRows"},
	{Code: gpu.RemapPending, Value: "no", Source: "nvmlDeviceGetRemappedRows"},
	{Code: gpu.RemapFailed, Value: "no", Source: "nvmlDeviceGetRemappedRows"},
	{Code: gpu.RecoveryAction, Value: "none", Source: "nvmlDeviceGetFieldValues"},
	{Code: gpu.FabricState, Value: "not_supported", Source: "nvmlDeviceGetGpuFabricInfoV"},
	{Code: gpu.PersistenceMode, Value: "on", Source: "nvmlDeviceGetPersistenceMode"},
	{Code: gpu.ComputeMode, Value: "default", Source: "nvmlDeviceGetComputeMode"},
	{Code: gpu.Throttled, Value: "none", Source: "nvmlDeviceGetCurrentClocksEventReasons"},
}

// Without what takes the driver long.
func TestBriefly(t *testing.T) {
	w := world(t, "")
	req := healthOf(w, gpu.Device{BusID: gpu.BusID(w.BusID(0))})
	req.Brief = true
	got := unlike(health(t, req, gpu.ID(w.UUID(0)))[0])
	if want := "-ecc_uncorrected -remap_uncorrected -remap_pending -remap_failed -throttled"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What a vendor's ticket asks for is read only if it is requested, without what the GPU does not have.
func TestIdentity(t *testing.T) {
	w := world(t, "gpu0.ecc_uncorrected_ever=7, gpu0.remapped_corrected=2")
	req := healthOf(w, gpu.Device{BusID: gpu.BusID(w.BusID(0))})
	req.Identity = true
	const want = "serial=1650123000042 part_number=699-21010-0220-200 vbios=96.00.74.00.01 ecc_uncorrected_ever=7 " +
		"ecc_corrected_ever=0 remap_corrected=2"
	if got := unlike(health(t, req, gpu.ID(w.UUID(0)))[0]); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	req.Identity = false
	if got := unlike(health(t, req, gpu.ID(w.UUID(0)))[0]); got != "" {
		t.Errorf("got %q without a request", got)
	}
}

// unlike writes what differs from a healthy card, without spaces in it, as "code=value" or "code?why"; what is gone
// comes first, as "-code".
func unlike(h gpu.Health) string {
	var words []string
	for _, f := range atRest {
		if _, ok := h.Fact(f.Code); !ok {
			words = append(words, "-"+string(f.Code))
		}
	}
	for _, f := range h.Facts {
		said := fmt.Sprintf("%s=%s", f.Code, f.Value)
		if f.Unknown != "" {
			said = fmt.Sprintf("%s?%s", f.Code, f.Unknown)
		}
		if !slices.Contains(atRest, f) {
			words = append(words, strings.ReplaceAll(said, " ", ""))
		}
	}
	return strings.Join(words, " ")
}

const noRemap = "-remap_uncorrected -remap_pending -remap_failed "

// Each value of each fact, one after another on one card; the others' facts stay as they are.
func TestFacts(t *testing.T) {
	w := world(t, "gpus=2")
	golden.Lines(t, *update, "testdata/facts.txt", func(given string) string {
		before := map[string]string{}
		for _, word := range strings.Fields(given) {
			key, value, _ := strings.Cut("gpu0."+word, "=")
			before[key] = w.Get(key)
			must.Do(t, w.Set(key, value))
		}
		both := health(t, healthOf(w, cardOf(w, 0), cardOf(w, 1)), gpu.ID(w.UUID(0)), gpu.ID(w.UUID(1)))
		for key, value := range before {
			must.Do(t, w.Set(key, value))
		}
		if other := unlike(both[1]); other != "" {
			t.Errorf("%s: of the other GPU %q", given, other)
		}
		return unlike(both[0])
	})
}

// A call that fails costs its own facts; what the driver does not offer is left out. After the word that the card is
// lost nothing more is asked: each call may wait for a timeout.
func TestHealthCallsThatFail(t *testing.T) {
	for _, function := range []string{
		"nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetFieldValues",
		"nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetPersistenceMode",
		"nvmlDeviceGetCurrentClocksEventReasons",
	} {
		w := world(t, "gpus=1")
		for rc, words := range map[int]string{3: "", 999: "Unknown Error (999)", 15: "GPU is lost (15)"} {
			must.Do(t, w.Set("on."+function, fmt.Sprint("rc ", rc)))
			lost := false
			for _, f := range atRest { // what comes after it would hang
				if lost = lost || rc == 15 && f.Source == function; lost && f.Source != function {
					must.Do(t, w.Set("on."+f.Source, "hang"))
				}
			}
			h := health(t, healthOf(w, cardOf(w, 0)), gpu.ID(w.UUID(0)))[0]
			lost = false
			for _, want := range atRest {
				must.Do(t, w.Set("on."+want.Source, ""))
				got, told := h.Fact(want.Code)
				failed := want.Source == function
				if lost = lost || failed && rc == 15; failed || lost {
					want.Value, want.Unknown = "", got.Unknown
				}
				if told == (failed && rc == 3) || told && got != want || (failed || lost) && !strings.HasSuffix(got.Unknown, words) {
					t.Errorf("%s %d: got %+v, %v", function, rc, got, told)
				}
			}
		}
	}
}

func TestHealthOfALostCard(t *testing.T) {
	w := world(t, "gpus=2, on.nvmlDeviceGetMemoryInfo_v2.gpu0=rc 15, on.nvmlDeviceGetTotalEccErrors.gpu0=hang")
	req := healthOf(w, cardOf(w, 0), cardOf(w, 1))
	both := health(t, req, gpu.ID(w.UUID(0)), gpu.ID(w.UUID(1)))
	const why = "not asked: nvmlDeviceGetMemoryInfo_v2: GPU is lost (15)"
	for _, f := range both[0].Facts {
		if f.Value != "" || f.Unknown != why {
			t.Errorf("got %+v", f)
		}
	}
	if len(both[0].Facts) != len(atRest) || unlike(both[1]) != "" {
		t.Errorf("got %s", text(t, both))
	}
	// One that was never open has a fault and no health.
	must.Do(t, w.Set("on.any.gpu0", "rc 15"))
	health(t, req, gpu.ID(w.UUID(1)))
}

// An instance has its card's facts under its own name.
func TestHealthOfInstances(t *testing.T) {
	w := cutWorld(t, "gpu1.ecc_uncorrected=5")
	got := health(t, healthOf(w, instance(w, 0), cardOf(w, 0), cardOf(w, 1)), instance(w, 0).ID, gpu.ID(w.UUID(0)),
		gpu.ID(w.UUID(1)))
	for i, want := range []string{
		noRemap + "-compute_mode ecc_uncorrected=5", "", noRemap + "-compute_mode ecc_uncorrected=5",
	} {
		if diff := unlike(got[i]); diff != want {
			t.Errorf("%s: got %q, want %q", got[i].Device, diff, want)
		}
	}
}

// What goes wrong in a health call costs the looks nothing.
func TestTroubleInAHealthCall(t *testing.T) {
	for rule, want := range map[string]catalog.Code{"hang": catalog.Hang, "hang-hard": catalog.Hang, "crash": catalog.BackendCrash} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			w := world(t, "gpus=2, on.nvmlDeviceGetFieldValues.gpu0="+rule)
			req := healthOf(w, cardOf(w, 0))
			req.DeadlineMillis = 3000
			a := answerTo(req)
			if len(a.Snapshots) != 1 || len(a.Snapshots[0].Readings) != 1 || len(a.Health) > 0 ||
				len(a.Troubles) != 1 || a.Troubles[0].Code != want {
				t.Errorf("got %d looks, health %v, troubles %+v", len(a.Snapshots), a.Health, a.Troubles)
			}
		})
	}
}

// Without a request for health there is none, and it costs nothing: any of these calls would end the program.
func TestHealthIsNotAskedFor(t *testing.T) {
	w := world(t, "gpus=1")
	for _, f := range atRest {
		must.Do(t, w.Set("on."+f.Source, "crash"))
	}
	health(t, askFor(w, cardOf(w, 0)))
}

func TestNoTimeForHealth(t *testing.T) {
	var out bytes.Buffer
	const now, reserve = time.Hour, 400 * time.Millisecond
	s := session{ // without a library: nothing may be called
		Session: backendkit.Session{Req: protocol.Request{Health: true}, Began: now + reserve + healthLeast - 1,
			Out: protocol.NewWriter(&out), Boot: func() time.Duration { return now }},
		slots: []opened{{devices: []device{{}}}},
	}
	must.Do(t, s.tellHealth())
	if out.Len() > 0 {
		t.Errorf("said %q", &out)
	}
}
