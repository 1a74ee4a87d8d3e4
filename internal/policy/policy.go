// Package policy turns findings into actions, a verdict and an exit code.
package policy

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

var strength = map[config.Action]int{config.Ignore: 0, config.Note: 1, config.Warn: 2, config.Drain: 3}

// Decide turns the findings of a job's hook into one verdict and one exit code; the strongest action decides. A drain
// needs a finding without doubts, a mode that may drain, and no guard against it.
func Decide(c config.Config, phase slurm.Context, job slurm.Job, found []record.Finding) record.Verdict {
	if own := c.Policy.Partitions[job.Partition]; own.Mode != "" {
		c.Mode = own.Mode
	}
	v := record.Verdict{Action: config.Ignore}
	for _, f := range found {
		j := judge(c, phase, job.Partition, f)
		v.Judged = append(v.Judged, j)
		if strength[j.Action] > strength[v.Action] {
			v.Action, v.Code = j.Action, f.Code
		}
	}
	most := c.Drain.MaxRestarts
	switch {
	case v.Action != config.Drain:
	case c.Mode != config.Enforce:
		v.Action, v.Held = config.Warn, "observe mode"
	case phase == slurm.HealthCheck:
	case phase == slurm.Prolog && most > 0 && job.Restarts >= most:
		v.Action = config.Warn
		v.Held = fmt.Sprintf("the job was restarted %d times: another drained node would not help it", job.Restarts)
	default:
		v.Exit = catalog.Exit(v.Code)
	}
	if phase == slurm.HealthCheck {
		v.Exit = checkExit(found)
	}
	return v
}

// Spare returns the verdict of an epilog where its exit status may start the job again at once (expedited requeue).
// Only a fault of the GPU or its driver within the job justifies that. For any other drain, as for a leftover, scontrol
// drains the node and the hook exits 0: a job that fails by its own error would be restarted without end.
func Spare(v record.Verdict, found []record.Finding) record.Verdict {
	v.ByScontrol = v.Exit != 0
	for i, f := range found {
		if v.Drains(i) && f.Code.Traits().Fault != "" && !f.Earlier {
			v.ByScontrol = false
		}
	}
	return v
}

func judge(c config.Config, phase slurm.Context, partition string, f record.Finding) record.Judged {
	want, mayDrain, next := c.Action(phase, partition, f.Code), true, "job"
	if phase == slurm.HealthCheck {
		next = "health check"
		want, mayDrain = ofCheck(c, f, want)
	}
	entry, _ := catalog.Lookup(f.Code)
	warn := func(why string) record.Judged { return record.Judged{Action: config.Warn, Why: why} }
	switch {
	case f.NoteOnly != "" && want != config.Ignore:
		return record.Judged{Action: config.Note, Why: f.NoteOnly}
	case entry.Scope == catalog.Own && want != config.Ignore && want != config.Note && phase == slurm.HealthCheck:
		return warn("")
	case entry.Scope == catalog.Own && want != config.Ignore && want != config.Note:
		return record.Judged{Action: c.OnOwnError}
	case want == config.Repeat && !f.Repeated:
		return warn("it drains only if the next " + next + " meets it too")
	case want != config.Drain && want != config.Repeat:
		return record.Judged{Action: want}
	case !mayDrain:
		return warn("the health check never drains for this")
	case entry.NeverDrains() != "":
		return warn(entry.NeverDrains())
	case f.Unknown != "":
		return warn("unknown: " + f.Unknown)
	case len(f.Doubts) > 0:
		return warn(f.Doubts[0])
	}
	return record.Judged{Action: config.Drain}
}

// ofCheck returns what a health check does with a finding for which its policy wants that, and whether it may drain an
// idle node for it: for an error that stands, and for the site's own check if an earlier health check got the same.
func ofCheck(c config.Config, f record.Finding, want config.Action) (action config.Action, mayDrain bool) {
	if stands(c, f) {
		return config.Drain, true
	}
	mayDrain = f.Code == catalog.External && want == config.Drain
	for _, p := range c.Policy.Partitions { // the node may be in each of them
		mayDrain = mayDrain && p.Mode != config.Observe
	}
	if mayDrain && !f.Repeated && f.Unknown == "" && len(f.Doubts) == 0 {
		return config.Repeat, true
	}
	return want, mayDrain
}

