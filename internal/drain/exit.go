package drain

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// Exit is a hook of ours that told Slurm to drain: it exited with something other than 0.
type Exit struct {
	Ref
	Phase  slurm.Context
	Epoch  gpu.Epoch
	Wall   time.Time // when it had its verdict
	Reason string    // what the node's reason should say; empty where nothing can be said
	Causes []Cause
	// Conf is the SLURM_CONF that the hook saw, empty for none: a health check is started without one.
	Conf string
}

// Ref names an exit on record.
type Ref struct {
	Job slurm.JobID   `json:"job"`
	At  time.Duration `json:"at_ns"` // CLOCK_BOOTTIME
}

// Cause is one finding that a hook drained for.
type Cause struct {
	Code  code.Code `json:"code"`
	GPU   gpu.ID    `json:"gpu,omitempty"`
	Index *int      `json:"index,omitempty"` // Slurm's number of that card, for display
}

// Moment is a time in one boot.
type Moment struct {
	Wall time.Time
	ID   string // the boot's, empty where it could not be read: then no exit is known to be of this boot
}

// FromEnd makes an exit of a hook's end of a run, nil where the hook asked for no drain. Its causes are all findings
// that were judged to drain; of a hook that was stopped after its verdict what it was stopped by.
func FromEnd(r ledger.Run, phase slurm.Context, e ledger.End) *Exit {
	if e.Verdict.Exit == 0 {
		return nil
	}
	x := Exit{Ref: Ref{r.Job.ID, e.At}, Phase: phase, Epoch: r.Epoch, Wall: e.Wall, Conf: e.SlurmConf}
	for i, f := range e.Findings {
		if e.Verdict.Drains(i) {
			x.Causes = append(x.Causes, Cause{f.Code, f.GPU, f.Index})
		}
	}
	i := ledger.Decisive(e.Findings, e.Verdict)
	if i < 0 {
		return &x
	}
	f := e.Findings[i]
	if len(x.Causes) == 0 {
		x.Causes = []Cause{{f.Code, f.GPU, f.Index}}
	}
	// Of a stopped hook only its exit code is on record, and says what it drained for: that it was stopped did not.
	if c, known := code.OfExit(e.Verdict.Exit); known && f.Code == code.Deadline {
		f = finding.Finding{Code: c}
	}
	if text := string(Text(f, r.Job.ID, phase)); Ours(text) {
		x.Reason = text
	}
	return &x
}

// fixed is what Slurm itself writes for such a hook.
func (x Exit) fixed() string {
	if x.Phase == slurm.Prolog {
		return PrologError
	}
	return EpilogError
}

// Exits are the exits that a node's records tell of in this boot, oldest first.
func Exits(runs []ledger.Run, now Moment) (list []Exit) {
	add := func(r ledger.Run, phase slurm.Context, e ledger.End) {
		if x := FromEnd(r, phase, e); x != nil && now.ID != "" && r.Epoch.Boot == now.ID {
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
