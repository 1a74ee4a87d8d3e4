package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/wire"
	"bookend/test/fakegpu"
	"bookend/test/must"
)

// contextMiB is what a process with a context has in its own figure beside its allocations.
const contextMiB = 527 - 9

func accountingOf(w *fakegpu.World, devices ...gpu.Device) wire.Request {
	req := askFor(w, devices...)
	req.Accounting = true
	return req
}

// accounting asks for one card's and wants no facts with it.
func accounting(t *testing.T, req wire.Request, id gpu.ID) gpu.Accounting {
	t.Helper()
	h := health(t, req, id)[0]
	if len(h.Facts) > 0 {
		t.Errorf("got facts %v", unlike(h))
	}
	return h.Accounting
}

func TestAccountingFigures(t *testing.T) {
	const began = 1_790_000_000_000_000
	w := world(t, "gpus=1, gpu0.accounting_mode=1, gpu0.accounted="+fmt.Sprintf("100:10:%d:2500:0 101:-1:0:0:1 "+
		"102:143771:1000000:0:0 103:143772:2000000:0:0 104:0:-1:0:1 105:1:%d:4000000000000:0", began, began+1))
	a := accounting(t, accountingOf(w, cardOf(w, 0)), gpu.ID(w.UUID(0)))
	const call = "nvmlDeviceGetAccountingStats: "
	want := []gpu.Accounted{
		{PID: 105, Peak: gpu.Bytes(1 << 20), Began: time.UnixMicro(began + 1).UTC()}, // ran for more than a century
		{PID: 100, Peak: gpu.Bytes(10 << 20), Began: time.UnixMicro(began).UTC(), Ran: 2500 * time.Millisecond},
		{PID: 103, Peak: gpu.Unknown(call + "150755868672 bytes of 150754820096"), Began: time.Unix(2, 0).UTC()},
		{PID: 102, Peak: gpu.Bytes(143771 << 20), Began: time.Unix(1, 0).UTC()},
		{PID: 101, Peak: gpu.Unknown(call + "18446744073709551615 bytes of 150754820096"), Running: true},
		{PID: 104, Peak: gpu.Bytes(0), Running: true},
	}
	if !slices.Equal(a.Processes, want) || a.Unknown != "" {
		t.Errorf("got %s, want %s", text(t, a), text(t, want))
	}
}

func TestAccountingThatCannotBeRead(t *testing.T) {
	w := world(t, "gpus=2, gpu0.accounting_mode=1, gpu1.accounting_mode=1, "+
		"gpu0.accounted=100:10:1:2:0 101:20:1:2:0, gpu1.accounted=100:10:1:2:0")
	tests := map[string]struct {
		function, rule string
		mode, why      string
		processes      int
	}{
		"not supported":     {"Mode", "rc 3", "", "not supported on this GPU", 0},
		"mode fails":        {"Mode", "rc 999", "", "nvmlDeviceGetAccountingMode: Unknown Error (999)", 0},
		"list fails":        {"Pids", "rc 4", "on", "nvmlDeviceGetAccountingPids: Insufficient Permissions (4)", 0},
		"list without end":  {"Pids", "rc 7", "on", "nvmlDeviceGetAccountingPids: Insufficient Size (7)", 0},
		"dropped meanwhile": {"Stats", "rc 6 times 1", "on", "", 1},
		"one fails":         {"Stats", "rc 999 times 1", "on", "", 2},
		"lost meanwhile":    {"Stats", "rc 15 after 1", "on", "nvmlDeviceGetAccountingStats: GPU is lost (15)", 1},
		"list of the lost":  {"Pids", "rc 15", "on", "nvmlDeviceGetAccountingPids: GPU is lost (15)", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			key := "on.nvmlDeviceGetAccounting" + tt.function + ".gpu0"
			must.Do(t, w.Set(key, tt.rule))
			both := health(t, accountingOf(w, cardOf(w, 0), cardOf(w, 1)), gpu.ID(w.UUID(0)), gpu.ID(w.UUID(1)))
			must.Do(t, w.Set(key, ""))
			if a := both[0].Accounting; a.Mode != tt.mode || a.Unknown != tt.why || len(a.Processes) != tt.processes {
				t.Errorf("got %s", text(t, a))
			}
			if other := both[1].Accounting; other.Mode != "on" || other.Unknown != "" || len(other.Processes) != 1 {
				t.Errorf("the other GPU: got %s", text(t, other))
			}
			if name == "one fails" &&
				both[0].Accounting.Processes[1].Peak.Unknown != "nvmlDeviceGetAccountingStats: Unknown Error (999)" {
				t.Errorf("got %s", text(t, both[0].Accounting))
			}
		})
	}
}

