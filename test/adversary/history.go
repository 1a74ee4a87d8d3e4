package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/rig"
)

// run is one run of a job.
type run struct {
	id    slurm.JobID
	start int64 // seconds since 1970: tells runs of one job id apart
	gpu   int
	uid   int
}

// job is the environment that slurmd 23.02 gives to a hook of the run.
func (r run) job() rig.Job {
	return rig.NewJob(nodeName, int(r.id), r.uid, r.gpu).With("SLURM_JOB_START_TIME", strconv.FormatInt(r.start, 10))
}

// step is one hook of one run.
type step struct {
	name    string
	hook    slurm.Context
	run     run
	world   func(*node) // puts processes on the GPUs
	arrange func(*node) // changes what the hooks keep; nil: nothing
	damaged bool        // arrange has damaged the run's record
	exit    int         // the exit status without a fault
	finds   string      // and the findings
}

func (s step) program() string {
	name, _, _ := strings.Cut(string(s.hook), "_")
	return "bookend-" + name
}

// key names the run of a step, file its record below the node's directory.
func (s step) key() string { return fmt.Sprintf("%d/t%d", s.run.id, s.run.start) }

func (s step) file() string { return "run/state/" + nodeName + "/" + s.key() + ".json" }

// The runs of the history.
var (
	neighbour = run{id: 7, start: 1_700_000_000, gpu: 4, uid: other}
	first     = run{id: 100, start: 1_700_000_100, uid: user}
	leaking   = run{id: 101, start: 1_700_000_200, uid: user}
	requeued  = run{id: 100, start: 1_700_000_300, uid: user}
	mixed     = run{id: 104, start: 1_700_000_350, uid: user}
	archiving = run{id: 102, start: 1_700_000_400, uid: user}
	last      = run{id: 103, start: 1_700_000_500, uid: user}
)

// service is part of the node: a prolog learns what it holds.
var service = holder{pid: 900, bytes: 20 << 20, cgroup: "0::/system.slice/dcgm.service\n", start: time.Second}

var orphan = holder{pid: 4711, bytes: 700 << 20, uid: user,
	cgroup: fmt.Sprintf("0::/user.slice/user-%d.slice/session-1.scope\n", user)}

func quiet(n *node) { n.processes(service) }

// leak is a job that leaves a process; leaked is what is on the GPU from then on.
func leak(n *node) {
	n.leaked = child.SystemClock().Boot()
	leaked(n)
}

func leaked(n *node) {
	o := orphan
	o.start = n.leaked
	n.processes(service, o)
}

// prelude is the start of the job whose record must never change.
var prelude = step{name: "a bystander's start", hook: slurm.Prolog, run: neighbour, world: quiet}

// history is what the hooks of one GPU go through: each way in which they change what they keep.
var history = []step{
	{name: "start", hook: slurm.Prolog, run: first, world: quiet},
	{name: "end", hook: slurm.Epilog, run: first, world: quiet, arrange: dropOf(first)},
	{name: "start after a test", hook: slurm.Prolog, run: leaking, world: quiet},
	{name: "end with a leak", hook: slurm.Epilog, run: leaking, world: leak, exit: 10, finds: "BKD-ORPHAN"},
	{name: "end once more", hook: slurm.Epilog, run: leaking, world: leaked, exit: 10, finds: "BKD-AGAIN BKD-ORPHAN"},
	{name: "start of a requeue", hook: slurm.Prolog, run: requeued, world: quiet},
	{name: "end, record damaged", hook: slurm.Epilog, run: requeued, world: quiet, arrange: damage(requeued),
		damaged: true, finds: "BKD-ST-DAMAGED BKD-NORECORD"},
	{name: "start before a mix-up", hook: slurm.Prolog, run: mixed, world: quiet},
	{name: "end, another's record", hook: slurm.Epilog, run: mixed, world: quiet, arrange: swapRecords(mixed, neighbour),
		damaged: true, finds: "BKD-ST-DAMAGED BKD-NORECORD"},
	{name: "start beside others", hook: slurm.Prolog, run: archiving, world: quiet},
	{name: "end, archive due", hook: slurm.Epilog, run: archiving, world: quiet, arrange: fill},
	{name: "start after all", hook: slurm.Prolog, run: last, world: quiet},
	{name: "end of all", hook: slurm.Epilog, run: last, world: quiet},
}

// dropOf writes what the job's task hook leaves for root, as the user, if there is a file for it.
func dropOf(r run) func(*node) {
	return func(n *node) {
		path := filepath.Join(n.in("run/drop"), fmt.Sprint(r.uid), "jobs", fmt.Sprintf("%s_%d", nodeName, r.id))
		overwrite(path, []byte(`{"bookend":1,"het_id":99}`))
	}
}

// damage cuts a run's record off, if there is one.
func damage(r run) func(*node) {
	return func(n *node) {
		if err := os.Truncate(n.record(r), 150); !errors.Is(err, fs.ErrNotExist) {
			rig.Try(err)
		}
	}
}

// swapRecords puts another job's record in place of a run's, if there is one.
func swapRecords(r, other run) func(*node) {
	return func(n *node) { overwrite(n.record(r), rig.Have(os.ReadFile(n.record(other)))) }
}

func overwrite(path string, data []byte) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		rig.Try(os.WriteFile(path, data, 0))
	}
}

func (n *node) record(r run) string { return n.in(step{run: r}.file()) }

// fill adds runs that ended long ago, all in the history on disk: with those of the history above a few more than stay,
// so that the next end has some to remove.
func fill(n *node) {
	const older = 31
	store := rig.Have(state.Open(n.in("run"), nodeName))
	now := time.Unix(1_600_000_000, 0)
	for i := range older {
		at := time.Duration(i+1) * time.Millisecond
		job := slurm.Job{ID: slurm.JobID(1000 + i), Node: nodeName, UID: user, GID: user}
		job.Start = now.Add(time.Duration(i) * time.Minute)
		found, _ := store.Find(job)
		if found.Key != "" {
			continue
		}
		rig.Try(store.Begin(record.Run{Job: job, Start: &record.End{At: at, Wall: now}}))
		found, err := store.Find(job)
		rig.Try(err)
		rig.Try(store.Close(found, record.End{At: at + 1, Wall: now}))
	}
	rig.Try(state.Archive(n.in("run"), n.in("var"), nodeName, time.Now()))
}
