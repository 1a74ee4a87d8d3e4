package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// History is printed by "bookend history": runs, newest first.
type History struct {
	Head
	Node string       `json:"node"`
	Runs []RunSummary `json:"runs"`
	More int          `json:"more"` // number of older runs omitted because of --limit
}

// NewHistory returns the document for the selected runs, newest first; more is the number of omitted ones.
func NewHistory(node string, runs, all []record.Run, more int) History {
	return cleaned(History{Head: head(KindHistory), Node: node, Runs: newRuns(runs, all), More: more})
}

// Text writes one line for each run, newest first.
func (h History) Text(w io.Writer) {
	if len(h.Runs) == 0 {
		fmt.Fprintf(w, "node %s has no matching runs\n", h.Node)
		return
	}
	rows := []string{row(each(runColumns, func(c runColumn) string { return c.head })...)}
	for _, r := range h.Runs {
		rows = append(rows, row(each(runColumns, func(c runColumn) string { return c.cell(r) })...))
	}
	table(w, rows...)
	if h.More > 0 {
		fmt.Fprintf(w, "older runs not shown: %d (--limit 0 shows all)\n", h.More)
	}
}

// Filter selects runs; the zero Filter selects all.
type Filter struct {
	GPU          string // Slurm's index, a UUID, a bus ID, or nvidiaN
	Job          *slurm.Ref
	User         string       // user name or UID
	Code         catalog.Code // the run has a finding with this code
	Since, Until time.Time    // the run overlaps this period; zero means unbounded
	Found        bool         // the run has a finding that policy does not hide
}

// Pick returns the runs that match the filter, in their order.
func (f Filter) Pick(runs []record.Run) (out []record.Run) {
	for _, r := range runs {
		if f.matches(r) {
			out = append(out, r)
		}
	}
	return out
}

func (f Filter) matches(r record.Run) bool {
	switch {
	case f.Job != nil && !refersTo(*f.Job, r):
	case f.User != "" && f.User != r.Job.User && f.User != fmt.Sprint(r.Job.UID):
	case f.GPU != "" && !slices.ContainsFunc(r.Devices, f.isGPU):
	case (f.Code != "" || f.Found) && !slices.ContainsFunc(r.AllEnds(), f.hasFinding):
	case !f.Since.IsZero() && r.Closed() && r.Last().Wall.Before(f.Since): // a running job is present now
	case !f.Until.IsZero() && r.First().Wall.After(f.Until):
	default:
		return true
	}
	return false
}

func (f Filter) hasFinding(e *record.End) bool {
	for i, found := range e.Findings {
		if (f.Code == "" || found.Code == f.Code) && (!f.Found || e.Verdict.Tells(i)) {
			return true
		}
	}
	return false
}

func refersTo(ref slurm.Ref, r record.Run) bool {
	switch {
	case ref.SLUID != "":
		return r.Job.SLUID == ref.SLUID
	case ref.Sign == "_":
		return r.Display.Array.Master == ref.ID && r.Display.Array.Task == ref.Part
	case ref.Sign == "+":
		return r.Job.HetJobID == ref.ID && r.Job.ID == ref.ID+slurm.JobID(ref.Part)
	}
	// An array's or heterogeneous job's ID, which is also that of its first or last component, selects all of them.
	return r.Job.ID == ref.ID || r.Display.Array.Master == ref.ID || r.Job.HetJobID == ref.ID
}

// isGPU reports whether the filter's GPU is this one: by Slurm's index, UUID, bus ID or nvidiaN.
func (f Filter) isGPU(a record.Assigned) bool {
	if n, err := strconv.Atoi(f.GPU); err == nil {
		return n == a.Index
	}
	return a.Device.Named(f.GPU) || strings.EqualFold(f.GPU, string(a.Device.Parent))
}

// Offenders is printed by "bookend history --repeat-offenders": GPUs that had the same finding in several runs.
type Offenders struct {
	Head
	Node string     `json:"node"`
	Runs int        `json:"runs"` // number of runs examined
	GPUs []Offender `json:"gpus"`
}

// Offender is one GPU with repeated findings.
type Offender struct {
	GPU
	Runs  int      `json:"runs"` // examined runs that had this GPU
	Codes []Repeat `json:"codes"`
}

// Repeat is one finding that recurs on a GPU.
type Repeat struct {
	Code    catalog.Code `json:"code"`
	Title   string       `json:"title"`
	Runs    int          `json:"runs"`  // runs in which it was found
	Jobs    int          `json:"jobs"`  // distinct jobs blamed for it, or that met it if no job is blamed
	Users   int          `json:"users"` // distinct users of these jobs
	FirstAt time.Time    `json:"first_at"`
	LastAt  time.Time    `json:"last_at"`
	Suspect Suspect      `json:"suspect"`

	runs  map[string]bool
	jobs  map[slurm.JobID]bool
	users map[uint32]bool
}

