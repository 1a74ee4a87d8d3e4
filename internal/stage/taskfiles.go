package stage

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"bookend/internal/joblog"
	"bookend/internal/operation"
	"bookend/internal/safefile"
	"bookend/internal/state"
)

// recordOutput leaves where a task's errors went: to the file of the TaskEpilog's own stderr, which is that of the
// first task on the node; the others' have names like it. A TaskProlog cannot know: its stdout is a pipe to slurmstepd,
// and the task's own descriptors are closed to the user.
func (t *task) recordOutput() {
	const stderr = 2
	request := operation.LocateRequest{Proc: t.cfg.Paths.Proc, PID: t.env.PID, FD: stderr}
	if !t.inScript() {
		request.Task, request.Others = t.numbers()
	}
	found, err := operation.Locate.Ask(request, t.Left(taskStep, 0))
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
func note(d *joblog.Drop, found operation.Located) {
	if found.Own.Path != "" {
		d.Note([]joblog.Target{found.Own})
		return
	}
	d.Note([]joblog.Target{found.Target})
	if found.Lost {
		d.More++
	}
}

// numbers are the task's own, and those that the first task of its step on this node may have: tasks are dealt out in
// blocks, or one node after the other.
func (t *task) numbers() (own int, first []int) {
	own, err := strconv.Atoi(t.env.Getenv("SLURM_PROCID"))
	if err != nil || own < 0 || t.LocalID < 0 {
		return 0, nil
	}
	first = []int{max(0, own-t.LocalID)}
	node, err := strconv.Atoi(t.env.Getenv("SLURM_NODEID"))
	if err == nil && node >= 0 && node != first[0] && t.LocalID > 0 {
		first = append(first, node)
	}
	return own, first
}

// recordLauncher leaves where a step's output goes that srun writes: to its own output, or to a file that it opened
// (srun -o).
func (t *task) recordLauncher() {
	request := operation.LaunchersRequest{Proc: t.cfg.Paths.Proc, UID: uint32(t.env.EUID), Owner: t.Job()}
	found, err := operation.Launchers.Ask(request, t.Left(taskStep, 0))
	t.record(func(d *joblog.Drop) {
		d.Note(found.Files)
		d.Elsewhere = d.Elsewhere || err != nil || len(found.Files) == 0 || found.Apart
	})
}

// record changes what the task hooks of this job on this node leave for the epilog, in the file that the prolog made.
// Steps may begin at the same time: one after the other writes.
func (t *task) record(change func(*joblog.Drop)) {
	drop := t.drop()
	dir, name := state.DropFile(t.cfg.Paths.Run, t.Node, t.Job())
	if dir == "" {
		return
	}
	// Threat: none but the user's own: this is his file, and his process. Without one there is no record: that is normal.
	release, err := safefile.Lock(filepath.Join(dir, name), t.Left(dropWait, 0), true)
	if err != nil {
		return
	}
	defer release()
	t.recall(dir, name, &drop)
	change(&drop)
	if data, err := drop.Encode(); err == nil {
		_ = safefile.Rewrite(dir, name, data)
	}
}

// dropWait is the longest wait for other writers, which take no longer than it takes to write.
const dropWait = 100 * time.Millisecond

// recall adds what was left so far. A step's hook knows nothing of the job that the script's would not know better.
func (t *task) recall(dir, name string, d *joblog.Drop) {
	raw, err := safefile.Read(dir, name, joblog.MaxDrop)
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

// addressSpace is the soft limit of address space of the job's tasks, bytes, joblog.Unlimited for none and 0 where
// nobody can tell. slurmstepd limits a task only after its TaskProlog has run, and never the TaskEpilog (seen with
// 22.05): what Slurm carries from the submitting host stands in the environment of both, marked with a U where the user
// asked for it (--propagate). Where it carries nothing a task has slurmstepd's own limit, as this process does. A limit
// that the script sets for itself shows nowhere.
func (t *task) addressSpace() uint64 {
	if carried := t.env.Getenv("SLURM_RLIMIT_AS"); carried != "" {
		n, err := strconv.ParseUint(strings.TrimPrefix(carried, "U"), 10, 64)
		if err != nil {
			return 0
		}
		return min(n, joblog.Unlimited)
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &own); err != nil {
		return 0
	}
	return min(own.Cur, joblog.Unlimited)
}
