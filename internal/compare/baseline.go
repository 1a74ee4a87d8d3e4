package compare

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Learn returns a GPU's baseline as seen in this scene, the start of a job, and whether it differs from the known one.
// It learns only from a settled GPU on which all processes are services, and learns unexplained memory only if a
// service has the GPU open. Thus a baseline only shrinks towards a clean GPU or grows by memory with a named holder.
func (s Input) Learn(c record.Assigned, epoch gpu.Epoch) (record.Baseline, bool) {
	v := s.view(c)
	old := v.baseline
	// What is on a GPU that another live job was given, or may have been, may belong to that job.
	shared := slices.ContainsFunc(s.Book.Others, func(o attribution.Allocation) bool { return o.Keeps(c.Device.ID) })
	if !v.read || old.Accepted || s.ending() || !v.curve.State.AtRest() || v.now.ProcessesUnknown != "" || shared {
		return old, false
	}
	b := record.Baseline{GPU: c.Device.ID, Epoch: epoch, At: s.Now.Snapshot.At}
	for _, p := range v.now.Processes {
		facts := s.Now.Processes[p.PID]
		if !resident(p, facts) {
			return old, false
		}
		b.Residents = append(b.Residents,
			record.Resident{PID: p.PID, Start: facts.Start, Bytes: p.Memory.Bytes, Service: facts.Service})
	}
	rest := record.Unexplained(v.now, s.Limits, record.Baseline{})
	if !rest.Known() || rest.Bytes > record.MaxBaseline {
		return old, false
	}
	given := func(o attribution.Allocation) bool { return o.MayHold(c.Device.ID) }
	if !slices.ContainsFunc(s.Book.Others, given) && !slices.ContainsFunc(s.Now.Holdings(), v.mayHoldExported()) {
		b.Holder = s.opener(c.Device) // no job had it before, and only the node's processes can hold the memory
	}
	if b.Holder == "" && rest.Bytes <= old.Bytes+wander {
		b.Holder = old.Holder // explained memory starts no search that could name its holder again
	}
	if b.Holder != "" {
		b.Bytes = rest.Bytes
	}
	return b, !sameBaseline(b, old)
}

// longestStart exceeds what a start takes, 5 s by default, from reading the baselines to its last sample.
const longestStart = 10 * time.Second

// startedAtRest reports whether a GPU that was not idle at the job's start carried only what belongs to the node. If
// its memory cannot be judged, only its processes count.
func (v view) startedAtRest() bool {
	stranger := func(p gpu.Process) bool { return !resident(p, v.in.Before.Processes[p.PID]) }
	if !v.thenRead || v.then.ProcessesUnknown != "" || slices.ContainsFunc(v.then.Processes, stranger) {
		return false
	}
	if v.then.Memory.Unjudged != "" {
		return true
	}
	b := v.baseline
	if b.At > v.in.Before.Snapshot.At-longestStart {
		// learned after the start, which called the GPU dirty: it does not become clean in hindsight
		b = record.Baseline{}
	}
	rest := record.Unexplained(v.then, v.in.Limits, b)
	return rest.Known() && rest.Bytes < v.in.Limits.Report
}

// Expectations returns what GPUs may carry and still be clean, with the start time of each process in it: the baselines
// and, at an end, what the GPUs carried before the job, which need not leave them cleaner.
func Expectations(
	before *record.Side, baselines map[gpu.ID]record.Baseline, l record.Limits,
) (map[gpu.ID]gpu.Expected, map[int]time.Duration) {
	expect, known := map[gpu.ID]gpu.Expected{}, map[int]time.Duration{}
	for id, b := range baselines {
		expect[id] = expected(b, l)
		for _, r := range b.Residents {
			known[r.PID] = r.Start
		}
	}
	if before == nil {
		return expect, known
	}
	for _, r := range before.Snapshot.Readings {
		if !before.Curves[r.Device.ID].State.AtRest() || !r.Memory.Used.Known() {
			continue // memory that was changing then does not show what was there before
		}
		e := gpu.Expected{}
		rest := r.Memory.Used.Bytes
		for _, p := range r.Processes {
			want := gpu.ExpectedProcess{PID: p.PID}
			if p.Memory.Known() {
				want.Bytes = min(p.Memory.Bytes, rest) // shared memory is counted twice
				want.Share = min(l.PerClient, rest-want.Bytes)
			}
			rest -= want.Bytes + want.Share
			// A PID alone does not identify a process.
			if facts, read := before.Processes[p.PID]; read && facts.Why == "" {
				known[p.PID] = facts.Start
				e.Processes = append(e.Processes, want)
			}
		}
		e.Bytes = max(rest, expect[r.Device.ID].Bytes)
		for _, p := range expect[r.Device.ID].Processes {
			if _, twice := e.Expects(p.PID); !twice {
				e.Processes = append(e.Processes, p)
			}
		}
		expect[r.Device.ID] = e
	}
	return expect, known
}

// Clients returns, by GPU model, the least memory that the driver holds for a process beyond the process's figure, in
// the recordings of jobs under one driver version. A job can increase its own figure, but no other job's.
func Clients(runs []record.Run, driver string) map[string]uint64 {
	least := map[string]uint64{}
	for _, r := range runs {
		for _, e := range r.Ends {
			if e.Recording == nil || driver == "" || r.EpochOf(e).Driver != driver {
				continue
			}
			for _, g := range e.Recording.GPUs {
				i := slices.IndexFunc(r.Devices, func(d record.Assigned) bool { return d.Device.ID == g.ID })
				if i < 0 || g.Client == 0 {
					continue
				}
				model := r.Devices[i].Device.Name
				least[model] = min(g.Client, cmp.Or(least[model], g.Client))
			}
		}
	}
	return least
}

// expected returns what a sample of a GPU with this baseline may show and still be clean.
func expected(b record.Baseline, l record.Limits) gpu.Expected {
	e := gpu.Expected{Bytes: b.Bytes}
	for _, r := range b.Residents {
		e.Processes = append(e.Processes, gpu.ExpectedProcess{PID: r.PID, Bytes: r.Bytes, Share: l.PerClient})
	}
	return e
}

// IsResident reports whether a process is one that the baseline expects, and not another one with its PID.
func IsResident(b record.Baseline, pid int, facts record.Process) bool {
	return facts.Why == "" && !facts.Gone && slices.ContainsFunc(b.Residents, func(r record.Resident) bool {
		return r.PID == pid && r.Start == facts.Start
	})
}

// wander is how far the figures of services vary by themselves, in bytes: a few pages of 2 MiB.
const wander = 4 << 20

// sameBaseline reports whether two baselines differ by no more than that.
func sameBaseline(b, o record.Baseline) bool {
	near := func(x, y uint64) bool { return max(x, y)-min(x, y) <= wander }
	sameResident := func(x, y record.Resident) bool {
		return x.PID == y.PID && x.Start == y.Start && near(x.Bytes, y.Bytes)
	}
	return near(b.Bytes, o.Bytes) && b.Holder == o.Holder && slices.EqualFunc(b.Residents, o.Residents, sameResident)
}
