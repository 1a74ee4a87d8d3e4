package compare

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// holder is the owner of a process that may hold memory, and when that process started.
type holder struct {
	owner attribution.Attribution
	start time.Duration
}

// search adds the processes that may hold what f is about, and a doubt for each reason against certainty: a candidate
// of a live job or of unknown owner, or an incomplete search. It returns the candidates' owners.
func (v view) search(f *record.Finding, may func(record.Holding) bool, class []record.Class) (holders []holder) {
	scan := v.in.Now.Scan
	if scan == nil {
		f.AddDoubt("no one searched for its holder: a live job's process may have it")
		return nil
	}
	if scan.Partial != "" {
		f.AddDoubt("the search for its holder is incomplete: %s", scan.Partial)
	}
	f.Searched = scan.Partial == ""
	for _, p := range scan.Unread { // any of them may hold it
		o := v.in.Decide(p, v.device.ID)
		f.Searched = f.Searched && o.Kind == attribution.ThisJob
		if !v.in.leftBehind(o) || len(v.against(p, o, true)) > 0 {
			f.AddDoubt("not every process was looked into for its holder: process %d: %s",
				p.PID, cmp.Or(p.Why, p.EnvUnknown))
		}
	}
	for _, h := range scan.Holdings {
		if !may(h) {
			continue
		}
		o := v.in.Decide(h.Process, v.device.ID)
		candidate := record.Holder{Process: h.Process, Memory: gpu.Unknown("a descriptor proves a holder, not bytes"),
			Classes: slices.Concat(v.in.orphan(o), class, classes(h.Process)), Open: h.Open()}
		if !o.Ambiguous() {
			candidate.Owner = o.Blamed()
		}
		f.Candidates = append(f.Candidates, candidate)
		holders = append(holders, holder{o, h.Start})
		for _, why := range v.against(h.Process, o, true) {
			f.AddDoubt("process %d may hold it: %s", h.PID, why)
		}
	}
	return holders
}

// against returns why a process that holds a GPU's memory, or may hold it as a candidate, does not prove the GPU
// unusable. If its job ended while the GPU was sampled, the process had less time to end than the samples took.
func (v view) against(p record.Process, o attribution.Attribution, candidate bool) []string {
	began := v.in.Now.Snapshot.At - v.curve.Span
	// At a start the driver lists what root's process holds, so that process does not excuse the job before.
	mayBeService := (candidate || v.in.ending()) && o.Kind != attribution.ThisJob && (p.UID == 0 || p.OfSystem())
	return reasons(
		doubt{o.Kind == attribution.LiveJob, "it is a live job's"},
		doubt{o.Kind == attribution.CannotTell, "its owner could not be told: " + o.Why},
		doubt{o.Unseen, fmt.Sprintf("no one saw the end of its job %d", o.Job)},
		doubt{mayBeService, "it is root's or the system's, and may be a service of this node"},
		doubt{o.Rival != 0, fmt.Sprintf("job %d could own it as well", o.Rival)},
		doubt{p.DeviceUnknown != "" && !v.in.leftBehind(o),
			"whether it has a GPU open could not be read: " + p.DeviceUnknown},
		doubt{v.in.ends(p, began), "it is ending, and may be gone in a moment"},
		doubt{max(o.Ended, o.OtherEnd) > began && o.Kind != attribution.LiveJob,
			"its job ended while the GPU was watched"},
	)
}

// ends reports whether a process is ending, which excuses it only once: if an earlier hook saw it ending, it hangs. No
// other state counts: a process in state D may stay in the kernel for days, and can choose to.
func (s Input) ends(p record.Process, began time.Duration) bool {
	seen, before := s.Book.Ending[record.Instance{PID: p.PID, Start: p.Start}]
	return p.State == "X" && !(before && seen < began)
}

// mayHoldExported selects what may keep memory without a listed process: processes that have the driver open without a
// known reason. nvidiactl names no GPU; a process that has only another GPU open has that as its reason.
func (v view) mayHoldExported() func(record.Holding) bool {
	listed := map[int]bool{} // on any sampled GPU
	for _, r := range slices.Concat(v.in.Now.Snapshot.Readings, v.in.Now.Neighbours.Readings) {
		for _, p := range r.Processes {
			listed[p.PID] = true
		}
	}
	return func(h record.Holding) bool { return h.MayHold(v.device) && !listed[h.PID] && !v.in.ofNode(h) }
}

// ofNode reports whether a process has the driver open as part of the node: a service, at an end only one older than
// the job, when the GPU held nothing of it, or root's MPS daemon, measured to have a GPU open without memory on it. Any
// user can run a program under its name, and as root in a container: the name alone excuses nothing.
func (s Input) ofNode(h record.Holding) bool {
	daemon := h.OfMPS() && h.UID == 0 && !h.Cgroup.Found() && !h.Apart() || SiteMPS(h.Process, 0, s.MPSUIDs)
	return daemon || h.OfSystem() && (!s.ending() || h.Start < s.Book.Self.Start)
}

func lists(r gpu.Reading, pid int) bool {
	_, listed := r.Process(pid)
	return listed
}

// opener names a service of the node that has the GPU open, empty if none was found.
func (s Input) opener(d gpu.Device) string {
	for _, h := range s.Now.Holdings() {
		if d.Minor != nil && h.OfSystem() && h.Has(d) {
			return h.Service
		}
	}
	return ""
}
