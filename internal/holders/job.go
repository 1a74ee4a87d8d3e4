package holders

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/slurm"
)

// Bounds of one search: it runs at the end of every task, in a second.
const (
	maxProcesses = 1 << 16
	maxLinks     = 100_000 // about 0.2 s
	maxOpen      = 64
)

// ErrPartial says that a search stopped at a bound, or could not look into a process of the job: it may have missed
// some.
var ErrPartial = errors.New("not every process was looked into")

// Job says whose processes are looked for, as far as a program with its user's rights can tell.
//
// A process is the job's when its cgroup names in. One whose cgroup names no job is, when it runs under uid and
// its environment names in.ID: by uid alone it could be of any job of that user.
type Job struct {
	uid uint32
	in  slurm.Owner
}

// JobOf is a user's job.
func JobOf(uid uint32, in slurm.Owner) Job { return Job{uid, in} }

// Open is a process that has GPUs open.
type Open struct {
	PID     int
	Name    string        // comm: the process chose it
	Start   time.Duration // CLOCK_BOOTTIME, to the tick
	Devices []string      // names of cards' nodes below dev, sorted: "nvidia0"
}

// Named lists the job's processes of one name (comm), which any process may give itself, in order of PID. With
// ErrPartial the list holds what was found.
func (j Job) Named(proc, name string) (found []int, err error) {
	err = j.each(proc, func(pid int, st stat, f folder) {
		if st.name == name && j.has(f) {
			found = append(found, pid)
		}
	})
	return found, err
}

// OpenDevices lists the job's processes that have a card's device node below dev (/dev) open, in order of PID. It needs
// no privilege for processes of the caller's user. An open descriptor proves a holder, not memory. With ErrPartial the
// list holds what was found.
func (j Job) OpenDevices(proc, dev string) (found []Open, err error) {
	r, links := newReader(), maxLinks
	var partial error
	in := place{dev, func() bool { return false }}
	err = j.each(proc, func(pid int, st stat, f folder) {
		if !j.has(f) {
			return
		}
		var open nodes
		more := func() bool { links--; return links >= 0 }
		failed := f.descriptors(r, more, func(target []byte) { open.add(target, in) })
		if failed != nil && !gone(failed) {
			partial = fmt.Errorf("process %d: %w: %v", pid, ErrPartial, failed)
		}
		switch {
		case len(open.minors) == 0:
		case len(found) == maxOpen:
			partial = fmt.Errorf("more than %d: %w", maxOpen, ErrPartial)
		default:
			names := slices.Sorted(slices.Values(attrib.Holding{Minors: open.minors}.Open()))
			found = append(found, Open{PID: pid, Name: st.name, Start: st.start, Devices: names})
		}
	})
	return found, cmp.Or(err, partial)
}

// each calls look for every process but the caller, with its folder open for the thread that answers.
func (j Job) each(proc string, look func(pid int, st stat, f folder)) error {
	pids, err := listPIDs(proc)
	for _, pid := range pids {
		f, err := openFolder(proc, pid)
		if err != nil {
			continue // ended
		}
		if st, err := f.stat(); err == nil {
			look(pid, st, f.ask(st.state))
		}
		f.close()
	}
	return err
}

// has reports a process of the job that is not Slurm's own.
func (j Job) has(f folder) bool {
	text, err := f.cgroup()
	owner := slurm.OwnerOfCgroup(text)
	switch {
	case err != nil || owner.Conflict != "" || owner.Daemon:
		return false
	case owner.Found():
		return owner.SLUID != "" && owner.SLUID == j.in.SLUID || owner.ID != 0 && owner.ID == j.in.ID
	case j.in.ID == 0:
		return false
	}
	status, err := f.text("status", maxStatus)
	uid, bad := parseUID(status)
	return err == nil && bad == nil && uid == j.uid && f.environment() == j.in.ID
}

// listPIDs lists the processes but the caller, sorted; with ErrPartial only the first maxProcesses of them.
func listPIDs(proc string) ([]int, error) {
	folder, err := os.Open(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer folder.Close()
	var pids []int
	err = names(folder, func(name string) bool {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 0 || pid == os.Getpid() {
			return true
		}
		if len(pids) == maxProcesses {
			return false
		}
		pids = append(pids, pid)
		return true
	})
	slices.Sort(pids)
	if errors.Is(err, errBound) {
		err = fmt.Errorf("more than %d processes: %w", maxProcesses, ErrPartial)
	}
	return pids, err
}
