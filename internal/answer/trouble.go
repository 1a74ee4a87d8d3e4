package answer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/ledger"
	"bookend/internal/metrics"
	"bookend/internal/state"
)

// Node is what a status is made from.
type Node struct {
	Name string
	Mode config.Mode
	At   time.Time // wall time
	// Now is what status itself has seen to be wrong, Well what it has looked for and that is none now.
	Now  []Symptom
	Well map[code.Code]bool
	// Met are the troubles that hooks have counted, Last is when they ran.
	Met     []metrics.Trouble
	Last    map[metrics.Hook]time.Time
	Runs    []ledger.Run
	Damaged []state.Damage
	Drain   drain.Memory // what Bookend remembers of the node's drain
	// Driver, Slurm and GPUs are as they are now; nil where no one asked.
	Driver *Driver
	Check  *LastCheck // nil where no health check has run
	Slurm  *SlurmNode
	Cards  []CardStatus
}

// Symptom is what "bookend status" itself sees to be wrong now.
type Symptom struct {
	Code code.Code // what hooks find because of it; empty for no finding
	Text string
}

const (
	recent = 5              // ended jobs that a status lists
	lately = 24 * time.Hour // how long a trouble that no hook meets any more is told of
)

// Status is the node at a glance.
func (n Node) Status() Status {
	s := NewStatus(n.Name, n.At, n.Mode)
	live, ended := split(n.Runs)
	s.Running, s.Ended = Summaries(live, n.Runs), Summaries(ended[:min(len(ended), recent)], n.Runs)
	s.OnRecord, s.Check = len(ended), n.Check
	if n.Driver != nil {
		s.Driver = *n.Driver
	}
	if n.Slurm != nil {
		s.Slurm = *n.Slurm
	}
	s.Slurm.Bookend = string(n.Drain.Words())
	s.Cards = append(s.Cards, n.Cards...)
	for _, h := range slices.SortedFunc(maps.Keys(n.Last), inJobsLife) {
		s.Hooks = append(s.Hooks, LastHook{Hook: string(h), At: moment(n.Last[h])})
	}
	s.Troubles = append(s.Troubles, n.troubles()...)
	s.Before = append(s.Before, n.before(s.Troubles)...)
	for _, f := range n.Damaged {
		s.Damaged = append(s.Damaged, Damaged{Path: text(f.Path), Why: text(f.Why)})
	}
	return s
}

// Sound reports a node with no trouble now and, as far as is known, nothing on its GPUs that should not be there.
func (s Status) Sound() bool {
	return len(s.Troubles) == 0 && len(s.Damaged) == 0 && !s.drained() &&
		!slices.ContainsFunc(s.Cards, CardStatus.problem)
}

// split parts the runs that go on from those that have ended, of which the newest come first.
func split(runs []ledger.Run) (live, ended []ledger.Run) {
	for _, r := range runs {
		if r.Closed() {
			ended = append(ended, r)
		} else if r.Running(runs) {
			live = append(live, r)
		}
	}
	slices.SortStableFunc(ended, func(a, b ledger.Run) int { return b.Ends[0].Wall.Compare(a.Ends[0].Wall) })
	return live, ended
}

// inJobsLife orders hooks as a job meets them, others behind them.
func inJobsLife(a, b metrics.Hook) int {
	rank := map[metrics.Hook]int{metrics.Prolog: -2, metrics.Epilog: -1}
	return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(a, b))
}

// troubles are those that are there now, each once: seen by status itself, or met by the last hook.
func (n Node) troubles() (all []Trouble) {
	told := map[code.Code]bool{}
	add := func(t Trouble) { told[t.Code], all = true, append(all, t) }
	for _, s := range n.Now {
		switch {
		case s.Code == "":
			all = append(all, Trouble{Said: []string{text(s.Text)}})
		case !told[s.Code]:
			t := newTrouble(s.Code, n.seen(s.Code)...)
			if m := n.metOf(s.Code); m != nil {
				t.met(*m)
			}
			add(t)
		}
	}
	for _, m := range n.Met {
		if !told[m.Code] && m.Clear == 0 && !n.Well[m.Code] {
			add(metTrouble(m))
		}
	}
	return all
}

// before are the troubles of the last day that are none now.
func (n Node) before(now []Trouble) (past []Trouble) {
	for _, m := range n.Met {
		told := slices.ContainsFunc(now, func(t Trouble) bool { return t.Code == m.Code })
		if !told && n.At.Sub(m.Last) < lately {
			past = append(past, metTrouble(m))
		}
	}
	return past
}

// seen is all that status itself has seen of a trouble.
func (n Node) seen(c code.Code) (said []string) {
	for _, s := range n.Now {
		if s.Code == c {
			said = append(said, text(s.Text))
		}
	}
	return said
}

func (n Node) metOf(c code.Code) *metrics.Trouble {
	i := slices.IndexFunc(n.Met, func(m metrics.Trouble) bool { return m.Code == c })
	if i < 0 {
		return nil
	}
	return &n.Met[i]
}

func newTrouble(c code.Code, said ...string) Trouble {
	entry, _ := code.Lookup(c)
	return Trouble{Code: c, Title: entry.Title, Remedy: entry.Remedy, Said: list(said)}
}

// metTrouble is one that hooks have met.
func metTrouble(m metrics.Trouble) Trouble {
	t := newTrouble(m.Code, string(m.Detail))
	t.met(m)
	return t
}

func (t *Trouble) met(m metrics.Trouble) {
	t.Since, t.LastAt, t.LastHook, t.Hooks, t.Without = moment(m.Since), moment(m.Last), string(m.Hook), m.Count,
		m.Clear
	if m.Job != 0 {
		t.LastJob = fmt.Sprint(m.Job)
	}
}