// stands reports whether a health check may drain an idle node for a finding: a GPU's fatal error that an earlier hook
// or check has seen too. It does not know the node's partitions: the end of a job in any of them must drain for it.
func stands(c config.Config, f record.Finding) bool {
	may := f.Code == catalog.XidFatal && f.Earlier && c.Policy.HealthCheck[f.Code] == ""
	for name, p := range c.Policy.Partitions {
		may = may && p.Mode != config.Observe && c.Action(slurm.Epilog, name, f.Code) == config.Drain
	}
	return may && c.Action(slurm.Epilog, "", f.Code) == config.Drain
}

// checkExit returns 0 unless the node was not checked: Slurm only logs it, and nothing else should act on it.
func checkExit(found []record.Finding) int {
	for _, e := range catalog.All() {
		met := func(f record.Finding) bool { return f.Code == e.Code && f.Unknown == "" }
		if e.Unchecked && slices.ContainsFunc(found, met) {
			return e.Exit
		}
	}
	return 0
}

// apart is how long a health check must have ended before a hook began: sooner, both may have met one hiccup.
const apart = 10 * time.Second

// MetLast reports whether the last other job that ended, on the finding's GPU if it has one, met the same finding, in
// the same epoch and before this job began: jobs that end together meet one hiccup. A second epilog is not a later end.
// A health check after that end counts as much. The hook began at that time (CLOCK_BOOTTIME).
func MetLast(runs []record.Run, check *record.Check, self record.Run, at time.Duration, f record.Finding) bool {
	last, ended := lastOf(runs, self, f)
	if self.Start == nil {
		return false
	}
	if check != nil && check.At > ended && MetByCheck(check, self, at, f) {
		return true
	}
	return last.Ends != nil && self.Start.At >= ended && self.Epoch.Continues(last.EpochOf(*last.Epilog())) &&
		met(last.Epilog().Findings, f)
}

// MetByCheck reports whether the last health check, nil for none, met the finding in the same epoch, and ended long
// enough before a hook that began at that time (CLOCK_BOOTTIME).
func MetByCheck(check *record.Check, self record.Run, at time.Duration, f record.Finding) bool {
	return check != nil && !check.Stopped && check.At+check.Took+apart <= at && self.Epoch.Continues(check.Epoch) &&
		met(check.Findings, f)
}

// lastOf returns the other run of this boot that ended last on the finding's GPU, with the time of that end.
func lastOf(runs []record.Run, self record.Run, f record.Finding) (last record.Run, ended time.Duration) {
	for _, r := range runs {
		end := r.Epilog()
		if end == nil || r.Job.ID == self.Job.ID || r.Epoch.OtherBoot(self.Epoch) || !given(r, f) {
			continue
		}
		if last.Ends == nil || end.At > ended {
			last, ended = r, end.At
		}
	}
	return last, ended
}

// given reports whether a run had the finding's GPU. One that was gone at its start is in its findings alone, and one
// without an id has only Slurm's index.
func given(r record.Run, f record.Finding) bool {
	entry, _ := catalog.Lookup(f.Code)
	numbered := func(d record.Assigned) bool { return f.Index != nil && d.Index == *f.Index }
	switch {
	case entry.Scope != catalog.Card || f.GPU == "" && f.Index == nil, met(r.Epilog().Findings, f):
		return true
	case f.GPU == "":
		return slices.ContainsFunc(r.Devices, numbered)
	}
	return r.Given(f.GPU)
}

func met(found []record.Finding, f record.Finding) bool {
	return slices.ContainsFunc(found, func(o record.Finding) bool {
		index := f.GPU != "" || f.Index == nil || o.Index != nil && *o.Index == *f.Index
		return o.Code == f.Code && o.GPU == f.GPU && index && o.Unknown == "" && len(o.Doubts) == 0
	})
}
