package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// bounds limit the lists of one start or end.
type bounds struct {
	many int // processes of one GPU, and processes read from /proc
	few  int // entries of any other list
	text int // bytes of each text of a finding
}

// shrinking are the bounds to try, one after another, until a record fits. The first apply to every record: a node was
// seen with 480 processes that had the driver open, all candidates of each finding. The last are for a bare record.
var shrinking = []bounds{{1024, 64, 1 << 10}, {64, 8, 128}, {0, 64, 64}}

// Bare is the level at which a record has the verdict without its evidence.
var Bare = len(shrinking) - 1

// everything is the key in Rest if only the verdict was kept.
const everything = "evidence"

const maxReport = 16 << 10 // bytes of the text that a user gets

// Bounded returns the run with lists of bounded length, and a count of what was left out. The higher the level, the
// less is kept, up to Bare. Finding codes, causes of a drain and exit codes are the same at every level.
func (r Run) Bounded(level int) Run {
	r.Ends = slices.Clone(r.Ends)
	for i, e := range r.Ends {
		r.Ends[i] = e.bounded(level)
	}
	if r.Start != nil {
		start := r.Start.bounded(level)
		r.Start = &start
	}
	if level >= Bare {
		given := r.Job.GPUIndexes // one index more than known devices shows that some are unknown
		r.Job.Visible, r.Job.GPUIndexes = nil, given[:min(len(given), len(r.Devices)+1)]
	}
	return r
}

// Bounded is Run.Bounded for a health check.
func (c Check) Bounded(level int) Check {
	e := End{Snapshot: c.Snapshot, Findings: c.Findings, Verdict: c.Verdict, Health: c.Health, Rest: c.Rest}
	e = e.bounded(level)
	c.Snapshot, c.Findings, c.Verdict, c.Health, c.Rest = e.Snapshot, e.Findings, e.Verdict, e.Health, e.Rest
	return c
}

// bounded bounds the lists of an end that are not already bounded by the number of GPUs.
func (e End) bounded(level int) End {
	c := &cutter{shrinking[level], map[string]int{}}
	maps.Copy(c.rest, e.Rest)
	if level >= Bare {
		e = e.bare()
		c.rest[everything] = 1
	}
	e.Findings, e.Verdict = c.findings(e.Findings, e.Verdict)
	e.Processes = few(c, "processes", e.Processes, c.many)
	e.Snapshot.Readings = slices.Clone(e.Snapshot.Readings)
	for i := range e.Snapshot.Readings {
		r := &e.Snapshot.Readings[i]
		all := len(r.Processes)
		if r.Processes = few(c, "listed", r.Processes, c.many); len(r.Processes) < all {
			// the list is incomplete: nothing about the GPU is certain any more
			r.ProcessesUnknown = fmt.Sprintf("%d processes, of which %d were recorded", all, len(r.Processes))
		}
	}
	if e.Scan != nil {
		s := *e.Scan
		if s.Holdings = few(c, "holdings", s.Holdings, c.few); len(s.Holdings) < len(e.Scan.Holdings) {
			s.Partial = cmp.Or(s.Partial, "not all holders were recorded")
		}
		if s.Unread = few(c, "unread", s.Unread, c.few); len(s.Unread) < len(e.Scan.Unread) {
			s.Partial = cmp.Or(s.Partial, "not all processes that were not read were recorded")
		}
		e.Scan = &s
	}
	if e.Kernel != nil {
		k := *e.Kernel
		k.Xids, k.Kills = few(c, "xids", k.Xids, c.few), few(c, "kills", k.Kills, c.few)
		e.Kernel = &k
	}
	e.Recording = e.Recording.Bounded(level)
	e.Report = clip(e.Report, maxReport)
	if e.Rest = c.rest; len(e.Rest) == 0 {
		e.Rest = nil
	}
	return e
}

