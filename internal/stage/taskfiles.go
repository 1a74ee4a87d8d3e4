package stage

import (
	"path/filepath"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"bookend/internal/holders"
	"bookend/internal/joblog"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// locateRequest crosses the pipe of opLocate. Others are the numbers that the task may have whose output it is; Task is the
// one of which it is asked.
type locateRequest struct {
	Proc   string `json:"proc"`
	PID    int    `json:"pid"`
	FD     int    `json:"fd"`
	Others []int  `json:"others,omitempty"`
	Task   int    `json:"task"`
}

// located is a task's output; Lost: the step writes one file a task, and this task's was not found.
type located struct {
	Target joblog.Target `json:"target"`
	Own    joblog.Target `json:"own"`
	Lost   bool          `json:"lost,omitempty"`
}

// serveLocate asks the file system of the job's output, which may hang.
var serveLocate = served(func(r locateRequest) (located, error) {
	t, err := joblog.Locate(r.Proc, r.PID, r.FD)
	if err != nil {
		return located{}, err
	}
	found := located{Target: t}
	for _, other := range r.Others {
		own, named, err := joblog.OfTask(t, other, r.Task)
		if err == nil && own.Path != "" {
			return located{Target: t, Own: own}, nil
		}
		found.Lost = found.Lost || named
	}
	return found, nil
})

// recordOutput leaves where a task's errors went: to the file of the TaskEpilog's own stderr, which is that of the first
// task on the node; the others' have names like it. A TaskProlog cannot know: its stdout is a pipe to slurmstepd, and the
// task's own descriptors are closed to the user.
func (t *task) recordOutput() {
	const stderr = 2
	request := locateRequest{Proc: t.cfg.Paths.Proc, PID: t.env.PID, FD: stderr}
	if !t.inScript() {
		request.Task, request.Others = t.numbers()
	}
	found, err := ask[located](opLocate, request, t.left(taskStep, 0))
	switch {
	case t.inScript():
		t.record(func(d *joblog.Drop) {
			if err == nil {
				d.Target = found.Target
			}
		})
	case err == nil:
		t.record(func(d *joblog.Drop) { note(d, found) })
	}
}

// note adds a task's file to the record; without one, that of the first task, and that one is missing.
func note(d *joblog.Drop, found located) {
	if found.Own.Path != "" {
		d.Note([]joblog.Target{found.Own})
		return
	}
	d.Note([]joblog.Target{found.Target})
	if found.Lost {
		d.More++
	}
}

// numbers are the task's own, and those that the first task of its step on this node may have: tasks are dealt out in blocks,
// or one node after the other.
func (t *task) numbers() (own int, first []int) {
	own, err := strconv.Atoi(t.env.Getenv("SLURM_PROCID"))
	if err != nil || own < 0 || t.LocalID < 0 {
		return 0, nil
	}
	first = []int{max(0, own-t.LocalID)}
	if node, err := strconv.Atoi(t.env.Getenv("SLURM_NODEID")); err == nil && node >= 0 && node != first[0] && t.LocalID > 0 {
		first = append(first, node)
	}
	return own, first
}

// launchersRequest crosses the pipe of opLaunchers.
type launchersRequest struct {
	Proc  string      `json:"proc"`
	UID   uint32      `json:"uid"`
	Owner slurm.Owner `json:"owner"`
}

// launched is what srun processes write to. Apart: the tasks of one write their output to files that nobody here can name.
type launched struct {
	Files []joblog.Target `json:"files,omitempty"`
	Apart bool            `json:"apart,omitempty"`
}

// serveLaunchers finds what the job's srun processes on this node write to: the output of the steps that have no file a task.
var serveLaunchers = served(func(r launchersRequest) (found launched, err error) {
	pids, err := holders.Named(r.Proc, "srun", r.UID, r.Owner)
	for _, pid := range pids {
		written, _ := joblog.Written(r.Proc, pid) // one that has ended writes nothing more
		found.Files = append(found.Files, written...)
		found.Apart = found.Apart || joblog.Apart(r.Proc, pid, written)
	}
	slices.SortFunc(found.Files, joblog.Target.Compare)
	found.Files = slices.Compact(found.Files)
	return found, err
})

// recordLauncher leaves where a step's output goes that srun writes: to its own output, or to a file that it opened (srun -o).
func (t *task) recordLauncher() {
	request := launchersRequest{t.cfg.Paths.Proc, uint32(t.env.EUID), t.Job()}
	found, err := ask[launched](opLaunchers, request, t.left(taskStep, 0))
	t.record(func(d *joblog.Drop) {
		d.Note(found.Files)
		d.Elsewhere = d.Elsewhere || err != nil || len(found.Files) == 0 || found.Apart
	})
}

// record changes what the task hooks of this job on this node leave for the epilog, in the folder that the prolog made. Steps
// may begin at the same time: one after the other writes.
func (t *task) record(change func(*joblog.Drop)) {
	dir, drop := state.DropDir(t.cfg.Paths.Run, t.Node, t.Job()), t.drop()
	if dir == "" {
		return
	}
	if release, err := safefile.Lock(filepath.Join(dir, dropWriters), t.left(dropWait, 0), true); err == nil {
		defer release()
	}
	t.recall(dir, &drop)
	change(&drop)
	if data, err := drop.Encode(); err == nil {
		_ = safefile.Replace(dir, state.DropFile, data, 0o600) // no folder, no record: that is normal
	}
}

// Writers of a record hold dropWriters, for no longer than it takes to write it.
const (
	dropWriters = "job.lock"
	dropWait    = 100 * time.Millisecond
)

// recall adds what was left so far. A step's hook knows nothing of the job that the script's would not know better.
func (t *task) recall(dir string, d *joblog.Drop) {
	// Threat: none but the user's own: this is his record, and his process.
	raw, err := safefile.Read(dir, state.DropFile, joblog.MaxDrop)
	if err != nil {
		return
	}
	old, err := joblog.ParseDrop(raw)
	switch {
	case err != nil:
	case t.inScript():
		d.Target, d.Steps, d.More, d.Elsewhere = old.Target, old.Steps, old.More, old.Elsewhere
	default:
		*d = old
	}
}

// drop is what a task hook knows of the job.
func (t *task) drop() joblog.Drop {
	d := joblog.Drop{Array: t.Array, HetID: t.HetID, AddressSpace: t.addressSpace()}
	if name := t.env.Getenv("SLURM_JOB_NAME"); len(name) <= joblog.MaxName && utf8.ValidString(name) {
		d.Name = name
	}
	return d
}
