package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/wire"
	"bookend/test/fakegpu"
)

// healthCalls are the functions that nobody calls who was not asked for health or accounting.
var healthCalls = []string{
	"nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetRetiredPages",
	"nvmlDeviceGetRetiredPagesPendingStatus", "nvmlDeviceGetFieldValues", "nvmlDeviceGetGpuFabricInfoV",
	"nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetCurrentClocksEventReasons",
	"nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetComputeMode",
}

var accountingCalls = []string{
	"nvmlDeviceGetAccountingMode", "nvmlDeviceSetAccountingMode", "nvmlDeviceGetAccountingPids",
	"nvmlDeviceGetAccountingStats", "nvmlDeviceGetAccountingBufferSize",
}

func healthOf(w *fakegpu.World, devices ...gpu.Device) wire.Request {
	req := askFor(w, devices...)
	req.Health = true
	return req
}

// health asks and wants a complete answer without trouble, with a look and the health of these devices, in order.
func health(t *testing.T, req wire.Request, devices ...gpu.ID) []gpu.Health {
	t.Helper()
	a := answerTo(req)
	if len(a.Troubles) > 0 || !a.Complete || len(a.Snapshots) != 1 {
		t.Fatalf("got %d looks, complete %v, troubles %v, faults %v", len(a.Snapshots), a.Complete, a.Troubles,
			a.Faults)
	}
	var got []gpu.ID
	for _, h := range a.Health {
		got = append(got, h.Device)
	}
	if !slices.Equal(got, devices) {
		t.Fatalf("got health of %v, want %v", got, devices)
	}
	return a.Health
}

// said writes a fact as "code=value", or "code? why".
func said(f gpu.Fact) string {
	if f.Unknown != "" {
		return fmt.Sprintf("%s? %s", f.Code, f.Unknown)
	}
	return fmt.Sprintf("%s=%s", f.Code, f.Value)
}

func saidOf(h gpu.Health) []string {
	all := []string{}
	for _, f := range h.Facts {
		all = append(all, said(f))
	}
	return all
}

// atRest is what a healthy H200 says, with its sources.
var atRest = []gpu.Fact{
	{Code: gpu.ECCUncorrected, Value: "0", Source: "nvmlDeviceGetTotalEccErrors"},
	{Code: gpu.RemapRows, Value: "0", Source: "nvmlDeviceGetRemappedRows"},
	{Code: gpu.RemapPending, Value: "no", Source: "nvmlDeviceGetRemappedRows"},
	{Code: gpu.RemapFailed, Value: "no", Source: "nvmlDeviceGetRemappedRows"},
	{Code: gpu.RecoveryAction, Value: "none", Source: "nvmlDeviceGetFieldValues"},
	{Code: gpu.FabricState, Value: "not_supported", Source: "nvmlDeviceGetGpuFabricInfoV"},
	{Code: gpu.BAR1Used, Value: "1048576", Source: "nvmlDeviceGetBAR1MemoryInfo"},
	{Code: gpu.BAR1Total, Value: "274877906944", Source: "nvmlDeviceGetBAR1MemoryInfo"},
	{Code: gpu.PersistenceMode, Value: "on", Source: "nvmlDeviceGetPersistenceMode"},
	{Code: gpu.Throttled, Value: "none", Source: "nvmlDeviceGetCurrentClocksEventReasons"},
	{Code: gpu.ComputeMode, Value: "default", Source: "nvmlDeviceGetComputeMode"},
}

func TestHealthOfIdleCards(t *testing.T) {
	w := world(t)
	for i, h := range health(t, healthOf(w, cardOf(w, 2), cardOf(w, 0)), gpu.ID(w.UUID(2)), gpu.ID(w.UUID(0))) {
		if !slices.Equal(h.Facts, atRest) || h.Accounting.Mode != "" || h.Accounting.Unknown != "" {
			t.Errorf("card %d: got %s", i, text(t, h))
		}
	}
	all := request(w.NVML())
	all.Health = true
	if got := health(t, all, gpu.ID(w.UUID(0)), gpu.ID(w.UUID(1)), gpu.ID(w.UUID(2)),
		gpu.ID(w.UUID(3))); !slices.Equal(got[3].Facts, atRest) {
		t.Errorf("all: got %s", text(t, got[3]))
	}
}

