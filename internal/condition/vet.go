package condition

import (
	"cmp"
	"fmt"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Vet returns whether a job's user would do better on another node, and why, by one sample of GPUs that the job has to
// itself, with the hooks' limits. A user does not know what the node's services use, and cannot see every process.
func Vet(own record.Owner, l record.Limits, now gpu.Snapshot, health []gpu.Health, who map[int]record.Process) (
	avoid record.Answer, why string,
) {
	avoid = record.No
	for _, r := range now.Readings {
		answer, text := memoryOfOthers(r, l)
		for _, p := range r.Processes {
			facts, read := who[p.PID]
			a, what := processOfOthers(facts, own)
			switch {
			case !read:
				a = record.CannotTell
			case a == record.No && !facts.Cgroup.Same(own.Slurm()) && p.Memory.Bytes > record.MaxBaseline:
				a, what = record.CannotTell, "is the system's, with "+gpu.Size(p.Memory.Bytes)
			}
			if a.Outweighs(answer) {
				answer, text = a, fmt.Sprintf("process %d %s", p.PID, what)
			}
		}
		for _, f := range Judge(Input{Cards: []record.Assigned{{Device: r.Device}}, Now: health}) {
			t := f.Code.Traits()
			harms := t.Exit > 0 || t.Unusable || t.Fault != ""
			if harms && record.CannotTell.Outweighs(answer) {
				answer, text = record.CannotTell, fmt.Sprintf("%s (%s)", f.Observed, f.Code)
			}
		}
		if untried := gpu.VendorOf(r.Device).Untried; untried != "" && answer == record.Yes {
			answer, text = record.CannotTell, untried
		}
		if answer.Outweighs(avoid) {
			avoid, why = answer, fmt.Sprintf("GPU %s: %s", r.Device.ID, text)
		}
	}
	return avoid, why
}

func memoryOfOthers(r gpu.Reading, l record.Limits) (avoid record.Answer, why string) {
	rest := record.Unexplained(r, l, record.Baseline{})
	if r.Memory.Unjudged != "" {
		rest = gpu.Bytes(0) // processes alone count, as for the hooks
	}
	unknown := cmp.Or(r.ProcessesUnknown, rest.Unknown)
	switch text := gpu.Size(rest.Bytes) + " in use without a process"; {
	case unknown != "":
		return record.CannotTell, unknown
	case rest.Bytes >= l.Drain:
		return record.Yes, text
	case rest.Bytes >= l.Report:
		return record.CannotTell, text + ", perhaps by a service"
	}
	return record.No, ""
}

// processOfOthers reports whether a process is neither the job's nor the system's.
func processOfOthers(p record.Process, own record.Owner) (avoid record.Answer, why string) {
	switch {
	case p.Cgroup.Same(own.Slurm()), p.Why == "" && !p.Gone && !p.Apart() && (p.UID == 0 || p.Service != ""):
		return record.No, ""
	case p.Why != "" || p.Gone || p.Cgroup.Conflict != "" || !p.Cgroup.Found() && (p.Apart() || p.UID == own.UID):
		return record.CannotTell, "may be one of your job"
	}
	return record.Yes, "is not of your job"
}
