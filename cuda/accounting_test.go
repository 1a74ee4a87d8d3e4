package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/wire"
	"bookend/test/fakegpu"
	"bookend/test/golden"
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

// What is kept of a GPU is told, what cannot be true or read is unknown, and the other GPU's is told all the same.
func TestAccounting(t *testing.T) {
	golden.Lines(t, *update, "testdata/accounting.txt", func(given string) string {
		w := world(t, "gpus=2, gpu0.accounting_mode=1, gpu1.accounting_mode=1, gpu1.accounted=100:10:1:2:0, "+given)
		both := health(t, accountingOf(w, cardOf(w, 0), cardOf(w, 1)), gpu.ID(w.UUID(0)), gpu.ID(w.UUID(1)))
		if other := both[1].Accounting; other.Mode != "on" || other.Unknown != "" || len(other.Processes) != 1 {
			t.Errorf("the other GPU: got %s", text(t, other))
		}
		return text(t, both[0].Accounting)
	})
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