// Nothing is asked of a card that the driver has called lost: each call may wait for a timeout.
func TestHealthOfALostCard(t *testing.T) {
	const lost = "GPU is lost (15)"
	tests := map[string]struct {
		function string
		first    int // of the facts that are unknown
		words    string
	}{
		"in the look":      {"nvmlDeviceGetMemoryInfo_v2", 0, "not asked: nvmlDeviceGetMemoryInfo_v2: " + lost},
		"at the first":     {"nvmlDeviceGetTotalEccErrors", 0, "nvmlDeviceGetTotalEccErrors: " + lost},
		"in between":       {"nvmlDeviceGetFieldValues", 4, "nvmlDeviceGetFieldValues: " + lost},
		"at the very last": {"nvmlDeviceGetComputeMode", len(atRest) - 1, "nvmlDeviceGetComputeMode: " + lost},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := world(t, fakegpu.GPUs(2), fakegpu.With("on."+tt.function+".gpu0", "rc 15"))
			reached := false
			for _, f := range atRest { // what comes after it would hang
				if reached = reached || f.Source == tt.function || tt.first == 0; reached && f.Source != tt.function {
					must(t, w.Set("on."+f.Source+".gpu0", "hang"))
				}
			}
			must(t, w.Set("on.nvmlDeviceGetAccountingMode.gpu0", "hang"))
			req := healthOf(w, cardOf(w, 0), cardOf(w, 1))
			req.Accounting = tt.first < len(atRest)-1 // it comes before the last
			both := health(t, req, gpu.ID(w.UUID(0)), gpu.ID(w.UUID(1)))
			got := both[0].Facts
			if len(got) != len(atRest) || !slices.Equal(got[:tt.first], atRest[:tt.first]) ||
				got[tt.first].Unknown != tt.words {
				t.Fatalf("got %s", text(t, got))
			}
			for _, f := range got[tt.first:] {
				if f.Value != "" || !strings.HasSuffix(f.Unknown, lost) {
					t.Errorf("got %s", said(f))
				}
			}
			if a := both[0].Accounting; req.Accounting &&
				(a.Mode != "" || !strings.HasPrefix(a.Unknown, "not asked: ") || !strings.HasSuffix(a.Unknown, lost)) {
				t.Errorf("got accounting %s", text(t, a))
			}
			if !slices.Equal(both[1].Facts, atRest) {
				t.Errorf("the other card: got %s", text(t, both[1]))
			}
		})
	}
}

// A card that was never open has a fault and no health.
func TestHealthOfACardThatCannotBeOpened(t *testing.T) {
	w := world(t, fakegpu.GPUs(2), fakegpu.With("on.any.gpu0", "rc 15"))
	health(t, healthOf(w, cardOf(w, 0), cardOf(w, 1)), gpu.ID(w.UUID(1)))
	health(t, healthOf(w, cardOf(w, 0)))
}

// An instance has its card's facts under its own name, and a compute mode of its own; the card has none in MIG mode.
func TestHealthOfInstances(t *testing.T) {
	w := cutWorld(t, fakegpu.With("gpu1.ecc_uncorrected", "5"), fakegpu.With("gpu1.compute_mode", "3"))
	old := gpu.Device{ID: gpu.ID(fmt.Sprintf("MIG-%s/3/1", w.UUID(1)))}
	got := health(t, healthOf(w, instance(w, 0), old, cardOf(w, 0)), instance(w, 0).ID, old.ID, gpu.ID(w.UUID(0)))
	const gone = "-remap_uncorrected -remap_pending -remap_failed ecc_uncorrected=5"
	for _, h := range got[:2] {
		if diff := unlike(atRest, h); diff != gone+" compute_mode=exclusive_process" {
			t.Errorf("%s: got %q", h.Device, diff)
		}
	}
	if !slices.Equal(got[2].Facts, atRest) {
		t.Errorf("the other card: got %s", text(t, got[2]))
	}
	card := health(t, healthOf(w, cardOf(w, 1)), gpu.ID(w.UUID(1)))[0]
	if diff := unlike(atRest, card); diff != "-remap_uncorrected -remap_pending -remap_failed -compute_mode ecc_uncorrected=5" {
		t.Errorf("the card: got %q", diff)
	}
}

// The card behind its instances is read once, however many of them were asked for.
func TestCardOfInstancesIsReadOnce(t *testing.T) {
	w := cutWorld(t, fakegpu.With("on.nvmlDeviceGetTotalEccErrors.gpu1", "rc 999 after 1"))
	req := request(w.NVML())
	req.Health = true
	for _, h := range health(t, req, gpu.ID(w.UUID(0)), gpu.ID(w.UUID(1)), instance(w, 0).ID, instance(w, 2).ID,
		instance(w, 3).ID) {
		if f, ok := h.Fact(gpu.ECCUncorrected); !ok || f.Value != "0" {
			t.Errorf("%s: got %s", h.Device, said(f))
		}
	}
}

func TestInstanceWhoseCardIsNotTold(t *testing.T) {
	w := cutWorld(t, fakegpu.With("on.nvmlDeviceGetDeviceHandleFromMigDeviceHandle", "rc 999"))
	asked := instance(w, 0)
	asked.BusID, asked.Parent = gpu.BusID(w.BusID(1)), gpu.ID(w.UUID(1))
	req := healthOf(w, asked)
	req.Accounting = true
	h := health(t, req, asked.ID)[0]
	if len(h.Facts) != len(atRest) || h.Accounting.Unknown == "" {
		t.Fatalf("got %s", text(t, h))
	}
	for _, f := range h.Facts {
		if f.Value != "" || !strings.Contains(f.Unknown,
			"nvmlDeviceGetDeviceHandleFromMigDeviceHandle: Unknown Error (999)") {
			t.Errorf("got %s", said(f))
		}
	}
}