// bare keeps an end's verdict, what policy and drain need of each finding, and each GPU's counters for the next job.
func (e End) bare() End {
	b := End{At: e.At, Began: e.Began, Wall: e.Wall, Epoch: e.Epoch, Unseen: e.Unseen, Presumed: e.Presumed,
		SlurmConf: e.SlurmConf,
		Verdict:   e.Verdict, Snapshot: gpu.Snapshot{At: e.Snapshot.At}}
	for _, f := range e.Findings {
		b.Findings = append(b.Findings, finding.Finding{Code: f.Code, GPU: f.GPU, Index: f.Index, Unknown: f.Unknown,
			Bytes: f.Bytes, Owner: f.Owner, Xid: f.Xid, Doubts: f.Doubts[:min(len(f.Doubts), 1)]})
	}
	if k := e.Kernel; k != nil {
		b.Kernel = &gpu.KernelLog{Last: k.Last, Epoch: k.Epoch, Lost: k.Lost, Unknown: k.Unknown}
	}
	b.Health = slices.Clone(e.Health)
	for i := range b.Health {
		b.Health[i].Accounting = gpu.Accounting{}
	}
	return b
}

type cutter struct {
	bounds
	rest map[string]int
}

func few[T any](c *cutter, name string, list []T, most int) []T {
	if len(list) <= most {
		return list
	}
	c.rest[name] += len(list) - most
	return list[:most]
}

// findings keeps what decided the verdict, one of each code and cause of a drain, and the first others, in their order.
func (c *cutter) findings(found []finding.Finding, v finding.Verdict) ([]finding.Finding, finding.Verdict) {
	var order, others []int
	decided, seen := Decisive(found, v), map[string]bool{}
	for i, f := range found {
		kind := string(f.Code)
		if v.Drains(i) && seen[kind] {
			kind += " of " + string(f.GPU)
		}
		if i == decided || !seen[kind] {
			order = append(order, i)
		} else {
			others = append(others, i)
		}
		seen[kind] = true
	}
	order = append(order, few(c, "findings", others, c.few)...)
	slices.Sort(order)
	kept, judged := []finding.Finding(nil), v.Judged
	v.Judged, v.Held = nil, clip(v.Held, c.text)
	for _, i := range order {
		f := found[i]
		if len(f.Candidates) > c.few { // those with an owner first: they show whether the leftover is still there
			owned := func(h finding.Holder) bool { return h.Owner != nil }
			others := slices.DeleteFunc(slices.Clone(f.Candidates), owned)
			owners := slices.DeleteFunc(slices.Clone(f.Candidates), func(h finding.Holder) bool { return !owned(h) })
			f.Candidates = append(owners, others...)
		}
		f.Candidates = few(c, "candidates", f.Candidates, c.few)
		f.Observed, f.Expected, f.Unknown = clip(f.Observed, c.text), clip(f.Expected, c.text), clip(f.Unknown, c.text)
		kept = append(kept, f)
		if i < len(judged) {
			v.Judged = append(v.Judged, finding.Judged{Action: judged[i].Action, Why: clip(judged[i].Why, c.text)})
		}
	}
	return kept, v
}

// Decisive returns the index of the finding that decided a verdict, -1 if none: one that drains, with the most memory.
func Decisive(found []finding.Finding, v finding.Verdict) int {
	best := -1
	for i, f := range found {
		switch {
		case f.Code != v.Code:
		case best < 0, v.Drains(i) && !v.Drains(best):
			best = i
		case v.Drains(i) == v.Drains(best) && f.Bytes.Bytes > found[best].Bytes.Bytes:
			best = i
		}
	}
	return best
}

func clip(text string, most int) string {
	const dots = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}

// maxAccounts is how many processes from accounting a GPU's record keeps: the driver keeps thousands, of all jobs, and
// the records of a node are in memory.
const maxAccounts = 32

// Accounts keeps the accounted processes that did not begin before since (wall time; zero: any), the largest first.
func Accounts(all []gpu.Health, since time.Time) []gpu.Health {
	kept := slices.Clone(all)
	for i := range kept {
		a := &kept[i].Accounting
		a.Processes = slices.DeleteFunc(slices.Clone(a.Processes), func(p gpu.Accounted) bool {
			return !since.IsZero() && !p.Began.IsZero() && p.Began.Before(since)
		})
		slices.SortStableFunc(a.Processes,
			func(x, y gpu.Accounted) int { return cmp.Compare(y.Peak.Bytes, x.Peak.Bytes) })
		a.Processes = a.Processes[:min(len(a.Processes), maxAccounts)]
	}
	return kept
}
