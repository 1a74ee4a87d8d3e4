package holders

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"bookend/internal/slurm"
)

// Bounds of one search: it runs in a task hook, in a second.
const (
	maxProcesses = 1 << 16
	maxLinks     = 100_000 // about 0.2 s
)

// errPartial says that a search stopped at its bound: it may have missed some.
var errPartial = errors.New("not every process was looked into")

// OfJob is a process of a job, as far as a program with its user's rights can tell. It is the job's when its cgroup
// names the job. One whose cgroup names no job is, when it runs under the user and its environment names the job: by
// user alone it could be of any job of that user.
type OfJob struct {
	PID  int    `json:"pid"`
	Name string `json:"name"` // comm: the process chose it
}

// Named lists a job's processes of one name, in order of PID. With an error the list holds what was found.
func Named(proc, name string, uid uint32, in slurm.Owner) ([]OfJob, error) {
	return find(proc, uid, in, func(st stat, _ folder) bool { return st.name == name })
}

// Using lists a job's processes that have a GPU's device node below dev (/dev) open, in order of PID. An open descriptor
// proves a holder, not memory. With an error the list holds what was found.
func Using(proc, dev string, uid uint32, in slurm.Owner) ([]OfJob, error) {
	r, links := newReader(), maxLinks
	here := place{dev, func() bool { return false }}
	return find(proc, uid, in, func(_ stat, f folder) bool {
		var open held
		// what cannot be read, such as another user's program, uses none as far as can be told
		_ = r.descriptors(f, func() bool { links--; return links >= 0 }, func(target []byte) { open.add(target, here) })
		return len(open.Minors) > 0
	})
}

func find(proc string, uid uint32, in slurm.Owner, fits func(stat, folder) bool) (found []OfJob, err error) {
	pids, err := listPIDs(proc)
	for _, pid := range pids {
		f, err := openFolder(proc, pid)
		if err != nil {
			continue // ended
		}
		if st, err := f.stat(); err == nil {
			if asked := f.ask(st.state); fits(st, asked) && asked.of(uid, in) {
				found = append(found, OfJob{pid, st.name})
			}
		}
		f.close()
	}
	return found, err
}

// of reports a process of the job that is not Slurm's own.
func (f folder) of(uid uint32, in slurm.Owner) bool {
	text, err := f.text("cgroup", maxCgroup)
	owner := slurm.OwnerOfCgroup(text)
	switch {
	case err != nil || owner.Conflict != "" || owner.Daemon:
		return false
	case owner.Found():
		return owner.SLUID != "" && owner.SLUID == in.SLUID || owner.ID != 0 && owner.ID == in.ID
	case in.ID == 0:
		return false
	}
	own, _, err := f.status()
	return err == nil && own == uid && f.environment() == in.ID
}

// listPIDs lists the processes but the caller, sorted; with an error only the first maxProcesses of them.
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
		err = fmt.Errorf("more than %d processes: %w", maxProcesses, errPartial)
	}
	return pids, err
}
