// Package compare compares a job's start and end, and returns what it finds as data. Each rule is a function of a GPU:
// fault, process (an orphan, a stray, another job's, or there before), phantom, unlisted, moving; Trespasses of a node.
package compare

import (
	"slices"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// Input is the input of one comparison. Without a record of the job's start, Before is nil.
type Input struct {
	Job       slurm.Job
	Cards     []record.Assigned
	Before    *record.Side
	Now       record.Side
	Book      attribution.Book // the node's records
	Limits    record.Limits
	Baselines map[gpu.ID]record.Baseline // what each GPU carries without any job, as recorded earlier in this epoch
	// Clients is what the driver was seen to hold for a listed process beyond its figure, by GPU model. A job may have
	// made it larger, so it only makes amounts unknown that are too small to drain.
	Clients map[string]uint64
	// SharedUnknown is why it is unknown whether others may use these GPUs, empty if that is known.
	SharedUnknown string
	Shared        string // why others may use these GPUs legally; empty if the job has them alone
	Doubt         string // a reason that makes every finding of this hook uncertain (RunInJob)
	RunDoubt      string // why this end may belong to another run of the job
	MPSUIDs       []int  // users as whom the site itself starts MPS
	// Unread is, by GPU, why it may belong to another job although no record says so.
	Unread map[gpu.ID]string
}

// Compare judges every GPU of the job at its start (without Before) or end, or a health check's GPUs without a job.
func Compare(s Input) []record.Finding {
	var all []record.Finding
	for _, c := range s.Cards {
		for _, f := range s.view(c).findings() {
			f.GPU, f.Index = c.Device.ID, &c.Index
			all = append(all, f)
		}
	}
	return all
}

// Again joins the findings from before and after processes were ended; the input is that of the second samples. A GPU
// that settled again is judged by these alone. On any other GPU a first finding stays unless they repeat it or prove
// that its process is gone, but what an ended process may have held is no longer certain.
func (s Input) Again(first, second []record.Finding) []record.Finding {
	var kept []record.Finding
	for _, f := range first {
		settled := f.GPU != "" && s.Now.Curves[f.GPU].State.AtRest() || f.GPU == "" && s.Now.Settled(s.Cards)
		again := slices.ContainsFunc(second, func(o record.Finding) bool { return isSame(f, o) })
		if settled || again || lacks(s.Now, f) {
			continue
		}
		if f.Holder != nil && f.Code != catalog.Trespass || f.WithoutProcess() {
			f.Doubts = slices.Clone(f.Doubts)
			f.AddDoubt("processes were ended since, and the GPU was not seen settled again")
		}
		kept = append(kept, f)
	}
	return append(kept, second...)
}

// Decide attributes a process on a GPU of this scene.
func (s Input) Decide(p record.Process, id gpu.ID) attribution.Attribution {
	j := attribution.Jobs{Node: s.Job.Node, Self: s.Book.Self, Began: s.Before != nil, Others: s.Book.Others,
		At: s.Now.Snapshot.At}
	return j.Owner(p, id)
}

func (s Input) ending() bool { return s.Job.Context == slurm.Epilog }

func (s Input) between() bool { return s.Job.Context == slurm.HealthCheck }

func (s Input) beginning() bool { return !s.ending() && !s.between() }

// again reports a further end of a run whose end is already recorded: other jobs may have had its GPUs since.
func (s Input) again() bool { return s.ending() && s.Book.Self.End > 0 }

func (s Input) leftBehind(o attribution.Attribution) bool {
	return o.Kind == attribution.EndedJob && !o.Unseen || o.Kind == attribution.ThisJob && s.ending()
}

// given reports whether Slurm gave the GPU to the process's job too: suspended and gang-scheduled jobs may share one.
func (s Input) given(o attribution.Attribution, id gpu.ID) bool {
	return slices.ContainsFunc(s.Book.Others, func(r attribution.Allocation) bool {
		return r.Keeps(id) && o.Slurm().Same(r.Owner())
	})
}

// view is one GPU of a comparison, in the last sample and at the job's start.
type view struct {
	in       Input
	device   gpu.Device
	baseline record.Baseline
	now      gpu.Reading
	read     bool // the last sample has a reading of it
	curve    record.Curve
	// then, its state and whether it was read are zero without a record of the start.
	then      gpu.Reading
	thenState record.State
	thenRead  bool
}

func (s Input) view(c record.Assigned) view {
	v := view{in: s, device: c.Device, baseline: s.Baselines[c.Device.ID], curve: s.Now.Curves[c.Device.ID]}
	v.now, v.read = s.Now.Snapshot.Reading(c.Device.ID)
	if s.Before != nil {
		v.then, v.thenRead = s.Before.Snapshot.Reading(c.Device.ID)
		v.thenState = s.Before.Curves[c.Device.ID].State
	}
	return v
}

// findings judges the GPU. If it could not be read, that is the only finding.
func (v view) findings() []record.Finding {
	unknown := func(c catalog.Code, why string) []record.Finding {
		return []record.Finding{{Code: c, Unknown: why}}
	}
	if f, faulty := v.fault(); faulty {
		return []record.Finding{f}
	}
	switch {
	case !v.read:
		return unknown(catalog.Unread, "the driver gave no reading of this GPU")
	case v.curve.State == record.Clean:
		return nil
	case v.curve.State == record.Moving:
		return v.moving()
	case v.curve.State == record.Flat && v.now.ProcessesUnknown != "":
		return unknown(catalog.Unread, "process list: "+v.now.ProcessesUnknown)
	case v.curve.State == record.Flat:
		return v.certain(v.settled())
	case v.now.Memory.Unjudged != "":
		return unknown(catalog.Unjudged, v.now.Memory.Unjudged)
	}
	return unknown(catalog.Unread, v.curve.Why)
}

// fault returns the driver's first fault of the GPU.
func (v view) fault() (record.Finding, bool) {
	for _, f := range v.in.Now.Snapshot.Faults {
		if !f.Concerns(v.device) {
			continue
		}
		found := record.FromFault(f)
		found.Doubts = append(found.Doubts, v.faultDoubts()...)
		if v.curve.State != record.Unreadable || !v.curve.Steady {
			found.AddDoubt("seen in %d looks over %.1f s only", v.curve.Looks, v.curve.Span.Seconds())
		}
		return found, true
	}
	return record.Finding{}, false
}

func isSame(f, o record.Finding) bool {
	who := func(h *record.Holder) (i record.Instance) {
		if h != nil {
			i = record.Instance{PID: h.PID, Start: h.Start}
		}
		return i
	}
	return f.Code == o.Code && f.GPU == o.GPU && who(f.Holder) == who(o.Holder)
}

// settled returns a finding for all that stays on a settled GPU: listed processes, then unexplained memory.
func (v view) settled() (found []record.Finding) {
	for _, p := range v.now.Processes {
		if f, worth := v.process(p); worth {
			found = append(found, f)
		}
	}
	if f, worth := v.unlisted(record.Unexplained(v.now, v.in.Limits, v.baseline)); worth {
		found = append(found, f)
	}
	return found
}

// lacks reports whether a sample proves that a finding's process has left its GPU.
func lacks(s record.Side, f record.Finding) bool {
	r, read := s.Snapshot.Reading(f.GPU)
	if f.Holder == nil || !read || r.ProcessesUnknown != "" {
		return false
	}
	now, known := s.Processes[f.Holder.PID]
	another := known && now.Why == "" && now.Start != f.Holder.Start
	_, listed := s.Listed(f.GPU, f.Holder.PID)
	return another || !listed
}