func TestAccountingIsCut(t *testing.T) {
	var entries []string
	for i := range 700 {
		entries = append(entries, fmt.Sprintf("%d:%d:%d:0:1", i+1, i, 1_000_000+i))
	}
	w := world(t, "gpus=1, gpu0.accounting_mode=1, gpu0.accounted="+strings.Join(entries, " "))
	a := accounting(t, accountingOf(w, cardOf(w, 0)), gpu.ID(w.UUID(0)))
	if a.Mode != "on" || a.Unknown != "the newest 256 of 700 processes" || len(a.Processes) != 256 ||
		a.Processes[0].PID != 700 || a.Processes[255].PID != 445 {
		t.Errorf("got %d processes, %q", len(a.Processes), a.Unknown)
	}
	must.Do(t, w.Set("on.nvmlDeviceGetAccountingStats", "sleep 20")) // 14 s for all
	req := accountingOf(w, cardOf(w, 0))
	req.DeadlineMillis = 3000
	a = accounting(t, req, gpu.ID(w.UUID(0)))
	if n := len(a.Processes); n < 1 || n == mostAccounted ||
		a.Unknown != fmt.Sprintf("time for %d of 700 processes", n) {
		t.Errorf("got %d processes, %q", n, a.Unknown)
	}
}

func TestAccountingIsStarted(t *testing.T) {
	w := world(t, "gpu2.accounting_mode=1, gpu2.accounted=100:10:1:2:0, on.nvmlDeviceSetAccountingMode.gpu1=rc 4, "+
		"on.nvmlDeviceGetAccountingMode.gpu3=rc 999")
	req := accountingOf(w, cardOf(w, 0), cardOf(w, 1), cardOf(w, 2), cardOf(w, 3))
	req.StartAccounting = true
	all := health(t, req, gpu.ID(w.UUID(0)), gpu.ID(w.UUID(1)), gpu.ID(w.UUID(2)), gpu.ID(w.UUID(3)))
	for i, want := range []gpu.Accounting{
		{Mode: "on"},
		{Mode: "off", Unknown: "cannot be switched on: nvmlDeviceSetAccountingMode: Insufficient Permissions (4)"},
		{Mode: "on"},
		{Unknown: "nvmlDeviceGetAccountingMode: Unknown Error (999)"},
	} {
		if a := all[i].Accounting; a.Mode != want.Mode || a.Unknown != want.Unknown {
			t.Errorf("GPU %d: got %s, want %s", i, text(t, a), text(t, want))
		}
	}
	if len(all[2].Accounting.Processes) != 1 {
		t.Errorf("where it was on: got %s", text(t, all[2].Accounting))
	}
	switched := func() []string {
		t.Helper()
		return must.Have(w.AccountingSwitches())(t)
	}
	if got := switched(); !slices.Equal(got, []string{"0 1"}) {
		t.Errorf("switched %q", got)
	}
	// What is on is left alone, and keeps the peaks of whoever comes.
	p := start(t, w, "alloc", "--gpu", "0", "--mib", "40")
	must.Do(t, p.Kill())
	req = accountingOf(w, cardOf(w, 0), gpu.Device{BusID: gpu.BusID(w.BusID(0))})
	req.StartAccounting = true
	if a := accounting(t, req, gpu.ID(w.UUID(0))); len(a.Processes) != 1 || a.Processes[0].PID != p.PID ||
		a.Processes[0].Peak != gpu.Bytes((40+contextMiB)<<20) {
		t.Errorf("got %s", text(t, a))
	}
	if got := switched(); len(got) != 1 {
		t.Errorf("switched %q", got)
	}
	// Without being asked for, the list is not read.
	req.Accounting = false
	if a := accounting(t, req, gpu.ID(w.UUID(0))); a.Mode != "on" || a.Unknown != "" || len(a.Processes) > 0 {
		t.Errorf("got %s", text(t, a))
	}
}

// In MIG mode the driver forces it off: nobody tries.
func TestAccountingIsNotStartedInMIGMode(t *testing.T) {
	const leftOff = "left off: the driver keeps no accounting of a GPU in MIG mode, and this one may be"
	w := cutWorld(t, "on.nvmlDeviceSetAccountingMode.gpu1=crash")
	req := accountingOf(w, instance(w, 0), instance(w, 2), cardOf(w, 0))
	req.StartAccounting = true
	all := health(t, req, instance(w, 0).ID, instance(w, 2).ID, gpu.ID(w.UUID(0)))
	for _, h := range all[:2] {
		if h.Accounting.Mode != "off" || h.Accounting.Unknown != leftOff {
			t.Errorf("%s: got %s", h.Device, text(t, h.Accounting))
		}
	}
	if all[2].Accounting.Mode != "on" {
		t.Errorf("the other GPU: got %s", text(t, all[2].Accounting))
	}
	must.Do(t, w.Set("on.nvmlDeviceGetMigMode", "rc 999"))
	must.Do(t, w.Set("on.nvmlDeviceSetAccountingMode", "crash"))
	req = accountingOf(w, cardOf(w, 1))
	req.StartAccounting = true
	if a := accounting(t, req, gpu.ID(w.UUID(1))); a.Mode != "off" || a.Unknown != leftOff {
		t.Errorf("mode not told: got %s", text(t, a))
	}
}

func TestAccountingListThatCannotBeTrusted(t *testing.T) {
	w := world(t, "gpus=1, gpu0.accounting_mode=1, gpu0.accounted=100:10:1:2:0 0:10:1:2:0")
	a := accounting(t, accountingOf(w, cardOf(w, 0)), gpu.ID(w.UUID(0)))
	if want := "nvmlDeviceGetAccountingPids: list not trusted: process 0"; len(a.Processes) > 0 || a.Unknown != want {
		t.Errorf("got %s, want %s", text(t, a), want)
	}
}
