package stage

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/cleanup"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/holders"
	"bookend/internal/slurm"
)

// cleanupRequest crosses the pipe of opCleanup: the processes to end, each with the job that it was proven to be of.
type cleanupRequest struct {
	Proc      string           `json:"proc"`
	Processes []attrib.Process `json:"processes"`
	Owner     slurm.Owner      `json:"owner"`
	Grace     time.Duration    `json:"grace_ns"`
}

var serveCleanup = served(func(r cleanupRequest) ([]cleanup.Result, error) {
	results := make([]cleanup.Result, 0, len(r.Processes))
	return append(results, cleanup.End(cleanup.Order{
		Proc: r.Proc, Grace: r.Grace, Owned: r.proves,
		Read: func(pid int) attrib.Process {
			return holders.Processes(r.Proc, []int{pid}, pinnedRead, hanging(r.Processes)...)[0]
		},
	}, r.Processes)...), nil
})

// pinnedRead is the longest wait for one process to be read again: it takes less than a millisecond unless it hangs, and
// one that does is left alone.
const pinnedRead = 500 * time.Millisecond

// proves repeats the proof on what /proc says now. A process that a sighting proved shows no job any more, and is
// known by its start time; one whose cgroup proved it must be in that job's still.
func (r cleanupRequest) proves(now attrib.Process) bool {
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

// cleanUp ends what a cgroup proved to be the ended job's, where the admin wants that. It returns what it did, and
// which processes may have ended.
func (h *hook) cleanUp(found []finding.Finding) (did []finding.Finding, ended map[int]bool) {
	targets := finding.Proven(found, h.job)
	grace := time.Duration(h.cfg.CleanUp.Grace)
	if !h.cfg.CleanUp.Enabled || h.inJob || h.again || h.second || len(targets) == 0 {
		return nil, nil
	}
	need := grace + 2*config.KillWait + cleanWatch
	if h.left(need, h.reserve()) < need {
		return []finding.Finding{{Code: code.Ended, Unknown: "no time left to end the job's processes"}}, nil
	}
	request := cleanupRequest{Proc: h.cfg.Paths.Proc, Owner: slurm.Owner{ID: h.job.ID, SLUID: h.job.SLUID}, Grace: grace}
	ended = map[int]bool{}
	for _, t := range targets {
		request.Processes = append(request.Processes, t.Process)
		ended[t.PID] = true
	}
	results, err := ask[[]cleanup.Result](opCleanup, request, h.left(grace+2*config.KillWait, h.reserve()))
	if err != nil {
		h.childFault(opCleanup, err)
		return nil, ended
	}
	for i, r := range results {
		did = append(did, h.onCard(outcome(targets[i], r)))
		if r.Outcome == finding.Refused {
			delete(ended, targets[i].PID)
		}
	}
	return did, ended
}

// cleanWatch is the time to see that the card is clean afterwards: teardown takes 0.1 to 0.4 s (measured). Where
// something stays and there is no time to see that, what was found before counts.
const cleanWatch = 1500 * time.Millisecond

// onCard adds the card that a process was listed on. One that only had a card open is on none.
func (h *hook) onCard(f finding.Finding) finding.Finding {
	for _, c := range h.cards {
		r, _ := h.now.Snapshot.Reading(c.Device.ID)
		if slices.ContainsFunc(r.Processes, func(p gpu.Process) bool { return p.PID == f.Holder.PID }) {
			f.GPU, f.Index = c.Device.ID, &c.Index
			break
		}
	}
	return f
}

// outcome says what became of one process.
func outcome(h finding.Holder, r cleanup.Result) finding.Finding {
	f := finding.Finding{
		Code: code.Ended, Bytes: h.Memory, Holder: &h, Owner: h.Owner, Ended: r.Outcome, Expected: "a job that ends its own processes",
		Observed: fmt.Sprintf("process %d: %s", r.PID, r.Outcome.Text()),
	}
	if r.Why != "" {
		f.Observed += ": " + r.Why
	}
	return f
}
