package view

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/probe"
	"bookend/internal/report"
)

// tests writes what test allocations said of a job's cards at one of its ends. A start may have it of an earlier hook.
func tests(w io.Writer, r ledger.Run, e ledger.End) {
	for _, d := range r.Devices {
		for _, p := range e.Probes {
			if p.Device != d.Device.ID {
				continue
			}
			when := ""
			if p.Result != gpu.ProbeSkipped && p.At > 0 && p.At < e.At {
				when = ", tested at " + e.Clock(p.At).Local().Format(timestamp)
			}
			fmt.Fprintf(w, "  GPU %d  %s%s\n", d.Index, test(p), when)
		}
	}
}

// Tests writes each card's last test on record. One of another epoch than now's says nothing any more.
func Tests(w io.Writer, records map[gpu.ID]probe.Record, now gpu.Epoch) {
	for _, id := range slices.Sorted(maps.Keys(records)) {
		r := records[id]
		void := ""
		if !r.Epoch.Same(now) {
			void = "; void: the driver was reloaded or the node booted since, or nobody can tell"
		}
		fmt.Fprintf(w, "last test of %s, %s: %s%s\n", report.Clean(string(id), nameWidth), r.Wall.Local().Format(timestamp), test(r.Probe), void)
	}
}

// test words one test allocation.
func test(p gpu.Probe) report.Safe {
	text := "test allocation: "
	switch p.Result {
	case gpu.ProbeSkipped:
		text += "not made: " + p.Why
	case gpu.ProbeOK, gpu.ProbeGap:
		text += fmt.Sprintf("%s, largest block %s of %s free%s", p.Result, Figure(p.Largest), Figure(p.Free), effort(p))
	default:
		text += string(p.Result) + ": " + failure(p)
	}
	return report.Clean(text, 400)
}

// effort is what a test took.
func effort(p gpu.Probe) string {
	took := p.Times.Init + p.Times.Search + p.Times.Release
	text := fmt.Sprintf(" (%s, %d ms", count(p.Attempts, "attempt", "s"), took.Round(time.Millisecond).Milliseconds())
	if p.Method == gpu.WithContext {
		text += ", in a context, which takes some 500 MiB itself"
	}
	return text + ")"
}

func failure(p gpu.Probe) string {
	e := p.Error
	if e == nil {
		return p.Why
	}
	text := fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code)
	for _, more := range []string{e.Meaning, e.Remedy} {
		if more != "" {
			text += "; " + more
		}
	}
	return text
}