// What goes wrong in a health call costs the looks nothing, and is this card's trouble, not another's.
func TestTroubleInAHealthCall(t *testing.T) {
	for rule, want := range map[string]code.Code{"hang": code.Hang, "hang-hard": code.Hang, "crash": code.BackendCrash,
		"exit 9": code.BackendCrash} {
		for _, function := range []string{"nvmlDeviceGetFieldValues", "nvmlDeviceGetAccountingMode"} {
			t.Run(rule+" in "+function, func(t *testing.T) {
				t.Parallel()
				w := world(t, fakegpu.GPUs(2), fakegpu.With("on."+function+".gpu0", rule))
				req := beside(w, cardOf(w, 0))
				req.Health, req.Accounting, req.DeadlineMillis = true, true, 3000
				a := answerTo(req)
				if len(a.Snapshots) != 1 || len(a.Snapshots[0].Readings) != 1 || len(a.Health) > 0 || a.Watched ||
					a.Neighbours != nil {
					t.Errorf("got %d looks, health %v, watched %v", len(a.Snapshots), a.Health, a.Watched)
				}
				if len(a.Troubles) != 1 || a.Troubles[0].Code != want || a.Troubles[0].Elsewhere {
					t.Errorf("got troubles %+v", a.Troubles)
				}
			})
		}
	}
}

// Who asks for neither gets neither, and pays for neither: any of these calls would end the program.
func TestHealthIsNotAskedFor(t *testing.T) {
	for name, tt := range map[string]struct {
		health, accounting bool
		lethal             []string
		facts              []gpu.Fact
		mode               string
	}{
		"health alone":     {true, false, accountingCalls, atRest, ""},
		"accounting alone": {false, true, healthCalls, nil, "off"},
		"neither":          {false, false, slices.Concat(healthCalls, accountingCalls), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t, fakegpu.GPUs(1))
			for _, function := range tt.lethal {
				must(t, w.Set("on."+function, "crash"))
			}
			req := askFor(w, cardOf(w, 0))
			req.Health, req.Accounting = tt.health, tt.accounting
			if !tt.health && !tt.accounting {
				health(t, req)
				return
			}
			if h := health(t, req, gpu.ID(w.UUID(0)))[0]; !slices.Equal(h.Facts, tt.facts) ||
				h.Accounting.Mode != tt.mode {
				t.Errorf("got %s, want accounting %q", text(t, h), tt.mode)
			}
		})
	}
}

func TestNoTimeForHealth(t *testing.T) {
	var out bytes.Buffer
	now := time.Hour
	s := session{ // without a library: nothing may be called
		req: wire.Request{Health: true, Accounting: true, StartAccounting: true}, out: wire.NewWriter(&out),
		boot:  func() time.Duration { return now },
		slots: []slot{{opened: opened{devices: []device{{}}}}},
	}
	must(t, s.tellHealth(now+healthLeast-1))
	if out.Len() > 0 {
		t.Errorf("said %q", &out)
	}
}

// The looks come first: health takes what room they leave.
func TestNoRoomForHealth(t *testing.T) {
	const filler = 4096
	all := []gpu.Health{{Device: "GPU-1", Facts: atRest,
		Accounting: gpu.Accounting{Mode: "on", Processes: make([]gpu.Accounted, mostAccounted)}}}
	send := func(t *testing.T, left int) string {
		t.Helper()
		var out bytes.Buffer
		s := session{out: wire.NewWriter(&out)}
		line := wire.Reply{Kind: wire.KindFault,
			Fault: &gpu.Fault{Code: gpu.FaultDriver, Detail: strings.Repeat("x", filler)}}
		for out.Len()+filler+200 < wire.MaxReplyBytes-left {
			must(t, s.out.Write(line))
		}
		out.Reset()
		must(t, s.sendHealth(all))
		all[0].Accounting.Unknown, all[0].Accounting.Processes = "", make([]gpu.Accounted, mostAccounted)
		must(t, s.out.Write(wire.Reply{Kind: wire.KindDone}))
		return out.String()
	}
	if got := send(t, 1<<20); strings.Count(got, `"pid"`) != mostAccounted {
		t.Errorf("with room: got %d processes", strings.Count(got, `"pid"`))
	}
	if got := send(t, 10_000); strings.Contains(got, `"pid"`) || !strings.Contains(got, "no room for its processes") ||
		!strings.Contains(got, `"recovery_action"`) {
		t.Errorf("with little room: got %q", got)
	}
	if got := send(t, 0); strings.Contains(got, "health") {
		t.Errorf("without room: got %q", got)
	}
}
