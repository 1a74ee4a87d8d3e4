package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bookend/internal/attrib"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// bounds are the most entries that the lists of one end keep.
type bounds struct {
	cards      int // of a snapshot, and what is known of each
	listed     int // processes of one card
	facts      int // processes that /proc was asked about
	holdings   int
	findings   int // apart from the first of each code and the causes of a drain, which always stay
	candidates int // of all findings together
	details    int // of any other list
	text       int // bytes of each text of a finding
}

// shrinking are the bounds to try, one after the other, until a record fits. The first hold for every record: a node
// was seen with 480 processes that had the driver open, and each of its findings had them all as candidates.
var shrinking = []bounds{
	{cards: 256, listed: 1024, facts: 512, holdings: 128, findings: 128, candidates: 128, details: 64, text: 1 << 10},
	{cards: 128, listed: 256, facts: 128, holdings: 64, findings: 64, candidates: 64, details: 32, text: 512},
	{cards: 64, listed: 64, facts: 64, holdings: 32, findings: 64, candidates: 32, details: 16, text: 256},
	{cards: 32, listed: 16, facts: 16, holdings: 8, findings: 32, candidates: 8, details: 8, text: 128},
}

// Bare is the level at which a record has the verdict without its evidence.
var Bare = len(shrinking)

// bare are the bounds of what is left then.
var bare = bounds{findings: 32, text: 64}

// everything is what Rest counts where only the verdict was kept.
const everything = "evidence"

const (
	maxReport  = 16 << 10 // bytes of the text that a user gets
	maxOnCheck = 16       // processes of one card that are kept of a health check
	maxBare    = 64       // GPUs of a run whose record is bare
	maxFacts   = 32       // facts of a GPU's health in such a record
)

// Bounded returns the run with lists of bounded length, and with a count of what was left out. The higher the level,
// the less is kept, up to Bare. Codes of findings, causes of a drain and exit codes are the same at every level.
func (r Run) Bounded(level int) Run {
	ends := slices.Clone(r.Ends)
	for i := range ends {
		ends[i] = ends[i].bounded(level, r.Owner())
	}
	r.Ends = ends
	if r.Start != nil {
		start := r.Start.bounded(level, r.Owner())
		r.Start = &start
	}
	if level >= Bare {
		r.Devices, r.Job.Visible, r.Job.GPUIndexes = named(r.Devices), nil, nil
	}
	return r
}

// Bounded is Run.Bounded for a health check. It has no job of its own.
func (c Check) Bounded(level int) Check {
	e := End{Snapshot: c.Snapshot, Findings: c.Findings, Verdict: c.Verdict, Health: c.Health, Rest: c.Rest}
	if level < Bare {
		b := shrinking[level]
		b.listed = min(b.listed, maxOnCheck)
		e = e.within(b, slurm.Owner{})
	} else {
		e = e.bare()
		c.Cards, c.Unexplained, c.Leaked = named(c.Cards), nil, nil
	}
	c.Snapshot, c.Findings, c.Verdict, c.Health, c.Rest = e.Snapshot, e.Findings, e.Verdict, e.Health, e.Rest
	return c
}

// named keeps of the devices what names them. Of more than a node has none are kept: then the run may have had any.
func named(all []Assigned) []Assigned {
	if len(all) > maxBare {
		return nil
	}
	kept := slices.Clone(all)
	for i := range kept {
		d := &kept[i].Device
		d.Name, d.Vendor = clip(d.Name, bare.text), clip(d.Vendor, bare.text)
	}
	return kept
}

func (e End) bounded(level int, own slurm.Owner) End {
	if level >= Bare {
		return e.bare()
	}
	return e.within(shrinking[level], own)
}

// within bounds every list of an end. What the findings name and the job's own come first, then the largest.
func (e End) within(b bounds, own slurm.Owner) End {
	c := newCutter(b, e.Rest)
	c.own = own
	for _, r := range e.Snapshot.Readings {
		for _, p := range r.Processes {
			c.bytes[p.PID] += p.Memory.Bytes
		}
	}
	e.Findings, e.Verdict = c.findings(e.Findings, e.Verdict)
	e.Processes = few(c, "processes", e.Processes, b.facts, c.ofProcess)
	e.Snapshot = c.snapshot(e.Snapshot)
	if e.Neighbours != nil {
		s := c.snapshot(*e.Neighbours)
		e.Neighbours = &s
	}
	e.Curves = c.curves(e.Curves, e.Snapshot)
	e.Scan = c.scan(e.Scan)
	e.Health = c.health(e.Health)
	e = c.restOf(e)
	if e.Rest = c.rest; len(e.Rest) == 0 {
		e.Rest = nil
	}
	return e
}

