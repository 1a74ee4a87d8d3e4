package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"bookend/internal/child"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/rig"
)

// hookName is one of the programs that slurmd runs.
type hookName string

const (
	prolog hookName = "prolog"
	epilog hookName = "epilog"
)

// Users of jobs: the ones under test, and others.
const (
	user      = 65534
	bystander = 65533
)

// run is one run of a job, as slurmd tells a hook of it.
type run struct {
	id    slurm.JobID
	start int64 // seconds since 1970: tells runs of one job id apart
	card  int
	uid   int
}

// job is what slurmd 23.02 tells a hook of it.
func (r run) job() rig.Job {
	return rig.NewJob(nodeName, int(r.id), r.uid, r.card).With("SLURM_JOB_START_TIME", strconv.FormatInt(r.start, 10))
}

type step struct {
	name    string
	hook    hookName
	run     run
	world   func(*node) // who is on the cards by then
	arrange func(*node) // what else became of what the hooks keep; nil: nothing
	damaged bool        // arrange has damaged the run's record
	exit    int         // as it must end without a fault
	finds   string      // and what it must find
}

// key names the run of a step, file its record below the node's folder.
func (s step) key() string { return fmt.Sprintf("%d/t%d", s.run.id, s.run.start) }

func (s step) file() string { return "run/state/" + nodeName + "/" + s.key() + ".json" }

// The runs of the history.
var (
	neighbour = run{id: 7, start: 1_700_000_000, card: 4, uid: bystander}
	first     = run{id: 100, start: 1_700_000_100, uid: user}
	leaking   = run{id: 101, start: 1_700_000_200, uid: user}
	requeued  = run{id: 100, start: 1_700_000_300, uid: user}
	mixed     = run{id: 104, start: 1_700_000_350, uid: user}
	archiving = run{id: 102, start: 1_700_000_400, uid: user}
	last      = run{id: 103, start: 1_700_000_500, uid: user}
)

// service is part of the node: what it holds is learned at a start.
var service = holder{pid: 900, bytes: 20 << 20, cgroup: "0::/system.slice/dcgm.service\n", start: time.Second}

var orphan = holder{pid: 4711, bytes: 700 << 20, uid: user, cgroup: "0::/user.slice/user-65534.slice/session-1.scope\n"}

func quiet(n *node) { n.processes(service) }

// leak is a job that leaves a process behind, of which leaked is what is there afterwards.
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
var prelude = step{name: "a bystander's start", hook: prolog, run: neighbour, world: quiet}

// history is what the hooks of one card live through: each way in which they come to change what they keep.
var history = []step{
	{name: "start", hook: prolog, run: first, world: quiet},
	{name: "end", hook: epilog, run: first, world: quiet, arrange: dropOf(first)},
	{name: "start after a test", hook: prolog, run: leaking, world: quiet},
	{name: "end with a leak", hook: epilog, run: leaking, world: leak, exit: 10, finds: "BKD-ORPHAN"},
	{name: "end once more", hook: epilog, run: leaking, world: leaked, exit: 10, finds: "BKD-AGAIN BKD-ORPHAN"},
	{name: "start of a requeue", hook: prolog, run: requeued, world: quiet},
	{name: "end, record damaged", hook: epilog, run: requeued, world: quiet, arrange: damage(requeued), damaged: true,
		finds: "BKD-ST-DAMAGED BKD-NORECORD"},
	{name: "start before a mix-up", hook: prolog, run: mixed, world: quiet},
	{name: "end, another's record", hook: epilog, run: mixed, world: quiet, arrange: swap(mixed, neighbour),
		damaged: true,
		finds:   "BKD-ST-DAMAGED BKD-NORECORD"},
	{name: "start beside others", hook: prolog, run: archiving, world: quiet},
	{name: "end, archive due", hook: epilog, run: archiving, world: quiet, arrange: fill},
	{name: "start after all", hook: prolog, run: last, world: quiet},
	{name: "end of all", hook: epilog, run: last, world: quiet},
}

// dropOf leaves what the job's task hook tells root, as the user, where there is a file for that.
func dropOf(r run) func(*node) {
	return func(n *node) {
		path := filepath.Join(n.in("run/drop"), fmt.Sprint(r.uid), "jobs", fmt.Sprintf("%s_%d", nodeName, r.id))
		overwrite(path, []byte(`{"bookend":1,"het_id":99}`))
	}
}

// damage cuts a run's record off, where there is one.
func damage(r run) func(*node) {
	return func(n *node) {
		if err := os.Truncate(n.record(r), 150); !errors.Is(err, fs.ErrNotExist) {
			rig.Try(err)
		}
	}
}

// swap puts another job's record in the place of a run's, where there is one.
func swap(r, other run) func(*node) {
	return func(n *node) { overwrite(n.record(r), rig.Have(os.ReadFile(n.record(other)))) }
}

// overwrite gives a file other content, where there is one.
func overwrite(path string, data []byte) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		rig.Try(os.WriteFile(path, data, 0))
	}
}

func (n *node) record(r run) string {
	return filepath.Join(n.in("run/state"), nodeName, fmt.Sprint(r.id), fmt.Sprintf("t%d.json", r.start))
}

// older is how many runs fill adds: with those of the history, a few more than stay.
const older = 31

// fill adds runs that ended long ago, all in the history on disk, so that the next end has some to remove.
func fill(n *node) {
	store := rig.Have(state.Open(n.in("run"), nodeName))
	now := time.Unix(1_600_000_000, 0)
	for i := range older {
		at := time.Duration(i+1) * time.Millisecond
		job := slurm.Job{ID: slurm.JobID(1000 + i), Node: nodeName, UID: user, GID: user}
		job.Start = now.Add(time.Duration(i) * time.Minute)
		begun := ledger.Run{Job: job, Start: &ledger.End{At: at, Wall: now}}
		found, _, _ := store.Find(job)
		if found.Key != "" {
			continue
		}
		rig.Try(store.Begin(begun))
		found, _, err := store.Find(job)
		rig.Try(err)
		rig.Try(store.Close(found, ledger.End{At: at + 1, Wall: now}))
	}
	rig.Try(state.Archive(n.in("run"), n.in("var"), nodeName, time.Now()))
}
