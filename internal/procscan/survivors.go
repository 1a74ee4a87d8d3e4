package procscan

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/leftover"
	"bookend/internal/slurm"
)

// Owned lists a user's processes by the owners of the directories in /proc. It needs no child: for these the kernel
// asks the process for nothing and waits for no lock.
func Owned(proc string, uid uint32) (pids []int, err error) {
	all, err := listPIDs(proc)
	dir, cannot := unix.Open(proc, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	defer unix.Close(dir)
	for _, pid := range all {
		var st unix.Stat_t
		if unix.Fstatat(dir, strconv.Itoa(pid), &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Uid == uid {
			pids = append(pids, pid)
		}
	}
	return pids, errors.Join(err, cannot)
}

// Survivors reads processes, as far as they are the user's and go on. With an error nothing is known: one that could
// not be read may be of a job that goes on.
var Survivors = child.NewOperation("survivors", SurvivorRequest.survivors)

// SurvivorRequest asks for those of the processes.
type SurvivorRequest struct {
	Proc      string   `json:"proc"`
	UID       uint32   `json:"uid"`
	PIDs      []int    `json:"pids"`
	Variables []string `json:"variables"` // the names of those that matter in an environment
}

func (r SurvivorRequest) survivors() (all []leftover.Survivor, err error) {
	for _, pid := range r.PIDs {
		s, err := r.read(pid)
		if err != nil && !gone(err) {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		if err == nil {
			all = append(all, s)
		}
	}
	return all, onHost(r.Proc)
}

func (r SurvivorRequest) read(pid int) (s leftover.Survivor, err error) {
	f, err := openProcDir(r.Proc, pid)
	if err != nil {
		return s, err
	}
	defer f.close()
	first, err := f.stat()
	f, answer := f.ask(first)
	uid, apart, errStatus := f.status()
	if err == nil && errStatus == nil && (uid != r.UID || !goesOn(answer)) {
		return s, unix.ESRCH
	}
	cgroups, errCgroups := f.text("cgroup", maxCgroup)
	s = leftover.Survivor{PID: pid, Parent: first.Parent, Start: startOf(first), Name: first.Name,
		Terminal: first.Terminal, Apart: apart, Cgroups: cgroups, Environ: map[string]string{}}
	err = errors.Join(err, errStatus, errCgroups)
	if err != nil || slurm.OwnerOfCgroup(cgroups).Found() { // that explains it; to read more could hang
		return s, err
	}
	s.Arguments, _ = f.text("cmdline", maxTitle) // only for advice
	environ, err := f.environ()
	for _, name := range r.Variables {
		s.Environ[name] = variable(environ, name)
	}
	return s, err
}
