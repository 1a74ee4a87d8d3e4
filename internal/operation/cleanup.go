package operation

import (
	"time"

	"bookend/internal/attrib"
	"bookend/internal/holders"
	"bookend/internal/slurm"
)

// CleanupRequest names the processes to end, and the job that each was proven to be of.
type CleanupRequest struct {
	Proc      string           `json:"proc"`
	Processes []attrib.Process `json:"processes"`
	Owner     slurm.Owner      `json:"owner"`
	Grace     time.Duration    `json:"grace_ns"`
}

// Cleanup ends processes that are proven to be the ended job's.
var Cleanup = Operation[CleanupRequest, []Result]{"cleanup", cleanUp}

func cleanUp(r CleanupRequest) ([]Result, error) {
	results := make([]Result, 0, len(r.Processes))
	return append(results, End(Order{
		Proc: r.Proc, Grace: r.Grace, Owned: r.proves,
		Read: func(pid int) attrib.Process {
			return holders.Processes(r.Proc, []int{pid}, pinnedRead, Hanging(r.Processes)...)[0]
		},
	}, r.Processes)...), nil
}

// pinnedRead is the longest wait for one process to be read again: it takes less than a millisecond unless it hangs,
// and one that does is left alone.
const pinnedRead = 500 * time.Millisecond

// proves repeats the proof on what /proc says now. A process that a sighting proved shows no job any more, and is
// known by its start time; one whose cgroup proved it must be in that job's still.
func (r CleanupRequest) proves(now attrib.Process) bool {
	if now.Why != "" || now.Cgroup.Conflict != "" {
		return false
	}
	for _, was := range r.Processes {
		if was.PID != now.PID || was.Start != now.Start {
			continue
		}
		if !now.Cgroup.Found() {
			return !was.Cgroup.Found()
		}
		if now.Cgroup.SLUID != "" && r.Owner.SLUID != "" {
			return now.Cgroup.SLUID == r.Owner.SLUID
		}
		return now.Cgroup.ID != 0 && now.Cgroup.ID == r.Owner.ID
	}
	return false
}
