package holders

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"bookend/internal/slurm"
)

// maxProcesses bounds one search: it runs at the start of every step, in a second.
const maxProcesses = 1 << 16

// errPartial says that a search stopped at its bound: it may have missed some.
var errPartial = errors.New("not every process was looked into")

// Named lists a job's processes of one name (comm), which any process may give itself, in order of PID, as far as a
// program with its user's rights can tell. A process is the job's when its cgroup names in. One whose cgroup names no job
// is, when it runs under uid and its environment names in.ID: by uid alone it could be of any job of that user. With an
// error the list holds what was found.
func Named(proc, name string, uid uint32, in slurm.Owner) (found []int, err error) {
	pids, err := listPIDs(proc)
	for _, pid := range pids {
		f, err := openFolder(proc, pid)
		if err != nil {
			continue // ended
		}
		if st, err := f.stat(); err == nil && st.name == name && f.ask(st.state).of(uid, in) {
			found = append(found, pid)
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