// cutter shortens lists and counts what it leaves out.
type cutter struct {
	bounds
	rest  map[string]int
	own   slurm.Owner
	named map[int]bool   // PIDs that findings are about
	bytes map[int]uint64 // of GPU memory, by PID
}

func newCutter(b bounds, rest map[string]int) *cutter {
	c := &cutter{bounds: b, rest: map[string]int{}, named: map[int]bool{}, bytes: map[int]uint64{}}
	maps.Copy(c.rest, rest)
	return c
}

// place is where an entry comes when not all are kept: the lower rank first, then the larger.
type place struct {
	rank int
	size uint64
}

// few keeps so many entries of a list, in their order, and counts the others.
func few[T any](c *cutter, name string, list []T, most int, of func(T) place) []T {
	if len(list) <= most {
		return list
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := of(list[i]), of(list[j])
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.size, a.size))
	})
	order = order[:most]
	slices.Sort(order)
	kept := make([]T, 0, most)
	for _, i := range order {
		kept = append(kept, list[i])
	}
	c.rest[name] += len(list) - len(kept)
	return kept
}

// first keeps the first entries of a list of which none matters more than another.
func first[T any](c *cutter, name string, list []T, most int) []T {
	return few(c, name, list, most, func(T) place { return place{} })
}

func (c *cutter) ofPID(pid int, owner slurm.Owner) place {
	switch {
	case c.named[pid]:
		return place{0, c.bytes[pid]}
	case owner.ID != 0 && owner.ID == c.own.ID, owner.SLUID != "" && owner.SLUID == c.own.SLUID:
		return place{1, c.bytes[pid]}
	}
	return place{2, c.bytes[pid]}
}

func (c *cutter) ofProcess(p attrib.Process) place { return c.ofPID(p.PID, p.Cgroup) }

// findings keeps what decided the verdict, one of each code and each cause of a drain, then one of each code and card,
// then those of most memory; and with each what was judged of it.
func (c *cutter) findings(found []finding.Finding, v finding.Verdict) ([]finding.Finding, finding.Verdict) {
	type judged struct {
		finding.Finding
		finding.Judged
		place
	}
	type about struct {
		code, gpu string
		judged    finding.Judged
	}
	var all []judged
	codes, kinds, most := map[string]bool{}, map[about]bool{}, c.bounds.findings
	decided := decisive(found, v)
	for i, f := range found {
		j := judged{Finding: f, place: place{2, f.Bytes.Bytes}}
		if i < len(v.Judged) {
			j.Judged = v.Judged[i]
		}
		key := about{string(f.Code), string(f.GPU), finding.Judged{Action: j.Action}}
		switch {
		case !codes[key.code] || i == decided || j.Action == config.Drain && !kinds[key]:
			j.rank, most = 0, most+1
		case !kinds[key]:
			j.rank = 1
		}
		codes[key.code], kinds[key] = true, true
		all = append(all, j)
	}
	kept := few(c, "findings", all, most, func(j judged) place { return j.place })
	had := len(v.Judged) > 0
	found, v.Judged, v.Held = nil, nil, clip(v.Held, c.text)
	candidates := c.candidates
	for _, j := range kept {
		f := c.finding(j.Finding, &candidates)
		found = append(found, f)
		if had {
			v.Judged = append(v.Judged, finding.Judged{Action: j.Action, Why: clip(j.Why, c.text)})
		}
	}
	return found, v
}

// decisive is the index of the finding that a drain is for: of those with the verdict's code and action the one of most
// memory. It is -1 for none.
func decisive(found []finding.Finding, v finding.Verdict) int {
	best := -1
	for i := range found[:min(len(found), len(v.Judged))] {
		is := found[i].Code == v.Code && v.Judged[i].Action == v.Action
		if is && (best < 0 || found[i].Bytes.Bytes > found[best].Bytes.Bytes) {
			best = i
		}
	}
	return best
}

