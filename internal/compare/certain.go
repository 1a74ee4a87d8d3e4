package compare

import (
	"cmp"
	"fmt"
	"slices"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// doubts returns the reasons that keep any finding on this GPU from proving it unusable.
func (s Input) doubts(c record.Assigned) []string {
	return holding(
		doubt{c.Device.Parent != "",
			"it is a part of a GPU (MIG or partition): what its driver reports of one was never measured"},
		doubt{s.Doubt != "", s.Doubt},
		doubt{s.RunDoubt != "", s.RunDoubt},
		doubt{s.Unread[c.Device.ID] != "", s.Unread[c.Device.ID]},
		doubt{s.Shared != "", "this GPU may be shared: " + s.Shared},
		doubt{s.SharedUnknown != "", "whether this GPU is shared could not be told: " + s.SharedUnknown},
	)
}

type doubt struct {
	is   bool
	text string
}

func holding(all ...doubt) (texts []string) {
	for _, d := range all {
		if d.is {
			texts = append(texts, d.text)
		}
	}
	return texts
}

// certain adds the doubts that concern the GPU as a whole. Without a recorded clean start, with another job on the same
// GPU, or with little memory held, nothing proves that the next job cannot use it.
func (s Input) certain(found []record.Finding, id gpu.ID) []record.Finding {
	s.excuse(found)
	var more []string
	if s.ending() {
		more = s.startDoubts(id)
	}
	if !s.between() {
		more = append(more, s.shareDoubts(id)...)
	}
	if why := tooLittle(s.Limits, found); why != "" {
		more = append(more, why)
	}
	for i := range found {
		found[i].Doubts = append(found[i].Doubts, more...)
	}
	return found
}

// shareDoubts names other jobs that were given the GPU and may live: Slurm gives a suspended job's GPUs to others.
func (s Input) shareDoubts(id gpu.ID) (doubts []string) {
	for _, o := range s.Others {
		switch {
		case !o.MayHold(id):
		case o.Live():
			doubts = append(doubts, fmt.Sprintf("job %d was given the same GPU, or may have been", o.Job))
		case o.Unseen:
			doubts = append(doubts, fmt.Sprintf("job %d was given the same GPU, and no one saw its end", o.Job))
		}
	}
	return doubts
}

// tooLittle says why the memory that these findings hold for certain is not enough to drain for, empty if it is.
func tooLittle(l record.Limits, found []record.Finding) string {
	held, unknown := uint64(0), ""
	for _, f := range found {
		switch {
		case f.Unknown != "" || len(f.Doubts) > 0:
		case !f.Bytes.Known():
			unknown = "how much memory is held is unknown: " + f.Bytes.Unknown
		default:
			held += f.Bytes.Bytes
		}
	}
	if held >= l.Drain {
		return ""
	}
	return cmp.Or(unknown,
		fmt.Sprintf("%d MiB held for certain is less than the %d MiB that drain", held>>20, l.Drain>>20))
}

// excuse casts doubt on memory without a process if a live job's, root's or an unknown owner's process may hold it.
func (s Input) excuse(found []record.Finding) {
	for _, f := range found {
		if f.Holder == nil || f.Holder.Gone || len(f.Doubts) == 0 {
			continue
		}
		for i := range found {
			why := fmt.Sprintf("process %d on the same GPU may hold it", f.Holder.PID)
			if found[i].WithoutProcess() && !slices.Contains(found[i].Doubts, why) {
				found[i].Owner, found[i].Doubts = nil, append(found[i].Doubts, why)
			}
		}
	}
}

func (s Input) startDoubts(id gpu.ID) []string {
	if s.Before == nil {
		return []string{"there is no record of the job's start"}
	}
	state := s.Before.Curves[id].State
	r, _ := s.Before.Snapshot.Reading(id)
	tells := state == record.Flat || state == record.Unreadable && r.Memory.Unjudged != ""
	switch {
	case state == record.Clean, tells && s.startedAtRest(id):
		return nil
	case state.Dirty():
		return []string{"the GPU was not clean when the job started"}
	default:
		return []string{"the GPU could not be read when the job started"}
	}
}

// AsMuch is how far figures of one leftover may differ, in bytes: they were measured not to change, clients' by 1 MiB.
const AsMuch = 8 << 20

func near(a, b gpu.Figure) bool {
	return a.Known() && b.Known() && max(a.Bytes, b.Bytes)-min(a.Bytes, b.Bytes) <= AsMuch
}

// grown reports whether there is more memory than before, for certain: what a dead process left does not grow.
func grown(before, now gpu.Figure) bool {
	return before.Known() && now.Known() && now.Bytes > before.Bytes+AsMuch
}

// inherited names the ended job that left this dead PID with as much memory, at best with evidence ByExclusive.
func (s Input) inherited(c record.Assigned, p gpu.Process) *record.Owner {
	for _, left := range s.Left {
		same := left.GPU == c.Device.ID && left.Holder != nil && left.Holder.PID == p.PID
		if same && left.Owner != nil && near(left.Bytes, p.Memory) {
			owner := *left.Owner
			if record.ByExclusive.Weaker(owner.Level) {
				owner.Level = record.ByExclusive
			}
			return &owner
		}
	}
	return nil
}

// inheritedMemory names the ended job whose epilog left as much memory without a process, if the candidates of that
// time may still hold it. It returns nil if that is true of several jobs.
func (s Input) inheritedMemory(c record.Assigned, f record.Finding) *record.Owner {
	var fitting []*record.Owner
	for _, left := range s.Left {
		about := left.GPU == c.Device.ID && left.Owner != nil && left.Code == catalog.Residue
		if about && near(left.Bytes, f.Bytes) && f.Searched && keptOn(left, f.Candidates) {
			fitting = append(fitting, left.Owner)
		}
	}
	return sameJob(fitting)
}

// keptOn reports whether these candidates may still hold what was left: all were candidates then, and if the blamed job
// had any, one of them is still there. The memory of a handle is freed with its last holder.
func keptOn(left record.Finding, now []record.Holder) bool {
	in := func(all []record.Holder, p record.Holder) bool {
		return slices.ContainsFunc(all, func(o record.Holder) bool { return o.PID == p.PID && o.Start == p.Start })
	}
	if slices.ContainsFunc(now, func(p record.Holder) bool { return !in(left.Candidates, p) }) {
		return false
	}
	ended := false
	for _, p := range left.Candidates {
		if p.Owner == nil || sameJob([]*record.Owner{p.Owner, left.Owner}) == nil {
			continue
		}
		if in(now, p) {
			return true
		}
		ended = true
	}
	return !ended
}

// sameJob returns the owner if all owners are one job, else nil.
func sameJob(owners []*record.Owner) *record.Owner {
	another := func(o *record.Owner) bool { return o.Slurm() != owners[0].Slurm() }
	if len(owners) == 0 || slices.ContainsFunc(owners, another) {
		return nil
	}
	return owners[0]
}

// again reports a further end of a run whose end is already recorded: other jobs may have had its GPUs since.
func (s Input) again() bool { return s.ending() && s.Self.End > 0 }

// exclusive blames this job for what appeared while it had the GPU alone, if the GPU was settled at its start.
func (s Input) exclusive(c record.Assigned) *record.Owner {
	if s.Before == nil || !s.Self.Alone || s.Shared != "" || s.again() ||
		!s.Before.Curves[c.Device.ID].State.AtRest() {
		return nil
	}
	return &record.Owner{Job: s.Job.ID, SLUID: s.Job.SLUID, UID: s.Job.UID, Level: record.ByExclusive}
}

// FromFault turns a fault that the driver reported into a finding.
func FromFault(f gpu.Fault) record.Finding {
	codes := map[gpu.FaultCode]catalog.Code{
		gpu.FaultNoDriver: catalog.NoDriver, gpu.FaultNoLibrary: catalog.NoDriver,
		gpu.FaultMismatch: catalog.Mismatch, gpu.FaultNoDevice: catalog.Missing,
		gpu.FaultLost: catalog.Lost, gpu.FaultReset: catalog.Lost, gpu.FaultNoSymbol: catalog.Old,
	}
	c := cmp.Or(codes[f.Code], catalog.DriverKO)
	found := record.Finding{Code: c, GPU: f.Device, Observed: f.Detail, Expected: "the driver answers for this GPU"}
	if f.Code == gpu.FaultNoLibrary {
		found.AddDoubt("the library may be elsewhere: nvidia.nvml_library")
	}
	return found
}
