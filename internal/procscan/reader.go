package procscan

import (
	"errors"
	"time"

	"bookend/internal/child"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// The names of the operations that read other processes' /proc, in the records of those that are stuck.
const (
	ProcessesOp = "processes"
	HoldersOp   = "holders"
)

// Reader reads other processes' /proc in a child, but not the memory of those in Skip, at which earlier readers hang.
type Reader struct {
	Proc    string            `json:"proc"`
	Dev     string            `json:"dev"`
	PIDs    []int             `json:"pids,omitempty"`
	Skip    []record.Instance `json:"skip,omitempty"`
	Timeout time.Duration     `json:"timeout_ns"` // until the child is killed
}

// Result is what a reader found, and the processes at which it hangs.
type Result struct {
	Processes []record.Process
	Scan      record.Scan
	Hung      []record.Instance
}

var readProcesses = child.NewOperation(ProcessesOp, func(r Reader) ([]record.Process, error) {
	const longest = time.Second // each takes less than a millisecond, unless it hangs
	budget := min(longest, max(r.Timeout/2, r.Timeout-reserve))
	return Processes(r.Proc, r.Dev, r.PIDs, budget, r.Skip...), nil
})

var readHolders = child.NewOperation(HoldersOp, func(r Reader) (record.Scan, error) {
	return Scan(r.Proc, r.Dev, r.Timeout-reserve, r.Skip...), nil
})

// reserve is the time that a reader has to send its results, before its child would be killed.
const reserve = 200 * time.Millisecond

// Processes reads what /proc shows of processes that a driver lists. As with child.Operation.Ask, the result is valid
// also if the child has answered but cannot be killed.
func (r Reader) Processes(pids []int) (Result, error) {
	r.PIDs = pids
	found, err := readProcesses.Ask(r, r.Timeout)
	return Result{Processes: found, Hung: hanging(found)}, err
}

// Holders searches all of /proc for processes that have a GPU open. Its result is valid as that of Processes.
func (r Reader) Holders() (Result, error) {
	scan, err := readHolders.Ask(r, r.Timeout)
	return Result{Scan: scan, Hung: scan.Hung}, err
}

// hanging returns those of the processes whose /proc did not answer.
func hanging(all []record.Process) (at []record.Instance) {
	for _, p := range all {
		if p.Hangs {
			at = append(at, record.Instance{PID: p.PID, Start: p.Start})
		}
	}
	return at
}

// JobRequest asks for processes of a job on this node.
type JobRequest struct {
	Proc  string      `json:"proc"`
	Dev   string      `json:"dev"`
	UID   uint32      `json:"uid"`
	Owner slurm.Owner `json:"owner"`
	// Since is when the job began (CLOCK_BOOTTIME), if the request depends on it.
	Since time.Duration `json:"since_ns,omitempty"`
}

// Elsewhere finds a process of the user that is not in the job's cgroup, 0 if there is none.
var Elsewhere = child.NewOperation("elsewhere", elsewhere)

func elsewhere(r JobRequest) (found int, err error) {
	err = errors.Join(onHost(r.Proc), eachProcess(r.Proc, func(pid int, _ child.Stat, f procDir) {
		uid, _, unread := f.status()
		ofJob := func() bool {
			text, _ := f.text("cgroup", maxCgroup) // without it, the process counts
			return slurm.OwnerOfCgroup(text).Same(r.Owner)
		}
		if !gone(unread) && (unread != nil || uid == r.UID && !ofJob()) {
			found = pid
		}
	}))
	return found, err
}

// OpenDevices finds, as the user, those that have a GPU open. What was found before an error is returned without it.
var OpenDevices = child.NewOperation("open", openDevices)

func openDevices(r JobRequest) ([]OfJob, error) {
	links := maxLinks
	here := place{r.Dev, func() bool { return false }}
	using, err := find(r.Proc, func(_ child.Stat, f procDir) bool {
		var open held
		if f.of(r.UID, r.Owner) { // what cannot be read, such as another user's process, counts as using none
			more := func() bool { links--; return links >= 0 }
			_ = f.descriptors(more, func(target []byte) { open.add(target, here) })
		}
		return len(open.Minors)+len(open.Renders) > 0
	})
	if len(using) > 0 {
		err = nil
	}
	return using, err
}