// finding bounds one, and takes its candidates from what may still be kept.
func (c *cutter) finding(f finding.Finding, candidates *int) finding.Finding {
	if f.Holder != nil {
		c.named[f.Holder.PID] = true
		h := c.holder(*f.Holder)
		f.Holder = &h
	}
	f.Candidates = few(c, "candidates", f.Candidates, min(*candidates, c.details), func(h finding.Holder) place {
		if h.Owner != nil {
			return place{0, 0}
		}
		return c.ofProcess(h.Process)
	})
	*candidates -= len(f.Candidates)
	for i := range f.Candidates {
		if i == 0 {
			f.Candidates = slices.Clone(f.Candidates)
		}
		f.Candidates[i] = c.holder(f.Candidates[i])
	}
	f.Observed, f.Expected, f.Unknown = clip(f.Observed, c.text), clip(f.Expected, c.text), clip(f.Unknown, c.text)
	f.Doubts = slices.Clone(first(c, "doubts", f.Doubts, c.details))
	for i, d := range f.Doubts {
		f.Doubts[i] = clip(d, c.text)
	}
	return f
}

func (c *cutter) holder(h finding.Holder) finding.Holder {
	h.Classes, h.Open = first(c, "classes", h.Classes, c.details), first(c, "devices", h.Open, c.details)
	return h
}

// snapshot says of a card whose processes are not all kept that the list is not whole: nothing is certain of it any
// more.
func (c *cutter) snapshot(s gpu.Snapshot) gpu.Snapshot {
	s.Readings = slices.Clone(few(c, "cards", s.Readings, c.cards,
		func(r gpu.Reading) place { return place{0, r.Memory.Used.Bytes} }))
	for i := range s.Readings {
		r := &s.Readings[i]
		all := len(r.Processes)
		r.Processes = few(c, "listed", r.Processes, c.listed,
			func(p gpu.Process) place { return c.ofPID(p.PID, slurm.Owner{}) })
		if len(r.Processes) < all {
			r.ProcessesUnknown = partly("processes", all, len(r.Processes))
		}
	}
	s.Faults = first(c, "faults", s.Faults, c.details)
	return s
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

func (c *cutter) curves(all map[gpu.ID]settle.Curve, s gpu.Snapshot) map[gpu.ID]settle.Curve {
	if len(all) <= c.cards {
		return all
	}
	kept := map[gpu.ID]settle.Curve{}
	for _, r := range s.Readings {
		if curve, known := all[r.Device.ID]; known {
			kept[r.Device.ID] = curve
		}
	}
	c.rest["curves"] += len(all) - len(kept)
	return kept
}

func (c *cutter) scan(s *attrib.Scan) *attrib.Scan {
	if s == nil {
		return nil
	}
	cut := *s
	cut.Holdings = few(c, "holdings", s.Holdings, c.holdings,
		func(h attrib.Holding) place { return c.ofProcess(h.Process) })
	if n := len(cut.Holdings); n < len(s.Holdings) {
		cut.Partial = cmp.Or(s.Partial, partly("holders", len(s.Holdings), n))
	}
	cut.Partial = clip(cut.Partial, 2*c.text)
	return &cut
}

func (c *cutter) health(all []gpu.Health) []gpu.Health {
	all = slices.Clone(first(c, "health", all, c.cards))
	for i := range all {
		all[i].Facts = first(c, "facts", all[i].Facts, c.details)
		a := &all[i].Accounting
		a.Processes = first(c, "accounted", a.Processes, c.details) // the largest come first
	}
	return all
}

// restOf bounds what is left of an end: the kernel's log, the job's messages, tests, the diagnosis, the report.
func (c *cutter) restOf(e End) End {
	if e.Kernel != nil {
		k := *e.Kernel
		k.Xids, k.Kills = first(c, "xids", k.Xids, c.details), first(c, "kills", k.Kills, c.details)
		e.Kernel = &k
	}
	e.Probes = first(c, "probes", e.Probes, c.cards)
	e.Messages = slices.Clone(first(c, "messages", e.Messages, c.details))
	for i := range e.Messages {
		e.Messages[i].Others = first(c, "others", e.Messages[i].Others, c.details)
	}
	e.Outputs = first(c, "outputs", e.Outputs, c.details)
	if e.Diagnosis != nil {
		d := *e.Diagnosis
		d.Causes, d.Try = first(c, "causes", d.Causes, c.details), first(c, "try", d.Try, c.details)
		d.Peaks = first(c, "peaks", d.Peaks, c.details)
		e.Diagnosis = &d
	}
	e.Unseen, e.Report = clip(e.Unseen, c.text), clip(e.Report, maxReport)
	return e
}
