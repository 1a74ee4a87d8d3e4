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
	"bookend/internal/slurm"
)

// bounds are the most entries that the lists of one end keep.
type bounds struct {
	many int // processes of one card, and processes that /proc was asked about
	some int // processes that have the driver open; findings apart from those that always stay
	few  int // of any other list
	text int // bytes of each text of a finding
}

// shrinking are the bounds to try, one after the other, until a record fits. The first hold for every record: a node
// was seen with 480 processes that had the driver open, and each of its findings had them all as candidates.
var shrinking = []bounds{
	{many: 1024, some: 128, few: 64, text: 1 << 10},
	{many: 64, some: 64, few: 8, text: 128},
	{some: 64, few: 32, text: 64}, // of a bare record
}

// Bare is the level at which a record has the verdict without its evidence.
var Bare = len(shrinking) - 1

// everything is what Rest counts where only the verdict was kept.
const everything = "evidence"

const (
	maxReport  = 16 << 10 // bytes of the text that a user gets
	maxOnCheck = 16       // processes of one card that are kept of a health check
)

// Bounded returns the run with lists of bounded length, and with a count of what was left out. The higher the level,
// the less is kept, up to Bare. Codes of findings, causes of a drain and exit codes are the same at every level.
func (r Run) Bounded(level int) Run {
	r.Ends = slices.Clone(r.Ends)
	for i, e := range r.Ends {
		r.Ends[i] = e.bounded(level, shrinking[level], r.Owner())
	}
	if r.Start != nil {
		start := r.Start.bounded(level, shrinking[level], r.Owner())
		r.Start = &start
	}
	if level >= Bare {
		r.Job.Visible, r.Job.GPUIndexes = nil, nil
	}
	return r
}

// Bounded is Run.Bounded for a health check. It has no job of its own.
func (c Check) Bounded(level int) Check {
	b := shrinking[level]
	b.many = min(b.many, maxOnCheck)
	e := End{Snapshot: c.Snapshot, Findings: c.Findings, Verdict: c.Verdict, Health: c.Health, Rest: c.Rest}
	e = e.bounded(level, b, slurm.Owner{})
	c.Snapshot, c.Findings, c.Verdict, c.Health, c.Rest = e.Snapshot, e.Findings, e.Verdict, e.Health, e.Rest
	return c
}

// bounded bounds the lists of an end that have no bound of their own, as cards and what is known of each have. What the
// findings name and the job's own come first, then the largest.
func (e End) bounded(level int, b bounds, own slurm.Owner) End {
	c := &cutter{bounds: b, rest: map[string]int{}, own: own, named: map[int]bool{}, bytes: map[int]uint64{}}
	maps.Copy(c.rest, e.Rest)
	if level >= Bare {
		e = e.bare()
		c.rest[everything] = 1
	}
	for _, r := range e.Snapshot.Readings {
		for _, p := range r.Processes {
			c.bytes[p.PID] += p.Memory.Bytes
		}
	}
	e.Findings, e.Verdict = c.findings(e.Findings, e.Verdict)
	e.Processes = few(c, "processes", e.Processes, b.many, c.ofProcess)
	e.Snapshot.Readings = slices.Clone(e.Snapshot.Readings)
	for i := range e.Snapshot.Readings {
		c.listed(&e.Snapshot.Readings[i])
	}
	if e.Scan != nil {
		s := *e.Scan
		if s.Holdings = few(c, "holdings", s.Holdings, b.some,
			func(h finding.Holding) uint64 { return c.ofProcess(h.Process) }); len(s.Holdings) < len(e.Scan.Holdings) {
			s.Partial = cmp.Or(s.Partial, partly("holders", len(e.Scan.Holdings), len(s.Holdings)))
		}
		e.Scan = &s
	}
	if e.Kernel != nil {
		k := *e.Kernel
		k.Xids, k.Kills = few(c, "xids", k.Xids, b.few, nil), few(c, "kills", k.Kills, b.few, nil)
		e.Kernel = &k
	}
	e.Recording = e.Recording.Bounded(level)
	e.Report = clip(e.Report, maxReport)
	if e.Rest = c.rest; len(e.Rest) == 0 {
		e.Rest = nil
	}
	return e
}

