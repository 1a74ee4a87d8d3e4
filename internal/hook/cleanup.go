package hook

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/procscan"
	"bookend/internal/record"
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
		c = node.ObserveAgain(a, c)
		cleaned.After = c.Seen.Side
		if len(cleaned.After.Snapshot.Readings) == 0 {
			c.Seen.Side = cleaned.First
		}
	}
	c.Cleaned = &cleaned
	return c
}

// mayCleanUp reports whether processes may be ended: only by the one epilog of a run, started by slurmd itself.
func mayCleanUp(c judge.Case) bool {
	return c.Config.CleanUp.Enabled && !c.InJob && c.Past.Turn.Leads()
}

func endAll(a *node.Access, seen judge.Seen, targets []record.Holder) (did []record.Finding, ended bool) {
	request := procscan.CleanupRequest{
		Proc: a.Config.Paths.Proc, Grace: time.Duration(a.Config.CleanUp.Grace), Wait: a.Config.CleanUp.KillWait(),
		Owner: a.Job.OwnerHere(),
	}
	for _, t := range targets {
		request.Processes = append(request.Processes, t.Process)
	}
	// The time to see that the GPU is clean afterwards: teardown takes 0.1 to 0.4 s (measured).
	const cleanWatch = 1500 * time.Millisecond
	if need := request.Limit() + cleanWatch; a.Deadline.Left(need, a.Reserve()) < need {
		return append(did, record.Unsure(catalog.Ended, "no time left to end the job's processes")), false
	}
	results, err := procscan.Cleanup.Ask(request, a.Deadline.Left(request.Limit(), a.Reserve()))
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
	f := record.Finding{Code: catalog.Ended, Bytes: h.Memory, Holder: &h, Owner: h.Owner, Ended: result.Outcome,
		Expected: "a job that ends its own processes",
		Observed: fmt.Sprintf("process %d: %s", result.PID, result.Outcome.Text())}
	if result.Why != "" {
		f.Observed += ": " + result.Why
	}
	for _, c := range seen.Cards {
		reading, _ := seen.Side.Snapshot.Reading(c.Device.ID)
		if _, lists := reading.Process(h.PID); lists {
			f.GPU, f.Index = c.Device.ID, &c.Index
			break
		}
	}
	return f
}
