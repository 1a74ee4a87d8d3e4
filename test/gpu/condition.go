package main

import (
	"fmt"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/test/gpu/record"
)

// conditionOf takes down what an end has on record besides who was on the cards: their condition, the test allocations,
// and why the job ran out of memory.
func conditionOf(out *record.End, e ledger.End) {
	for _, h := range e.Health {
		out.Health = append(out.Health, healthOf(h))
	}
	for _, p := range e.Probes {
		out.Probes = append(out.Probes, probeOf(p))
	}
	for _, m := range e.Messages {
		said := fmt.Sprintf("%s %s: %s", m.Framework, m.Kind, m.Line)
		if m.Rank != nil {
			said = fmt.Sprintf("rank %d: %s", *m.Rank, said)
		}
		out.Messages = append(out.Messages, said)
	}
	if e.Diagnosis == nil {
		return
	}
	d := &record.Diagnosis{Asked: e.Diagnosis.Asked, Headline: e.Diagnosis.Headline, Try: e.Diagnosis.Try}
	for _, c := range e.Diagnosis.Causes {
		d.Causes = append(d.Causes, record.Cause{Name: string(c.Name), Answer: string(c.Answer), Evidence: c.Evidence})
	}
	out.Diagnosis = d
}

func healthOf(h gpu.Health) record.Health {
	out := record.Health{GPU: string(h.Device), Accounting: h.Accounting.Mode}
	if h.Accounting.Unknown != "" {
		out.Accounting = "unknown: " + h.Accounting.Unknown
	}
	for _, f := range h.Facts {
		out.Facts = append(out.Facts, record.Fact{Code: string(f.Code), Value: f.Value, Unknown: f.Unknown,
			Source: f.Source})
	}
	return out
}

func probeOf(p gpu.Probe) record.Probe {
	out := record.Probe{
		GPU: string(p.Device), Result: string(p.Result), Why: p.Why, Method: string(p.Method), Free: p.Free.Bytes,
		Largest: p.Largest.Bytes, Attempts: p.Attempts, Init: millis(p.Times.Init), Search: millis(p.Times.Search),
		Release: millis(p.Times.Release),
	}
	for _, f := range []gpu.Figure{p.Free, p.Largest} {
		if f.Unknown != "" {
			out.Unknown = f.Unknown
		}
	}
	if p.Error != nil {
		out.Error = fmt.Sprintf("%s: %d %s: %s; %s", p.Error.Call, p.Error.Code, p.Error.Name, p.Error.Meaning,
			p.Error.Remedy)
	}
	return out
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
