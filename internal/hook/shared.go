package hook

import (
	"fmt"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/judge"
	"bookend/internal/leftover"
	"bookend/internal/node"
	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/internal/sharedmem"
	"bookend/internal/state"
)

// listTime is far more, on a busy node too, than to list a full /dev/shm takes (40 ms), or 20,000 processes (0.9 s).
const listTime = 3 * time.Second

// sharedMemory is where the job's user may leave memory of the node's. Inside a job nothing is read.
func sharedMemory(a *node.Access) sharedmem.Place {
	p := sharedmem.Place{Dir: a.Config.Paths.Dev + "/shm", Proc: a.Config.Paths.Proc, Sys: a.Config.Paths.Sys}
	if !a.InJob {
		p.UID = a.Job.UID
	}
	return p
}

// readMemory begins to list what the user has at the job's end, but nothing that was there at its start.
func readMemory(a *node.Access, start *record.End) sharedmem.Reading {
	var mark *record.SharedMark
	if start != nil {
		mark = start.SharedMemory
	}
	return sharedMemory(a).Read(a.Env.Clock.Wall(), leftover.FilesAt(mark))
}

// leftInMemory returns the case with what appeared in shared memory while the job ran and no process uses, if that is
// much. Only then processes and the node's records are read, to find out whether the job left it.
func leftInMemory(a *node.Access, c judge.Case, memory sharedmem.Reading) judge.Case {
	if c.Past.Run.Start == nil || !c.Past.Turn.Leads() {
		return c
	}
	mark, now := c.Past.Run.Start.SharedMemory, memory(listTime)
	left, known := now.Since(mark)
	if !known || !left.Matter() {
		return c
	}
	searches := sharedMemory(a).Searches(now, left)
	unused, err := sharedmem.Unused.Ask(searches, a.Deadline.Left(listTime, a.Reserve()))
	c.Faults = append(c.Faults, a.AbandonedReader(err, nil)...)
	if left = left.Only(unused...); !left.Matter() {
		return c
	}
	c, jobs, unseen := suspects(a, c, mark.Login || now.Login)
	search := searches[0]
	search.Files = left.Inodes()
	removed, note, faults := removeShared(a, search, unseen == "" && len(jobs) == 1)
	rest := left.Without(removed).Command(a.Job.UID, search.Place.Dir, now.Wall)
	f := record.Saw(catalog.SharedMemory, left.Text(jobs, unseen)+note+rest, "none left by the job")
	f.Bytes.Bytes = left.Bytes()
	if unseen != "" {
		f.AddDoubt("what left it is unknown: %s", unseen)
	}
	c.Faults = append(append(c.Faults, faults...), f)
	return c
}

// removeShared removes the files as the user, if the admin wants that and this job alone can have left them, unless a
// process of the user is on the node. note says how many it removed.
func removeShared(a *node.Access, search sharedmem.Search, alone bool) (
	removed []uint64, note string, faults []record.Finding,
) {
	if !a.Config.CleanUp.SharedMemory || !alone || a.Env.EUID != 0 {
		return nil, "", nil
	}
	const most = 4096 // some 100 ms
	search.Files = search.Files[:min(len(search.Files), most)]
	request := procscan.JobRequest{Proc: a.Config.Paths.Proc, UID: a.Job.UID}
	pid, err := procscan.Elsewhere.Ask(request, a.Deadline.Left(listTime, a.Reserve()))
	if pid != 0 || err != nil {
		return nil, "", a.AbandonedReader(err, nil)
	}
	removal := sharedmem.Removal{Search: search, GID: a.Job.GID}
	removed, trouble, _ := node.Visit(a, sharedmem.Remove, removal, a.Reserve())
	return removed, fmt.Sprintf(", and clean_up.shm removed %d", len(removed)), node.Fault(trouble)
}

// suspects returns what of the user's may have been on the node since the job's start: the jobs on record, this one
// first, and why there may have been something without a record, which is a job without GPUs or a login.
func suspects(a *node.Access, c judge.Case, login bool) (_ judge.Case, jobs []string, unseen string) {
	if c.Node == nil {
		c.Node, _ = node.Records(a.Store) // what is damaged is reported where it is in the way
	}
	request := procscan.JobRequest{Proc: a.Config.Paths.Proc, UID: a.Job.UID, Owner: a.Job.OwnerHere()}
	pid, err := procscan.Elsewhere.Ask(request, a.Deadline.Left(listTime, a.Reserve()))
	c.Faults = append(c.Faults, a.AbandonedReader(err, nil)...)
	nodes, unread := state.Nodes(a.Config.Paths.Run, "")
	seen := leftover.Witness{Exclusive: c.Past.Run.Job.Exclusive && c.Job.Exclusive, Login: login, PID: pid}
	switch {
	case err != nil:
		seen.Unread = err.Error()
	case c.Node.Unread != "" || len(c.Node.Damaged) > 0:
		seen.Unread = "a record of the node's jobs could not be read"
	case unread != nil || len(nodes) > 1:
		seen.Unread = "this host has several nodes"
	}
	return c, append([]string{fmt.Sprint(a.Job.ID)}, c.Whole().Book.SameUser(c.Past.Run.Start.Began)...), seen.Unseen()
}
