package compare

import (
	"fmt"
	"slices"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// unlisted judges the memory that no listed process accounts for, beyond what was unexplained at the job's start.
func (v view) unlisted(now gpu.Figure) (record.Finding, bool) {
	if v.in.Shared != "" || v.now.Memory.Unjudged != "" {
		return record.Finding{}, false // other jobs' processes may not be listed here
	}
	f := record.Finding{
		Code: catalog.Residue, Observed: "memory in use that no listed process accounts for", Expected: "an idle GPU",
		Bytes: v.gained(now), Doubts: v.doubts(),
	}
	if v.in.beginning() {
		f.Code = catalog.Dirty
	}
	if v.in.ending() {
		f.Expected = "memory back at what it was"
	}
	if v.now.KnownBad != "" {
		f.Observed += "; " + v.now.KnownBad
	}
	f.Unknown = f.Bytes.Unknown
	if f.Unknown != "" || f.Bytes.Bytes < v.in.Limits.Report {
		return f, f.Unknown != ""
	}
	holders := v.search(&f, v.mayHoldExported(), []record.Class{record.Exported})
	bystanders := v.bystanders(f)
	switch {
	case !v.in.ending() || v.in.again():
		f.Owner = inheritedMemory(v.in.Book.Left, v.device.ID, f)
	case len(bystanders) > 0, v.vanished(): // a handle may now hold what was listed at the start
	case f.Bytes.Bytes <= record.MaxBaseline && v.in.opener(v.device) != "": // that service may hold so little
	default:
		f.Owner = v.suspect(f, holders)
	}
	f.Doubts = append(f.Doubts, bystanders...)
	// Whichever of processes whose jobs are over holds it, the GPU is unusable: more of them are no excuse.
	perhapsAnothers := func(h holder) bool { return !v.in.leftBehind(h.owner) }
	if len(holders) > 1 && slices.ContainsFunc(holders, perhapsAnothers) {
		f.AddDoubt("%d processes may hold it, and which one does cannot be told", len(f.Candidates))
	}
	return f, true
}

// gained returns how much more memory is unexplained now than at the job's start. It is unknown if either amount is, or
// if the driver may hold so little for the processes that it lists.
func (v view) gained(now gpu.Figure) gpu.Figure {
	before := v.before()
	switch {
	case now.Unknown != "":
		return gpu.Unknown(now.Unknown)
	case now.Bytes >= v.in.Limits.Report && before.Unknown != "":
		return gpu.Unknown(before.Unknown)
	}
	processes, limits := len(v.now.Processes), v.in.Limits
	extra, client := now.Bytes-min(now.Bytes, before.Bytes), v.in.Clients[v.now.Device.Name]
	most := min(limits.Drain, limits.Report+limits.Spare(processes, client))
	if extra >= limits.Report && extra < most {
		return gpu.Unknown(fmt.Sprintf("the driver may hold these %d MiB for %d processes: while jobs ran it was seen "+
			"to hold %d MiB for each", extra>>20, processes, client>>20))
	}
	return gpu.Bytes(extra)
}

// before returns what was unexplained at the job's start: 0 without a record, or if unsettled.
func (v view) before() gpu.Figure {
	switch {
	case v.in.Before == nil, v.thenRead && v.thenState == record.Moving:
		return gpu.Bytes(0)
	case !v.thenRead:
		return gpu.Unknown("the GPU could not be read when the job started")
	}
	rest := record.Unexplained(v.then, v.in.Limits, v.baseline)
	if !rest.Known() {
		rest.Unknown = "at the job's start: " + rest.Unknown
	}
	return rest
}

// vanished reports whether a process that the start listed on the GPU, not the node's own, is no longer listed.
func (v view) vanished() bool {
	return slices.ContainsFunc(v.then.Processes, func(p gpu.Process) bool {
		return !lists(v.now, p.PID) && !resident(p, v.in.Before.Processes[p.PID])
	})
}

// suspect returns this job if it had the GPU alone while f's memory appeared, unless none of the holders belongs to it
// or one of another owner also started during this job. An incomplete search blames no job.
func (v view) suspect(f record.Finding, holders []holder) *record.Owner {
	suspect, its := v.exclusive(), len(holders) == 0
	if suspect == nil || !f.Searched {
		return nil
	}
	for _, h := range holders {
		switch {
		case h.owner.Job == suspect.Job && h.owner.Ambiguous():
			return nil
		case suspect.Slurm().Same(h.owner.Slurm()):
			its = true
		case h.start >= v.in.Book.Self.Start:
			return nil
		}
	}
	if !its {
		return nil
	}
	return suspect
}

// bystanders returns doubts about memory without a process: any process with the driver open may hold a handle to it,
// also one that has another GPU open for a reason, unless its job is surely over.
func (v view) bystanders(f record.Finding) (doubts []string) {
	for _, h := range v.in.Now.Holdings() {
		candidate := slices.ContainsFunc(f.Candidates, func(c record.Holder) bool { return c.PID == h.PID })
		o := v.in.Decide(h.Process, v.device.ID)
		// A program's name does not excuse a process that may be a live job's.
		ofNode := v.in.ofNode(h) && o.Kind != attribution.LiveJob && o.Kind != attribution.CannotTell
		if candidate || ofNode {
			continue
		}
		// no live job's process is expected here
		outsider := o.Kind == attribution.NoJob && h.UID != 0 && lists(v.now, h.PID)
		if !v.in.leftBehind(o) && !outsider || o.Rival != 0 {
			doubts = append(doubts,
				fmt.Sprintf("process %d has the driver open for another reason, and may hold it too", h.PID))
		}
	}
	return doubts
}

// Frees reports whether samples show the memory of one process being freed: each lists its PID, with no more than
// the one before. Otherwise another process may have had the PID since, and may be gone too.
func Frees(pid int, id gpu.ID, looks []gpu.Snapshot) bool {
	last := gpu.Unknown("not sampled yet")
	for _, look := range looks {
		r, _ := look.Reading(id)
		p, listed := r.Process(pid)
		if !listed || Grown(last, p.Memory) {
			return false
		}
		last = p.Memory
	}
	return true
}
