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

// Status is what "bookend status" says: the node at a glance.
type Status struct {
	Head
	Node     string       `json:"node"`
	At       *time.Time   `json:"at"`
	Mode     config.Mode  `json:"mode"` // observe, enforce
	Driver   Driver       `json:"driver"`
	Slurm    SlurmNode    `json:"slurm"`
	Hooks    []LastHook   `json:"last_hooks"`
	Check    *LastCheck   `json:"last_check"`         // null where no health check has run
	Recorder *Recorder    `json:"recorder,omitempty"` // where one is at work
	Cards    []CardStatus `json:"gpus"`
	Troubles []Trouble    `json:"troubles"`
	Before   []Trouble    `json:"troubles_before"` // of the last day, and no more
	Running  []Summary    `json:"running"`
	Ended    []Summary    `json:"ended"` // the newest few
	OnRecord int          `json:"ended_on_record"`
	Damaged  []Damaged    `json:"damaged"`
}

// Driver is whether the GPUs' driver answers.
type Driver struct {
	Answers *bool   `json:"answers"` // null where it was not asked
	Release string  `json:"release"` // empty where it did not say
	Seconds float64 `json:"took_seconds"`
	Unknown Unknown `json:"unknown,omitempty"`
}

// SlurmNode is what Slurm says of the node.
type SlurmNode struct {
	State   *string    `json:"state"`        // as scontrol shows it: "IDLE+DRAIN"
	Drained *bool      `json:"drain"`        // it takes no new job
	Reason  *string    `json:"reason"`       // empty for none
	By      string     `json:"reason_by"`    // the user who wrote it, as Slurm shows it
	Since   *time.Time `json:"reason_since"` // null where Slurm does not say
	Bookend string     `json:"bookend"`      // what Bookend last did about a drain of the node; empty for nothing
	Unknown Unknown    `json:"unknown,omitempty"`
}

// LastHook is when one of Bookend's programs ran last for a job with GPUs, or of itself.
type LastHook struct {
	Hook string     `json:"hook"` // prolog, epilog, health_check
	At   *time.Time `json:"at"`
}

// LastCheck is what the last health check found.
type LastCheck struct {
	At          *time.Time  `json:"at"`
	TookSeconds float64     `json:"took_seconds"`
	Stopped     bool        `json:"stopped"` // before it was done: it has found nothing, and says nothing
	Codes       []code.Code `json:"codes"`   // without those that policy ignores or only notes
}

// Recorder is the one at work on the node.
type Recorder struct {
	At      *time.Time `json:"at"`      // of its last sample
	Jobs    int        `json:"jobs"`    // that it samples
	Problem string     `json:"problem"` // why it sees nothing now; empty where it does
}

func newCheck(c ledger.Check) *LastCheck {
	n := LastCheck{At: moment(c.Wall), TookSeconds: seconds(c.Took), Stopped: c.Stopped, Codes: []code.Code{}}
	for i, f := range c.Findings {
		if c.Verdict.Tells(i) && !slices.Contains(n.Codes, f.Code) {
			n.Codes = append(n.Codes, f.Code)
		}
	}
	return &n
}

// CardStatus is one GPU now; where the driver did not say, figures are null.
type CardStatus struct {
	Card
	Memory
	ListedBytes      *uint64   `json:"listed_bytes"`      // of listed processes
	UnexplainedBytes *uint64   `json:"unexplained_bytes"` // beyond them and the GPU's baseline
	Processes        []Process `json:"processes"`
	Jobs             []string  `json:"jobs"` // that have it now
	Last             *LastLook `json:"last"` // what the last job's end found on it
	Unknown          Unknown   `json:"unknown,omitempty"`
}

// LastLook is what was found on a GPU when a job with it ended, or began, last.
type LastLook struct {
	Job   string      `json:"job"`
	At    *time.Time  `json:"at"`
	Codes []code.Code `json:"codes"` // empty: nothing that was not there before
	Used  *uint64     `json:"used_bytes"`
}

// Trouble is something wrong with Bookend, the driver or the node's file systems.
type Trouble struct {
	Code    code.Code  `json:"code"` // empty for one that is no finding
	Title   string     `json:"title"`
	Said    []string   `json:"said"` // what was seen
	Remedy  string     `json:"remedy"`
	Since   *time.Time `json:"since"` // null where no hook has met it
	LastAt  *time.Time `json:"last_at"`
	LastJob string     `json:"last_job"` // whose hook met it last; empty for none
	// Which hook that was; empty where a record alone has it:
	LastHook string `json:"last_hook"`     // prolog, epilog, health_check
	Hooks    uint64 `json:"hooks"`         // how many met it
	Without  uint64 `json:"hooks_without"` // how many have run since, and did not meet it
}

// Damaged is a record that cannot be used and was set aside.
type Damaged struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// NotAsked is why a status without driver and Slurm does not know what they say.
const NotAsked = "not asked"

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
	Check  *ledger.Check // nil where no health check has run
	Slurm  *SlurmNode
	Cards  []CardStatus
	// Recorder is the one at work, nil for none.
	Recorder *Recorder
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
	live, ended := split(n.Runs)
	s := Status{Head: head(KindStatus), Node: n.Name, At: moment(n.At), Mode: n.Mode, Hooks: []LastHook{},
		Driver:  Driver{Unknown: Unknown{"answers": NotAsked}},
		Slurm:   SlurmNode{Unknown: Unknown{"state": NotAsked, "drain": NotAsked, "reason": NotAsked}},
		Running: summaries(live, n.Runs), Ended: summaries(ended[:min(len(ended), recent)], n.Runs),
		OnRecord: len(ended), Cards: list(n.Cards), Troubles: list(n.troubles()), Damaged: []Damaged{},
		Recorder: n.Recorder,
	}
	s.Before = list(n.before(s.Troubles))
	for _, d := range n.Damaged {
		s.Damaged = append(s.Damaged, Damaged{Path: d.Path, Why: d.Why})
	}
	if n.Check != nil {
		s.Check = newCheck(*n.Check)
	}
	if n.Driver != nil {
		s.Driver = *n.Driver
	}
	if n.Slurm != nil {
		s.Slurm = *n.Slurm
	}
	s.Slurm.Bookend = string(n.Drain.Words())
	for _, h := range slices.SortedFunc(maps.Keys(n.Last), inJobsLife) {
		s.Hooks = append(s.Hooks, LastHook{Hook: string(h), At: moment(n.Last[h])})
	}
	return cleaned(s)
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
	at := map[code.Code]int{}
	for _, s := range n.Now {
		if i, again := at[s.Code]; again && s.Code != "" {
			all[i].Said = append(all[i].Said, s.Text)
			continue
		}
		t := newTrouble(s.Code, s.Text)
		if i := slices.IndexFunc(n.Met, func(m metrics.Trouble) bool { return m.Code == s.Code }); i >= 0 {
			t.met(n.Met[i])
		}
		at[s.Code], all = len(all), append(all, t)
	}
	for _, m := range n.Met {
		if _, told := at[m.Code]; !told && m.Clear == 0 && !n.Well[m.Code] {
			all = append(all, metTrouble(m))
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

func newTrouble(c code.Code, said string) Trouble {
	entry, _ := code.Lookup(c)
	return Trouble{Code: c, Title: entry.Title, Remedy: entry.Remedy, Said: []string{said}}
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
