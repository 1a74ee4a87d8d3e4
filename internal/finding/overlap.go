package finding

import (
	"fmt"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/gpu"
)

// given reports whether Slurm gave the card to the job that owns a process as well: suspended and gang-scheduled jobs
// share a card by right.
func (s Scene) given(o attrib.Owner, id gpu.ID) bool {
	for _, r := range s.Others {
		if r.Live() && r.Job == o.Job && (r.SLUID == o.SLUID || r.SLUID == "" || o.SLUID == "") && r.MayHold(id) {
			return true
		}
	}
	return false
}

// Trespasses names processes of live jobs on the node's other cards that their job was not given. Only a cgroup, now
// or in a sighting, proves a job here; the cards are not this job's, so nothing of it decides a verdict.
func Trespasses(s Scene) []Finding {
	if s.Now.Neighbours == nil || s.Doubt != "" {
		return nil
	}
	own := map[gpu.ID]bool{}
	for _, c := range s.Cards {
		own[c.Device.ID], own[c.Device.Parent] = true, true
	}
	var all []Finding
	for _, r := range s.Now.Neighbours.Readings {
		if own[r.Device.ID] || own[r.Device.Parent] && r.Device.Parent != "" || r.ProcessesUnknown != "" {
			continue // siblings of one's own MIG instance belong to others by right
		}
		for _, p := range r.Processes {
			if f, is := s.trespass(r.Device.ID, p); is {
				all = append(all, f)
			}
		}
	}
	return all
}

func (s Scene) trespass(id gpu.ID, p gpu.Process) (Finding, bool) {
	facts, read := s.Now.Processes[p.PID]
	if !read || facts.Gone {
		return Finding{}, false
	}
	o := attrib.Decide(facts, s.attribution(id))
	if o.Level != attrib.ByCgroup && o.Level != attrib.BySighting {
		return Finding{}, false
	}
	f := Finding{
		Code: code.Trespass, GPU: id, Bytes: p.Memory, Holder: listedHolder(p, facts),
		Owner:    asOwner(o),
		Expected: "processes on none but their job's own GPUs",
	}
	switch {
	case o.Whose == attrib.Unknown:
		f.Unknown = o.Why + ": a job without GPUs, or one that began before Bookend"
		f.Observed = fmt.Sprintf("process %d of a job without a record here", p.PID)
	case o.Whose == attrib.LiveJob && !s.given(o, id), o.Whose == attrib.ThisJob && !s.Self.MayHold(id) && !s.ending():
		f.Observed = fmt.Sprintf("process %d of job %d, which was not given this GPU", p.PID, o.Job)
	default:
		return Finding{}, false // what an ended job left there is that card's own hooks' to find
	}
	return f, true
}
