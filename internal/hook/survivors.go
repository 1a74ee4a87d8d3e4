package hook

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/judge"
	"bookend/internal/leftover"
	"bookend/internal/node"
	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/internal/state"
)

// seekSurvivors begins to look for processes that the job may have left outside its cgroup, and returns the user's if
// there are any: most jobs leave none, which is known before the driver answers. Inside a job nothing is read, and
// root's are the node's.
func seekSurvivors(a *node.Access, start *record.End) (wait func() ([]int, error)) {
	return child.Async(func() ([]int, error) {
		if a.InJob || a.Job.UID == 0 || start == nil {
			return nil, nil
		}
		pids, err := procscan.Owned(a.Config.Paths.Proc, a.Job.UID)
		if err != nil || len(pids) == 0 || hangsAt(a, pids) {
			return nil, err
		}
		all, err := survivors(a, pids)
		if len(spanOf(a, start).Reports(all, func(int) bool { return false })) == 0 {
			pids = nil
		}
		return pids, err
	})
}

func survivors(a *node.Access, pids []int) ([]leftover.Survivor, error) {
	request := procscan.SurvivorRequest{
		Proc: a.Config.Paths.Proc, UID: a.Job.UID, PIDs: pids, Variables: leftover.Variables(),
	}
	return procscan.Survivors.Ask(request, a.Deadline.Left(time.Second, a.Reserve()))
}

// spanOf is the job's time on the node.
func spanOf(a *node.Access, start *record.End) leftover.Span {
	return leftover.Span{
		Job:  a.Job.OwnerHere(),
		From: cmp.Or(start.Began, start.At), To: a.Deadline.Start, Cluster: a.Env.Getenv(leftover.ClusterVariable),
	}
}

// leftRunning returns the case with processes that the job may have left outside its cgroup and j does not name. They
// are read again: what was still ending is no survivor.
func leftRunning(a *node.Access, c judge.Case, j judge.Judgement, seek func() ([]int, error)) judge.Case {
	pids, err := seek()
	var all []leftover.Survivor
	if err == nil && hasSpan(c) && len(pids) > 0 && !a.Unkept() {
		all, err = survivors(a, pids)
	}
	c.Faults = append(c.Faults, a.AbandonedReader(err, nil)...)
	if err != nil || len(all) == 0 {
		return c
	}
	for _, r := range spanOf(a, c.Past.Run.Start).Reports(all, func(pid int) bool { return isNamed(pid, j.Found) }) {
		f := record.Saw(catalog.Survivor, r.Text, "no process of the job goes on")
		if r.Doubt != "" {
			f.AddDoubt("%s", r.Doubt)
		}
		c.Faults = append(c.Faults, f)
	}
	return c
}

// hasSpan reports whether it can be known what began in the job's time: its start is on record and of this boot, and no
// other job has its id in the environment, as components of a heterogeneous job have.
func hasSpan(c judge.Case) bool {
	return c.Past.Run.Start != nil && c.Past.Turn.Leads() && c.Job.HetJobID == 0 &&
		!c.Past.Run.Epoch.OtherBoot(c.Seen.Epoch)
}

// hangsAt reports whether a reader of /proc that cannot be killed hangs at one of the processes, or may do so.
func hangsAt(a *node.Access, pids []int) bool {
	at, blocked := state.HungAt(procscan.Survivors.Name, node.StuckReaders(a))
	return blocked || slices.ContainsFunc(at, func(i record.Instance) bool {
		return i.PID == 0 || slices.Contains(pids, i.PID)
	})
}

func isNamed(pid int, found []record.Finding) bool {
	is := func(h record.Holder) bool { return h.PID == pid }
	return slices.ContainsFunc(found, func(f record.Finding) bool {
		return f.Holder != nil && is(*f.Holder) || slices.ContainsFunc(f.Candidates, is)
	})
}
