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

// ownProcesses begins to list the processes of the job's user. Inside a job nothing is read, and root's are the node's.
func ownProcesses(a *node.Access) (wait func() ([]int, error)) {
	return child.Async(func() ([]int, error) {
		if a.InJob || a.Job.UID == 0 {
			return nil, nil
		}
		return procscan.Owned(a.Config.Paths.Proc, a.Job.UID)
	})
}

// leftRunning returns the case with processes that the job may have left outside its cgroup and j does not name.
func leftRunning(a *node.Access, c judge.Case, j judge.Judgement, own func() ([]int, error)) judge.Case {
	start := c.Past.Run.Start
	pids, err := own()
	if !hasSpan(c) || len(pids) == 0 || err != nil || hangsAt(a, pids) {
		return c
	}
	ended := leftover.Span{Job: a.Job.OwnerHere(),
		From: cmp.Or(start.Began, start.At), To: a.Deadline.Start, Cluster: a.Env.Getenv(leftover.ClusterVariable)}
	request := procscan.SurvivorRequest{
		Proc: a.Config.Paths.Proc, UID: a.Job.UID, PIDs: pids, Variables: leftover.Variables(),
	}
	all, err := procscan.Survivors.Ask(request, a.Deadline.Left(time.Second, a.Reserve()))
	c.Faults = append(c.Faults, a.AbandonedReader(err, nil)...)
	if err != nil {
		return c
	}
	for _, r := range ended.Reports(all, func(pid int) bool { return isNamed(pid, j.Found) }) {
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
	return blocked || a.Unkept() || slices.ContainsFunc(at, func(i record.Instance) bool {
		return i.PID == 0 || slices.Contains(pids, i.PID)
	})
}

func isNamed(pid int, found []record.Finding) bool {
	is := func(h record.Holder) bool { return h.PID == pid }
	return slices.ContainsFunc(found, func(f record.Finding) bool {
		return f.Holder != nil && is(*f.Holder) || slices.ContainsFunc(f.Candidates, is)
	})
}
