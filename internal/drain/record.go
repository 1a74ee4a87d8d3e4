package drain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safetext"
	"bookend/internal/slurm"
)

// Exit is a hook of ours that asked Slurm to drain: it exited with something other than 0.
type Exit struct {
	Ref
	Phase  slurm.Context
	Epoch  gpu.Epoch
	Wall   time.Time // time of its verdict
	Reason string    // what the node's reason should be; empty if there is none
	Causes []Cause
	Wider  bool // something else is wrong than the GPU of the first cause
	// Renews is set after a reset that did not help, or a diagnosis: a drain of ours gets this reason.
	Renews bool
	// ByScontrol means that the hook itself exited 0: Slurm's own reason is never for it.
	ByScontrol bool
	// Conf is the SLURM_CONF of the hook, empty for none: a health check is started without one.
	Conf string
}

type Ref struct {
	Job slurm.JobID   `json:"job"`
	At  time.Duration `json:"at_ns"` // CLOCK_BOOTTIME
}

// Cause is one finding for which a hook drained.
type Cause struct {
	Code  catalog.Code `json:"code"`
	GPU   gpu.ID       `json:"gpu,omitempty"`
	Index *int         `json:"index,omitempty"` // Slurm's number of that GPU, for display
}

// FromEnd returns the exit of a hook at an end of a run, or nil if it asked for no drain. Its causes are all findings
// that were judged to drain; if there are none, as for a hook that was stopped, the decisive finding.
func FromEnd(r record.Run, phase slurm.Context, e record.End) *Exit {
	if e.Verdict.Exit == 0 {
		return nil
	}
	x := Exit{Ref: Ref{r.Job.ID, e.At}, Phase: phase, Epoch: r.EpochOf(e), Wall: e.Wall, Conf: e.SlurmConf,
		ByScontrol: e.Verdict.ByScontrol}
	for i, f := range e.Findings {
		if e.Verdict.Drains(i) {
			x.Causes = append(x.Causes, Cause{f.Code, f.GPU, f.Index})
		}
	}
	i := e.Verdict.Decisive(e.Findings)
	if i < 0 {
		return &x
	}
	f := e.Findings[i]
	if len(x.Causes) == 0 {
		x.Causes = []Cause{{f.Code, f.GPU, f.Index}}
	}
	x.Wider = slices.ContainsFunc(e.Findings, func(f record.Finding) bool { return elsewhere(f, x.Causes[0].GPU) })
	// For a stopped hook, only the exit code on record says what it drained for; it did not drain for being stopped.
	if c, known := catalog.OfExit(e.Verdict.Exit); known && f.Code == catalog.Deadline {
		f = record.Finding{Code: c}
	}
	if text := string(Compose(f, r.Job.ID, phase)); Ours(text) {
		x.Reason = text
	}
	return &x
}

// Exits returns the exits in a node's records of this boot, oldest first; none if the boot is not known.
func Exits(runs []record.Run, boot string) (list []Exit) {
	add := func(r record.Run, phase slurm.Context, e record.End) {
		if x := FromEnd(r, phase, e); x != nil && boot != "" && r.EpochOf(e).Boot == boot {
			list = append(list, *x)
		}
	}
	for _, r := range runs {
		if r.Start != nil {
			add(r, slurm.Prolog, *r.Start)
		}
		for _, e := range r.Ends {
			add(r, slurm.Epilog, e)
		}
	}
	slices.SortStableFunc(list, func(a, b Exit) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Job, b.Job))
	})
	return list
}

// Remembered is what a node stores about drains between hooks and health checks.
type Remembered struct {
	Written *Written `json:"written,omitempty"` // the reason that we wrote last, nil if none of ours is in place
	Settled []Ref    `json:"settled,omitempty"` // the exits on record that need no further attention
	Last    *Said    `json:"last,omitempty"`    // the last decision, for display
	// Resetting is the time of the reason whose GPU a health check has begun to reset, until that is over.
	Resetting time.Time `json:"resetting,omitzero"`
}

// Written is a reason of ours, and what it stands for.
type Written struct {
	Reason string    `json:"reason"`
	Wall   time.Time `json:"wall"`
	// At is the CLOCK_BOOTTIME of the exit that it was written for; 0 in files of earlier versions.
	At     time.Duration `json:"at_ns,omitempty"`
	Conf   string        `json:"slurm_conf,omitempty"` // the SLURM_CONF of the controller that has it
	Epoch  gpu.Epoch     `json:"epoch"`
	Causes []Cause       `json:"causes"`
	// Clean counts the health checks in a row that found none of the causes any more.
	Clean int `json:"clean"`
}

