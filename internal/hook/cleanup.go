package hook

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/observe"
	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// cleanUp ends what a cgroup proved to be the ended job's, if the admin enabled that, and samples the GPUs again.
func cleanUp(a *node.Access, c judge.Case) judge.Case {
	if !mayCleanUp(c) {
		return c
	}
	targets := judge.Proven(c)
	if len(targets) == 0 {
		return c
	}
	cleaned := judge.Cleaned{First: c.Seen.Side}
	cleaned.Did, cleaned.Looked = endAll(a, c.Seen, targets)
	if cleaned.Looked {
		seen, after, faults := observe.AfterCleanUp(a, c)
		c, cleaned.After = seen, after
		if len(after.Snapshot.Readings) > 0 {
			c.Seen.Side = after
		}
		cleaned.Did = append(cleaned.Did, faults...)
	}
	c.Cleaned = &cleaned
	return c
}

// mayCleanUp reports whether processes may be ended: only by the one epilog of a run, started by slurmd itself.
func mayCleanUp(c judge.Case) bool {
	return c.Config.CleanUp.Enabled && !c.InJob && c.Past.Turn.Leads()
}

func endAll(a *node.Access, seen judge.Seen, targets []record.Holder) (did []record.Finding, ended bool) {
	// The time to see that the GPU is clean afterwards: teardown takes 0.1 to 0.4 s (measured).
	const cleanWatch = 1500 * time.Millisecond
	grace := time.Duration(a.Config.CleanUp.Grace)
	limit := grace + 2*config.KillWait
	if need := limit + cleanWatch; a.Deadline.Left(need, a.Reserve()) < need {
		return append(did, record.Unsure(catalog.Ended, "no time left to end the job's processes")), false
	}
	var processes []record.Process
	for _, t := range targets {
		processes = append(processes, t.Process)
	}
	results, err := procscan.Cleanup.Ask(procscan.CleanupRequest{
		Proc: a.Config.Paths.Proc, Processes: processes, Grace: grace,
		Owner: slurm.Owner{ID: a.Job.ID, SLUID: a.Job.SLUID, Node: a.Job.Node},
	}, a.Deadline.Left(limit, a.Reserve()))
	if err != nil { // it is not known what became of them
		return slices.Concat(a.AbandonedReader(err, nil), a.ChildFault(procscan.Cleanup.Name, err)), true
	}
	for i, result := range results {
		did = append(did, outcome(seen, targets[i], result))
		ended = ended || result.Outcome != record.Refused
	}
	return did, ended
}

// outcome returns the finding for one process, with its GPU. A process that only had a GPU open is on none.
func outcome(seen judge.Seen, h record.Holder, result procscan.CleanupResult) record.Finding {
	f := record.Finding{
		Code: catalog.Ended, Bytes: h.Memory, Holder: &h, Owner: h.Owner, Ended: result.Outcome,
		Expected: "a job that ends its own processes",
		Observed: fmt.Sprintf("process %d: %s", result.PID, result.Outcome.Text()),
	}
	if result.Why != "" {
		f.Observed += ": " + result.Why
	}
	for _, c := range seen.Cards {
		reading, _ := seen.Side.Snapshot.Reading(c.Device.ID)
		if slices.ContainsFunc(reading.Processes, func(p gpu.Process) bool { return p.PID == h.PID }) {
			f.GPU, f.Index = c.Device.ID, &c.Index
			break
		}
	}
	return f
}
