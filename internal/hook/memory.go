package hook

import (
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/judge"
	"bookend/internal/leftover"
	"bookend/internal/node"
	"bookend/internal/publish"
	"bookend/internal/record"
	"bookend/internal/sharedmem"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// hostLooks is what the node's health checks have seen of its memory.
var hostLooks = state.Value[leftover.HostLooks]("memory.json", 16<<10)

// examineMemory returns what is wrong with the node's own memory. It is read while no job is on the node, and what is
// missing counts only if Slurm too has no job there and a second look, once ended processes are gone, agrees.
func examineMemory(a *node.Access, k judge.Check) []record.Finding {
	const settled = 2 * time.Second
	looks, damaged := hostLooks.Load(a.Store)
	boot, faults := k.Seen.Epoch.Boot, node.Fault(damaged)
	hangs := func(s state.Stuck) bool { return s.Op == sharedmem.ReadHost.Name }
	if boot == "" || judge.Occupied(k.Case) != "" || a.Unkept() || slices.ContainsFunc(node.StuckReaders(a), hangs) {
		return faults
	}
	request := sharedmem.HostRequest{Place: sharedMemory(a), Earlier: leftByJobs(k.Latest().Runs, boot)}
	now, faults := readHost(a, request, faults)
	if now == nil {
		return faults
	}
	next := looks.After(boot, now.HostUse)
	if next.Short != nil {
		idle := publish.Idle(a)
		request.After = settled
		if now, faults = readHost(a, request, faults); !idle || now == nil {
			return faults
		}
		next = looks.After(boot, now.HostUse)
	}
	faults = slices.Concat(faults, node.Fault(hostLooks.Save(a.Store, next)))
	return append(faults, shortage(next)...)
}

// readHost reads the node's memory; it returns nil if a job is on the node, or may be.
func readHost(a *node.Access, r sharedmem.HostRequest, faults []record.Finding) (
	*sharedmem.HostReply, []record.Finding,
) {
	const most = 5 * time.Second // 10,000 processes take 200 ms
	now, err := sharedmem.ReadHost.Ask(r, a.Deadline.Left(most+r.After, a.Reserve()))
	switch {
	case err != nil:
		unread := record.Unsure(catalog.HostMemory, err.Error())
		unread.NoteOnly = "it could not be read"
		return nil, append(slices.Concat(faults, a.AbandonedReader(err, nil)), unread)
	case now.Daemon != 0 || slices.ContainsFunc(now.Cgroups, slurm.InJob):
		return nil, faults
	}
	return &now, faults
}

func leftByJobs(runs []record.Run, boot string) map[string]string {
	all := map[string]string{}
	for _, r := range runs {
		for _, e := range r.Ends {
			for _, f := range e.Findings {
				if f.Code == catalog.SharedMemory && r.EpochOf(e).Boot == boot {
					all[r.JobName()] = f.Observed
				}
			}
		}
	}
	return all
}

// shortage returns the finding for admins about what the last look found, if anything.
func shortage(looks leftover.HostLooks) []record.Finding {
	s := looks.Short
	if s == nil {
		return nil
	}
	f := record.Saw(catalog.HostMemory, s.Text, "as much available as earlier in this boot")
	if s.System {
		f.NoteOnly = "system services have it, or huge pages that root reserved"
	}
	if s.Unexplained {
		f.AddDoubt("what takes it is not known")
	}
	return []record.Finding{f}
}

// withShortage returns the case of a job's start with the shortage of memory that the last health check without a job
// found, if it stands. That is unknown while another job may be on the node. Of what users named it says nothing.
func withShortage(a *node.Access, c judge.Case) judge.Case {
	looks := hostLooks.Peek(a.Store)
	if looks.Short == nil {
		return c
	}
	others := c
	if others.Node == nil {
		others.Node, _ = node.Records(a.Store)
	}
	if !c.Job.Exclusive && judge.Occupied(others) != "" {
		return c
	}
	now, err := sharedMemory(a).HostMemory(false)
	if err == nil && looks.Stands(c.Seen.Epoch.Boot, now, c.Job.Exclusive) {
		c.Faults = append(slices.Clone(c.Faults),
			record.Saw(catalog.HostMemory, looks.Short.Brief, "as much available as earlier in this boot"))
	}
	return c
}