type Said struct {
	Wall time.Time `json:"wall"`
	Act  Act       `json:"act"`
	Why  string    `json:"why"`
}

// maxWhy bounds a stored text in bytes: another writer's reason may be in it, which can be of any length.
const maxWhy = 1 << 10

func (m Remembered) open(exits []Exit) []Exit {
	return slices.DeleteFunc(slices.Clone(exits), func(x Exit) bool { return slices.Contains(m.Settled, x.Ref) })
}

// settle stores exits as settled, and forgets those that are no longer on record, if that is certain.
func (in Facts) settle(m Remembered, settled []Exit) Remembered {
	kept := slices.DeleteFunc(slices.Clone(m.Settled), func(ref Ref) bool {
		return !in.Partial && !slices.ContainsFunc(in.Exits, func(x Exit) bool { return x.Ref == ref })
	})
	for _, x := range settled {
		kept = append(kept, x.Ref)
	}
	m.Settled = kept
	return m
}

// atOnce is how much older an exit may be than the one that the reason was written for and belong to the same drain:
// hooks that drain at the same moment may differ by as long as their deadlines allow.
const atOnce = time.Minute

// with adds the causes of further exits, and resets Clean, which did not count them. An exit from before the drain is
// not among its causes: the drain that it asked for is over, since Slurm has had another reason since.
func (w Written) with(exits []Exit) Written {
	w.Causes = slices.Clone(w.Causes)
	for _, x := range exits {
		if x.At < w.At-atOnce {
			continue
		}
		w.Clean = 0
		if !w.Epoch.Same(x.Epoch) {
			w.Epoch = gpu.Epoch{} // of several epochs: never verified
		}
		for _, c := range x.Causes {
			same := func(o Cause) bool { return o.Code == c.Code && o.GPU == c.GPU }
			if !slices.ContainsFunc(w.Causes, same) {
				w.Causes = append(w.Causes, c)
			}
		}
	}
	return w
}

// Failed returns what to store if a decision could not be carried out: the next health check tries again.
func (m Remembered) Failed(err error) Remembered {
	why := fmt.Sprintf("not done: %s: %v", m.Last.Why, err)
	m.Last = &Said{m.Last.Wall, Leave, string(safetext.Clean(why, maxWhy))}
	return m
}

// Here returns the part of a memory that is valid in this boot: after a reboot, a drain of ours is the admin's.
func (m Remembered) Here(boot string) Remembered {
	if w := m.Written; w != nil && boot != "" && w.Epoch.Boot != "" && w.Epoch.Boot != boot {
		m.Written = nil
	}
	return m
}

// Resumed is what to remember once the drain is ended.
func (m Remembered) Resumed(now time.Time, why string) Remembered {
	m.Written, m.Resetting, m.Last = nil, time.Time{}, &Said{now.UTC().Round(0), Resume, why}
	return m
}

// Repairable returns the GPU if its memory without a process alone drained the node, and the driver was not reloaded.
func (m Remembered) Repairable(now gpu.Epoch) (id gpu.ID, is bool) {
	w := m.Written
	if w == nil || !w.Epoch.Same(now) || len(w.Causes) == 0 {
		return "", false
	}
	id = w.Causes[0].GPU
	return id, id != "" && !slices.ContainsFunc(w.Causes, func(c Cause) bool {
		return c.GPU != id || c.Code.Traits().Memory != catalog.Unlisted
	})
}

// OnlyFor returns a test whether a drain is ours and on record for nothing but what this GPU's reset can cure.
func (m Remembered) OnlyFor(id gpu.ID, runs []record.Run, boot string) func(slurm.Node) bool {
	m = m.Here(boot)
	another := func(c Cause) bool { return c.GPU != id || id == "" || c.Code == catalog.Diagnosed }
	return func(n slurm.Node) bool {
		return (Facts{Memory: m, Node: n}).stands() && other(n) == "" && !n.Silent &&
			!slices.ContainsFunc(m.Written.with(m.open(Exits(runs, boot))).Causes, another)
	}
}

// Words describes for an admin, in one line, what is stored; empty if there is nothing to say.
func (m Remembered) Words() safetext.Safe {
	const most = 400
	if m.Last == nil {
		return ""
	}
	when := m.Last.Wall.Local().Format("2006-01-02 15:04:05")
	return safetext.Clean(fmt.Sprintf("%s at %s: %s", m.Last.Act, when, m.Last.Why), most)
}
