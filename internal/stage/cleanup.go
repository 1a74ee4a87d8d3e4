package stage

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/operation"
	"bookend/internal/session"
)

// cleanWatch is the time to see that the GPU is clean afterwards: teardown takes 0.1 to 0.4 s (measured). Where
// something stays and there is no time to see that, what was found before counts.
const cleanWatch = 1500 * time.Millisecond

// cleanUp ends what a cgroup proved to be the ended job's, where the admin wants that, and looks again: what is said of
// the GPUs is what is there then.
func cleanUp(d *session.Driver, c judge.Case) judge.Case {
	if !mayCleanUp(c) {
		return c
	}
	targets := finding.Proven(judge.Compared(c.Scene(c.Seen.Side)), c.Job)
	if len(targets) == 0 {
		return c
	}
	cleaned := judge.Cleaned{First: c.Seen.Side}
	did, ended := endAll(d, c.Seen, targets)
	if cleaned.Looked = ended; ended {
		cleaned.After, c.Seen.Cards = d.Look(c, c.Seen.Cards)
		if c.Seen.Looks = d.Looks(); len(cleaned.After.Snapshot.Readings) > 0 {
			c.Seen.Side = cleaned.After
		}
	}
	cleaned.Did = append(did, d.Take()...)
	c.Cleaned = &cleaned
	return c
}

// mayCleanUp reports whether anything may be ended. Clean-up is for the one epilog of a run that slurmd itself runs,
// where an admin wants it.
func mayCleanUp(c judge.Case) bool {
	return c.Config.CleanUp.Enabled && !c.InJob && !c.Past.Again && !c.Past.Second
}

// endAll says what was done, and whether a process may have ended.
func endAll(d *session.Driver, seen judge.Seen, targets []finding.Holder) (did []finding.Finding, ended bool) {
	grace := time.Duration(d.Config.CleanUp.Grace)
	need := grace + 2*config.KillWait + cleanWatch
	if d.Left(need, d.Reserve()) < need {
		return append(did, finding.Unsure(code.Ended, "no time left to end the job's processes")), false
	}
	var processes []attrib.Process
	for _, t := range targets {
		processes = append(processes, t.Process)
	}
	results, err := d.CleanUp(processes, grace, grace+2*config.KillWait)
	if err != nil {
		return nil, true
	}
	for i, result := range results {
		did = append(did, onCard(outcome(targets[i], result), seen))
		ended = ended || result.Outcome != finding.Refused
	}
	return did, ended
}

// onCard adds the GPU that a process was listed on. One that only had a GPU open is on none.
func onCard(f finding.Finding, seen judge.Seen) finding.Finding {
	for _, c := range seen.Cards {
		r, _ := seen.Side.Snapshot.Reading(c.Device.ID)
		if slices.ContainsFunc(r.Processes, func(p gpu.Process) bool { return p.PID == f.Holder.PID }) {
			f.GPU, f.Index = c.Device.ID, &c.Index
			break
		}
	}
	return f
}

// outcome says what became of one process.
func outcome(h finding.Holder, r operation.Result) finding.Finding {
	f := finding.Finding{
		Code: code.Ended, Bytes: h.Memory, Holder: &h, Owner: h.Owner, Ended: r.Outcome,
		Expected: "a job that ends its own processes",
		Observed: fmt.Sprintf("process %d: %s", r.PID, r.Outcome.Text()),
	}
	if r.Why != "" {
		f.Observed += ": " + r.Why
	}
	return f
}
