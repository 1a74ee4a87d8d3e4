package faults

import (
	"slices"
	"testing"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/slurm"
)

// fault is one thing that can be wrong when a hook runs, and what must come of it.
type fault struct {
	harm  func(*node)
	job   job    // what slurmd tells the hook; nil: newJob
	hooks []hook // those it is tried with; nil: both
	finds code.Code
	says  []string // all in one line of the log
	// exit is the number with mode enforce and on_unknown: drain; otherwise a fault of Bookend's never drains.
	exit int
	// unrecorded: nothing can be kept of it but the log.
	unrecorded bool
}

// modes are the combinations in which a site may run; observing with on_unknown: warn can only be milder.
var modes = []struct {
	mode, onUnknown string
	drains          bool
}{
	{"observe", "drain", false},
	{"enforce", "warn", false},
	{"enforce", "drain", true},
}

// try runs every fault through both hooks in every mode.
func try(t *testing.T, faults map[string]fault) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if f.job == nil {
				f.job = newJob()
			}
			if f.hooks == nil {
				f.hooks = hooks
			}
			for _, h := range f.hooks {
				for _, m := range modes {
					t.Run(h.program+" "+m.mode+" "+m.onUnknown, func(t *testing.T) {
						n := newNode(t, m.mode)
						n.configure(func(c *conf) { c.onUnknown = m.onUnknown })
						exit := 0
						if m.drains {
							exit = f.exit
						}
						f.check(n, h, exit)
					})
				}
			}
		})
	}
}

func (f fault) check(n *node, h hook, exit int) {
	n.Helper()
	n.clean(prolog, bystanding())
	if h.context == slurm.Epilog {
		n.clean(prolog, newJob())
	}
	others := n.record()
	if f.harm != nil {
		f.harm(n)
	}
	o := n.hook(h, f.job)
	if o.exit != exit {
		n.Errorf("exit %d, want %d: %s", o.exit, exit, o.output)
	}
	if len(lines(n.log(), "findings: ", string(f.finds), h.program)) != 1 || len(lines(n.log(), append(f.says, string(f.finds)+": ")...)) == 0 {
		n.Errorf("want %s saying %q in the log:\n%s", f.finds, f.says, n.log())
	}
	if found := n.findings(h); !f.unrecorded && !has(found, f.finds) {
		n.Errorf("recorded: %v, want %s", found, f.finds)
	}
	n.unharmed(others)
}

// unharmed asserts that nothing is half written and that the bystander's record is what it was.
func (n *node) unharmed(others string) {
	n.Helper()
	if left := n.halfWritten(); len(left) > 0 {
		n.Errorf("half written: %q", left)
	}
	if now := n.record(); now != others || now == "" {
		n.Errorf("the other job's record was %s\nand is %s", others, now)
	}
}

// findings are what the job's record has of a hook.
func (n *node) findings(h hook) []finding.Finding {
	n.Helper()
	var all []finding.Finding
	for _, r := range n.runs(100) {
		if h.context == slurm.Prolog && r.Start != nil {
			all = append(all, r.Start.Findings...)
		}
		if len(r.Ends) > 0 && h.context == slurm.Epilog {
			all = append(all, r.Ends[len(r.Ends)-1].Findings...)
		}
	}
	return all
}

func has(found []finding.Finding, c code.Code) bool {
	return slices.ContainsFunc(found, func(f finding.Finding) bool { return f.Code == c })
}
