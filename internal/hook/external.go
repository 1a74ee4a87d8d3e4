package hook

import (
	"errors"
	"fmt"
	"slices"

	"bookend/internal/child"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/state"
)

const (
	externalOp  = "external" // in the record of one that cannot be killed
	maxExternal = 64 << 10   // bytes of its output
)

// startExternal starts the site's own check. The returned function waits for its reply, nil if the site has none. It
// may ask the driver: while a child is stuck there, or an earlier check of the site's, none is started.
func startExternal(a *node.Access) (wait func() (*judge.Reply, []record.Finding)) {
	c := a.Config.Health.External
	if c.Program == "" {
		return func() (*judge.Reply, []record.Finding) { return nil, nil }
	}
	isExternal := func(s state.Stuck) bool { return s.Op == externalOp }
	var stuck error
	if node.PeekStuck(a.Config.Paths, a.Job.Node) != nil {
		stuck = errors.New("a process is stuck in the driver")
	} else if slices.ContainsFunc(node.StuckReaders(a), isExternal) {
		stuck = errors.New("an earlier one cannot be killed")
	}
	// Threat: it runs as root, so only root may have written it; what it writes is tainted.
	spec := child.Spec{Path: c.Program, Args: c.Arguments, MaxOutput: maxExternal, Timeout: a.Left(c.Limit),
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SLURMD_NODENAME=" + a.Job.Node}, Foreign: true}
	if conf := a.Env.Getenv("SLURM_CONF"); conf != "" {
		spec.Env = append(spec.Env, "SLURM_CONF="+conf)
	}
	ended := child.Async(func() (child.Result, error) {
		if stuck != nil {
			return child.Result{}, stuck
		}
		return child.Run(spec), nil
	})
	return func() (*judge.Reply, []record.Finding) {
		res, err := ended()
		var faults []record.Finding
		if res.Outcome == child.Abandoned {
			faults = a.AbandonedReader(&child.Error{Op: externalOp, Result: res}, nil)
		}
		return replyOf(a, res, err), faults
	}
}

// replyOf returns the reply of a program that ended by itself, and otherwise why there is none.
func replyOf(a *node.Access, res child.Result, err error) *judge.Reply {
	c := a.Config.Health.External
	why := map[child.Outcome]string{
		child.Hung:       fmt.Sprintf("did not end within %v", c.Limit),
		child.Abandoned:  "left a process that cannot be killed",
		child.Flooded:    fmt.Sprintf("wrote more than %d KiB", maxExternal>>10),
		child.Crashed:    fmt.Sprintf("was ended by signal %d", res.Signal),
		child.NotStarted: fmt.Sprintf("was not started: %v", res.Err),
		"":               fmt.Sprintf("was not started: %v", err),
	}
	return &judge.Reply{Program: c.Program, Exit: res.ExitCode, Named: slices.Contains(c.DrainOn, res.ExitCode),
		Output: res.Stdout, Unknown: why[res.Outcome]}
}