// bare is an end's verdict, with of each finding no more than policy and drain need, and with each GPU's counters: the
// next job is told of what they have grown by.
func (e End) bare() End {
	b := End{At: e.At, Wall: e.Wall, Unseen: e.Unseen, Presumed: e.Presumed, SlurmConf: e.SlurmConf,
		Verdict: e.Verdict, Snapshot: gpu.Snapshot{At: e.Snapshot.At}}
	for _, f := range e.Findings {
		b.Findings = append(b.Findings, finding.Finding{Code: f.Code, GPU: f.GPU, Index: f.Index, Unknown: f.Unknown,
			Bytes: f.Bytes, Owner: f.Owner, Xid: f.Xid})
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

// cutter shortens lists and counts what it leaves out.
type cutter struct {
	bounds
	rest  map[string]int
	own   slurm.Owner
	named map[int]bool   // PIDs that findings are about
	bytes map[int]uint64 // of GPU memory, by PID
}

// Weights of entries where not all are kept, above any number of bytes.
const (
	first  = uint64(1) << 62
	second = uint64(1) << 61
)

// few keeps so many entries of a list, the heaviest, which then come first, and counts the others. Without a weight
// none matters more than another.
func few[T any](c *cutter, name string, list []T, most int, weight func(T) uint64) []T {
	if len(list) <= most {
		return list
	}
	c.rest[name] += len(list) - most
	if list = slices.Clone(list); weight != nil {
		slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(weight(b), weight(a)) })
	}
	return list[:most]
}

func (c *cutter) ofProcess(p finding.Process) uint64 {
	switch {
	case c.named[p.PID]:
		return first + c.bytes[p.PID]
	case p.Cgroup.Same(c.own):
		return second + c.bytes[p.PID]
	}
	return c.bytes[p.PID]
}

// findings keeps what decided the verdict, one of each code and each cause of a drain, then those of most memory; and
// with each what was judged of it.
func (c *cutter) findings(found []finding.Finding, v finding.Verdict) ([]finding.Finding, finding.Verdict) {
	order, weights, seen, most := make([]int, len(found)), make([]uint64, len(found)), map[string]bool{}, c.some
	decided := Decisive(found, v)
	for i, f := range found {
		order[i], weights[i] = i, min(f.Bytes.Bytes, second)
		kind := string(f.Code)
		if v.Drains(i) && seen[kind] {
			kind += " of " + string(f.GPU)
		}
		if i == decided || !seen[kind] {
			weights[i], most = first, most+1
		}
		seen[kind] = true
	}
	order = few(c, "findings", order, most, func(i int) uint64 { return weights[i] })
	slices.Sort(order)
	kept, judged := []finding.Finding(nil), v.Judged
	v.Judged, v.Held = nil, clip(v.Held, c.text)
	for _, i := range order {
		kept = append(kept, c.finding(found[i]))
		if i < len(judged) {
			v.Judged = append(v.Judged, finding.Judged{Action: judged[i].Action, Why: clip(judged[i].Why, c.text)})
		}
	}
	return kept, v
}

// Decisive is the index of the finding that decided a verdict, -1 where it is not among them: of several one that
// drains, of those the one of most memory.
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

// finding bounds one.
func (c *cutter) finding(f finding.Finding) finding.Finding {
	if f.Holder != nil {
		c.named[f.Holder.PID] = true
	}
	f.Candidates = few(c, "candidates", f.Candidates, c.few, func(h finding.Holder) uint64 {
		if h.Owner != nil {
			return first
		}
		return c.ofProcess(h.Process)
	})
	f.Observed, f.Expected, f.Unknown = clip(f.Observed, c.text), clip(f.Expected, c.text), clip(f.Unknown, c.text)
	return f
}

// listed says of a card whose processes are not all kept that the list is not whole: nothing is certain of it any more.
func (c *cutter) listed(r *gpu.Reading) {
	all := len(r.Processes)
	r.Processes = few(c, "listed", r.Processes, c.many,
		func(p gpu.Process) uint64 { return c.ofProcess(finding.Process{PID: p.PID}) })
	if len(r.Processes) < all {
		r.ProcessesUnknown = partly("processes", all, len(r.Processes))
	}
}

func partly(what string, all, kept int) string {
	return fmt.Sprintf("%d %s, of which %d were recorded", all, what, kept)
}

// clip shortens a text to so many bytes, and shows that it did.
func clip(text string, most int) string {
	const dots = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}

// maxAccounts is how many processes of accounting a card's record keeps: the driver keeps thousands, of all jobs, and
// the records of a node lie in memory.
const maxAccounts = 32

// Accounts leaves of what accounting has the processes that began since a moment (wall time), the largest first; of an
// unknown moment, since any.
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