// Suspect is where to look first. It is derived from counts and proves nothing.
type Suspect string

// The suspects.
const (
	SuspectGPU  Suspect = "gpu"  // several users had the finding
	SuspectUser Suspect = "user" // it was always the same user
	SuspectNode Suspect = "node" // the process belongs to no job: something else runs on the node
)

var suspects = map[Suspect]string{
	SuspectGPU:  "several users met it: look at the GPU and the node (nvidia-smi -q, dcgmi diag, the kernel's log)",
	SuspectUser: "always the same user: look at what they run before you doubt the GPU",
	SuspectNode: "no job's process: look at what else runs on the node",
}

// NewOffenders counts the findings on each GPU in the given runs, oldest or newest first. Each code counts once per
// run. BKD-DIRTY is not counted: it is about memory that an earlier job left.
func NewOffenders(node string, runs []record.Run) Offenders {
	gpus := map[gpu.ID]*Offender{"": {}} // without an ID nothing can be counted
	for _, r := range runs {
		for _, d := range r.Devices {
			if gpus[d.Device.ID] == nil {
				gpus[d.Device.ID] = &Offender{GPU: GPU{&d.Index, d.Device}}
			}
			gpus[d.Device.ID].Runs++
		}
		for _, e := range r.AllEnds() {
			for i, f := range e.Findings {
				if c := gpus[f.GPU]; c != nil && e.Verdict.Tells(i) && f.Code != catalog.Dirty {
					c.repeat(f.Code).add(r, *e, f)
				}
			}
		}
	}
	delete(gpus, "")
	l := Offenders{Head: head(KindOffenders), Node: node, Runs: len(runs), GPUs: []Offender{}}
	for _, c := range gpus {
		c.Codes = slices.DeleteFunc(c.Codes, func(r Repeat) bool { return r.Runs < 2 })
		slices.SortFunc(c.Codes, func(a, b Repeat) int {
			return cmp.Or(cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Code, b.Code))
		})
		if len(c.Codes) > 0 {
			l.GPUs = append(l.GPUs, *c)
		}
	}
	slices.SortFunc(l.GPUs, func(a, b Offender) int {
		return cmp.Or(cmp.Compare(b.Codes[0].Runs, a.Codes[0].Runs), cmp.Compare(a.ID, b.ID))
	})
	return cleaned(l)
}

func (o *Offender) repeat(c catalog.Code) *Repeat {
	i := slices.IndexFunc(o.Codes, func(r Repeat) bool { return r.Code == c })
	if i < 0 {
		entry, _ := catalog.Lookup(c)
		i = len(o.Codes)
		o.Codes = append(o.Codes, Repeat{Code: c, Title: entry.Title, Suspect: SuspectUser, runs: map[string]bool{},
			jobs: map[slurm.JobID]bool{}, users: map[uint32]bool{}})
	}
	return &o.Codes[i]
}

func (c *Repeat) add(r record.Run, e record.End, f record.Finding) {
	job, user := r.Job.ID, r.Job.UID
	if o := f.Owner; o != nil && o.Named() {
		job, user = o.Job, o.UID
	}
	c.runs[r.Name()], c.jobs[job], c.users[user] = true, true, true
	c.Runs, c.Jobs, c.Users = len(c.runs), len(c.jobs), len(c.users)
	if c.FirstAt.IsZero() || e.Wall.Before(c.FirstAt) {
		c.FirstAt = e.Wall
	}
	if e.Wall.After(c.LastAt) {
		c.LastAt = e.Wall
	}
	if c.Code == catalog.Stray {
		c.Suspect = SuspectNode
	} else if c.Users > 1 {
		c.Suspect = SuspectGPU
	}
}

// Text writes the GPUs that had the same finding in several runs.
func (l Offenders) Text(w io.Writer) {
	if len(l.GPUs) == 0 {
		fmt.Fprintf(w, "node %s has no GPU with the same finding in two runs: %s searched\n",
			l.Node, count(l.Runs, "run", "s"))
	}
	for _, c := range l.GPUs {
		fmt.Fprintf(w, "GPU %s  %s\n", c.number(), c.identity())
		for _, r := range c.Codes {
			fmt.Fprintf(w, "  %s: %s\n    in %d of its %s, %s of %s, %s to %s\n    %s\n", r.Code, r.Title, r.Runs,
				count(c.Runs, "run", "s"), count(r.Jobs, "job", "s"), count(r.Users, "user", "s"), stamp(r.FirstAt),
				stamp(r.LastAt), suspects[r.Suspect])
		}
	}
}
