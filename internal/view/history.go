package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
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
	return History{Head: head("history"), Node: node, Runs: newRuns(runs, all), More: more}
}

// Text writes one line for each run, newest first.
func (h History) Text(w io.Writer) {
	if len(h.Runs) == 0 {
		fmt.Fprintf(w, "node %s has no matching runs\n", h.Node)
		return
	}
	head := row("LAST SEEN", "JOB", "USER", "GPU", "RAN", "PEAK", "BUSY", "FOUND")
	table(w, append([]string{head}, each(h.Runs, RunSummary.row)...)...)
	if h.More > 0 {
		fmt.Fprintf(w, "older runs not shown: %d (--limit 0 shows all)\n", h.More)
	}
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
}

// Suspect is where to look first. It is derived from counts and proves nothing.
type Suspect string

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

// occurrence is a finding on a GPU at one end of a run: the job that is blamed for it, or that met it, and its user.
type occurrence struct {
	run  string
	job  uint32
	user uint32
	at   time.Time
}

// NewOffenders counts the findings on each GPU in the given runs, oldest or newest first. Each code counts once per
// run. BKD-DIRTY is not counted: it is about memory that an earlier job left.
func NewOffenders(node string, runs []record.Run) Offenders {
	gpus, found := map[gpu.ID]*Offender{}, map[gpu.ID]map[catalog.Code][]occurrence{}
	for _, r := range runs {
		for _, d := range r.Devices {
			id := d.Device.ID
			if gpus[id] == nil {
				gpus[id], found[id] = &Offender{GPU: GPU{&d.Index, d.Device}}, map[catalog.Code][]occurrence{}
			}
			gpus[id].Runs++
		}
		for _, e := range r.AllEnds() {
			for i, f := range e.Findings {
				if codes := found[f.GPU]; codes != nil && e.Verdict.Tells(i) && f.Code != catalog.Dirty {
					codes[f.Code] = append(codes[f.Code], occurred(r, *e, f))
				}
			}
		}
	}
	delete(gpus, "") // without an ID nothing can be counted
	l := Offenders{Head: head("repeat-offenders"), Node: node, Runs: len(runs), GPUs: []Offender{}}
	for id, g := range gpus {
		for code, all := range found[id] {
			if r := newRepeat(code, all); r.Runs > 1 {
				g.Codes = append(g.Codes, r)
			}
		}
		slices.SortFunc(g.Codes, func(a, b Repeat) int {
			return cmp.Or(cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Code, b.Code))
		})
		if len(g.Codes) > 0 {
			l.GPUs = append(l.GPUs, *g)
		}
	}
	slices.SortFunc(l.GPUs, func(a, b Offender) int {
		return cmp.Or(cmp.Compare(b.Codes[0].Runs, a.Codes[0].Runs), cmp.Compare(a.ID, b.ID))
	})
	return l
}

func occurred(r record.Run, e record.End, f record.Finding) occurrence {
	if o := f.Owner; o != nil && o.Named() {
		return occurrence{r.Name(), uint32(o.Job), o.UID, e.Wall}
	}
	return occurrence{r.Name(), uint32(r.Job.ID), r.Job.UID, e.Wall}
}

func newRepeat(code catalog.Code, all []occurrence) Repeat {
	entry, _ := catalog.Lookup(code)
	runs, jobs, users := map[string]bool{}, map[uint32]bool{}, map[uint32]bool{}
	for _, o := range all {
		runs[o.run], jobs[o.job], users[o.user] = true, true, true
	}
	byTime := func(a, b occurrence) int { return a.at.Compare(b.at) }
	suspect := SuspectUser
	if code == catalog.Stray {
		suspect = SuspectNode
	} else if len(users) > 1 {
		suspect = SuspectGPU
	}
	return Repeat{code, entry.Title, len(runs), len(jobs), len(users), slices.MinFunc(all, byTime).at,
		slices.MaxFunc(all, byTime).at, suspect}
}

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
