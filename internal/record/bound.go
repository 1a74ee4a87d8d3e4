package record

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bookend/internal/gpu"
)

// maxEntries is how many entries a record keeps of each list of a start or end that may be of any length. The names are
// those in End.Rest, which counts the others; see docs/limits.md. On one node, each finding had 480 candidates.
var maxEntries = map[string]int{"listed": 256, "processes": 256, "holdings": 64, "findings": 64, "candidates": 64}

const (
	Everything = "evidence" // the key in Rest if only the verdict was kept
	maxReport  = 16 << 10   // bytes of the text that a user gets
	maxText    = 1 << 10    // bytes of each text of a finding
	maxBare    = 64         // bytes of such a text without evidence
)

// cut returns the first entries of a list, as many as a record keeps, and counts the others.
func cut[T any](rest map[string]int, name string, list []T) []T {
	kept := list[:min(len(list), maxEntries[name])]
	if len(kept) < len(list) {
		rest[name] += len(list) - len(kept)
	}
	return kept
}

func boundedFinding(rest map[string]int, f Finding) Finding {
	if len(f.Candidates) > maxEntries["candidates"] { // an owner's first: they show whether the leftover is still there
		owned := slices.DeleteFunc(slices.Clone(f.Candidates), func(h Holder) bool { return h.Owner == nil })
		others := slices.DeleteFunc(slices.Clone(f.Candidates), func(h Holder) bool { return h.Owner != nil })
		f.Candidates = cut(rest, "candidates", append(owned, others...))
	}
	f.Observed, f.Expected, f.Unknown = clip(f.Observed, maxText), clip(f.Expected, maxText), clip(f.Unknown, maxText)
	return f
}

func clip(text string, most int) string {
	const dots = "..."
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-len(dots)], "") + dots
	}
	return text
}

// Bounded cuts the lists that may be of any length to their maximum.
func (e End) Bounded() End {
	rest := maps.Collect(maps.All(e.Rest))
	e.cutFindings(rest)
	e.Processes = cut(rest, "processes", e.Processes)
	e.Snapshot.Readings = slices.Clone(e.Snapshot.Readings)
	for i := range e.Snapshot.Readings {
		r := &e.Snapshot.Readings[i]
		listed := cut(rest, "listed", r.Processes)
		if len(listed) < len(r.Processes) { // the list is incomplete: nothing about the GPU is certain any more
			r.ProcessesUnknown = fmt.Sprintf("%d processes, of which %d were recorded", len(r.Processes), len(listed))
		}
		r.Processes = listed
	}
	if e.Scan != nil && len(e.Scan.Holdings) > maxEntries["holdings"] {
		s := *e.Scan
		s.Holdings, s.Partial = cut(rest, "holdings", s.Holdings), cmp.Or(s.Partial, "not all holders were recorded")
		e.Scan = &s
	}
	e.Report = clip(e.Report, maxReport)
	if len(rest) > 0 {
		e.Rest = rest
	}
	return e
}

// Bare is Bounded without the evidence, for a record that would be too large: with the verdict, what policy and drain
// need of each finding, and each GPU's counters for the next job.
func (e End) Bare() End {
	e = e.Bounded()
	b := End{At: e.At, Began: e.Began, Wall: e.Wall, Epoch: e.Epoch, Unseen: e.Unseen, Presumed: e.Presumed,
		SlurmConf: e.SlurmConf, Verdict: e.Verdict, Snapshot: gpu.Snapshot{At: e.Snapshot.At},
		Health: e.Health, Rest: map[string]int{Everything: 1}}
	b.Verdict.Judged, b.Verdict.Held = nil, clip(e.Verdict.Held, maxBare)
	for i, f := range e.Findings {
		b.Findings = append(b.Findings, Finding{Code: f.Code, GPU: f.GPU, Index: f.Index, Bytes: f.Bytes,
			Owner: f.Owner, Unknown: clip(f.Unknown, maxBare), Xid: f.Xid, CausedBy: f.CausedBy, Seen: f.Seen,
			Earlier: f.Earlier, Doubts: f.Doubts[:min(len(f.Doubts), 1)]})
		j := e.Verdict.Of(i)
		b.Verdict.Judged = append(b.Verdict.Judged, Judged{Action: j.Action, Why: clip(j.Why, maxBare)})
	}
	if k := e.Kernel; k != nil {
		b.Kernel = &gpu.KernelLog{Last: k.Last, Epoch: k.Epoch, Lost: k.Lost, Unknown: k.Unknown}
	}
	return b
}

// cutFindings keeps what decided the verdict, one of each code and cause of a drain, and the first others, in order.
func (e *End) cutFindings(rest map[string]int) {
	found, v, decided := e.Findings, e.Verdict, e.Verdict.Decisive(e.Findings)
	seen, others := map[string]bool{}, 0
	e.Findings, e.Verdict.Judged = nil, nil
	for i, f := range found {
		kind := string(f.Code)
		if v.Drains(i) && seen[kind] {
			kind += " of " + string(f.GPU)
		}
		if i != decided && seen[kind] {
			others++
			if others > maxEntries["findings"] {
				rest["findings"]++
				continue
			}
		}
		seen[kind] = true
		e.Findings = append(e.Findings, boundedFinding(rest, f))
		if i < len(v.Judged) {
			e.Verdict.Judged = append(e.Verdict.Judged, v.Judged[i])
		}
	}
}

// Bare is End.Bare for a run, for a record that would be too large.
func (r Run) Bare() Run {
	if r.Start != nil {
		r.Start = new(r.Start.Bare())
	}
	r.Ends = slices.Clone(r.Ends)
	for i, e := range r.Ends {
		r.Ends[i] = e.Bare()
	}
	given := r.Job.GPUIndexes // one index more than known devices shows that some are unknown
	r.Job.Visible, r.Job.GPUIndexes = nil, given[:min(len(given), len(r.Devices)+1)]
	return r
}
