package judge

import (
	"maps"
	"slices"
	"time"

	"bookend/internal/compare"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// Observer reads a node for Observe. What could not be read is returned as unknown, with a reason; empty means none.
type Observer interface {
	// Watch samples GPUs for as long as the rule says and returns the samples, oldest first.
	Watch(cards []record.Assigned, rule gpu.WatchRule) []gpu.Snapshot
	// Processes returns what /proc shows about each PID.
	Processes(pids []int) map[int]record.Process
	// Holders searches all of /proc for processes with a GPU open, and leaves time for a watch of that length. It is
	// nil if the configuration forbids the search.
	Holders(then time.Duration) *record.Scan
	// Quiet waits, for a bounded time, until no probe runs on the GPUs, and keeps probes off them until release. For a
	// GPU on which one still runs, busy says so.
	Quiet(cards []record.Assigned) (busy map[gpu.ID]string, release func())
}

// Order says what to sample, and for what.
type Order struct {
	Job   slurm.Job // the job whose end this is, zero for none
	Cards []record.Assigned
	Rule  gpu.WatchRule
	// Known are the start times of the processes that the rule expects, 0 for one that is gone: a PID may be reused.
	Known     map[int]time.Duration
	Limits    record.Limits
	Baselines map[gpu.ID]record.Baseline
	// Sure asks for more than one more sample, which takes another flat time: an end may drain for what it finds.
	Sure       bool
	Neighbours gpu.Snapshot // one sample of the node's other GPUs, zero if there was none
}

// Observe samples GPUs until they have settled, lists their processes, searches for holders of unexplained memory, and
// samples again. It returns the GPUs with the ids that only the driver knew.
func Observe(e Observer, o Order) (record.Side, []record.Assigned) {
	side, samples := o.watch(e)
	if o.dropStrangers(side.Snapshot, side.Processes) {
		side, samples = o.watch(e)
	}
	disown(side)
	flat := func(c record.Curve) bool { return c.State == record.Flat }
	if !slices.ContainsFunc(slices.Collect(maps.Values(side.Curves)), flat) && len(side.Stayed) == 0 {
		return side, o.Cards
	}
	busy, release := e.Quiet(o.Cards)
	defer release()
	var least, sure time.Duration // least 0 is one more sample
	if o.unexplained(side) {
		if o.Sure {
			least, sure = min(teardown, o.Rule.Max), o.Rule.Flat+time.Second // samples are up to a second apart
		}
		side.Scan = e.Holders(sure)
	}
	o.confirm(e, &side, samples, least)
	for id, why := range busy {
		side.Curves[id] = record.Curve{State: record.Unreadable, Why: why}
	}
	return side, o.Cards
}

// Glance returns what a single sample of GPUs shows, with their processes. One sample is not enough to judge a GPU.
func Glance(e Observer, s gpu.Snapshot) record.Side {
	side := record.Side{Snapshot: s, Curves: map[gpu.ID]record.Curve{}}
	side.Processes = e.Processes(pids(nil, s))
	disown(side)
	return side
}

func (o *Order) watch(e Observer) (record.Side, []gpu.Snapshot) {
	side := record.Side{Curves: map[gpu.ID]record.Curve{}, Processes: map[int]record.Process{}}
	samples := e.Watch(o.Cards, o.Rule)
	if len(samples) == 0 {
		return side, nil
	}
	side.Snapshot = samples[len(samples)-1]
	o.Cards = identified(o.Cards, side.Snapshot)
	for _, c := range o.Cards {
		side.Curves[c.Device.ID] = settle.JudgeDevice(o.Rule, c.Device, samples)
	}
	side.Neighbours = o.Neighbours
	side.Processes = e.Processes(pids(nil, side.Snapshot, side.Neighbours))
	side.Stayed = o.stayed(side, samples)
	return side, samples
}

// stayed returns what every sample showed on a GPU whose memory is still changing: processes, and memory without one.
// /proc is read after the samples, so a process that started before the first one is the one that each of them listed.
func (o Order) stayed(side record.Side, samples []gpu.Snapshot) map[gpu.ID][]record.Stay {
	all := map[gpu.ID][]record.Stay{}
	for _, c := range o.Cards {
		id := c.Device.ID
		if side.Curves[id].State != record.Moving {
			continue
		}
		same := slices.DeleteFunc(settle.Stayed(o.Rule, c.Device, samples), func(p record.Stay) bool {
			facts, read := side.Processes[p.PID]
			return !read || facts.Why != "" || !facts.Gone && facts.Start+record.Tick > samples[0].At
		})
		rest := settle.Rest(o.Rule, c.Device, samples, func(r gpu.Reading) gpu.Figure {
			return record.Unexplained(r, o.Limits, o.Baselines[id])
		})
		if rest.Memory.Known() && rest.Memory.Bytes >= o.Limits.Report {
			same = append(same, rest)
		}
		if len(same) > 0 {
			all[id] = same
		}
	}
	return all
}

// dropStrangers removes expected PIDs that now belong to another process than expected, or to none if there was one. It
// reports whether there were any: what was judged with them was judged wrongly.
func (o *Order) dropStrangers(last gpu.Snapshot, processes map[int]record.Process) (found bool) {
	expect := map[gpu.ID]gpu.Expected{}
	for id, e := range o.Rule.Expect {
		r, _ := last.Reading(id)
		e.Processes = slices.DeleteFunc(slices.Clone(e.Processes), func(p gpu.ExpectedProcess) bool {
			now, read := processes[p.PID]
			start, known := o.Known[p.PID]
			held, listed := r.Process(p.PID)
			if !read || !known || !listed || now.Why != "" {
				return false
			}
			stranger := now.Start != start || now.Gone && !sameBytes(held, p)
			found = found || stranger
			return stranger
		})
		expect[id] = e
	}
	if found {
		o.Rule.Expect = expect
	}
	return found
}

// disown drops what /proc shows for a PID whose process started after the sample that lists it: the PID was reused.
func disown(side record.Side) {
	for _, s := range []gpu.Snapshot{side.Snapshot, side.Neighbours} {
		for _, pid := range pids(nil, s) {
			if now := side.Processes[pid]; s.At > 0 && now.Why == "" && now.Start > s.At {
				const why = "its PID was another process's when the GPU was read"
				side.Processes[pid] = record.Process{PID: pid, Why: why}
			}
		}
	}
}

// sameBytes distinguishes one dead PID from another: the memory left under it was measured not to change.
func sameBytes(p gpu.Process, want gpu.ExpectedProcess) bool {
	return !p.Memory.Known() || max(p.Memory.Bytes, want.Bytes)-min(p.Memory.Bytes, want.Bytes) <= compare.AsMuch
}

// unexplained reports whether /proc must be searched: there is memory without a process, or a process is gone.
func (o Order) unexplained(side record.Side) bool {
	return slices.ContainsFunc(o.Cards, func(c record.Assigned) bool {
		id := c.Device.ID
		_, stayed := side.StayOf(id, 0)
		much := o.rest(side.Snapshot, c).Bytes >= o.Limits.Report
		return side.Curves[id].State == record.Flat && much || stayed || lists(side, id, isGone)
	})
}

// lists reports whether a GPU lists such a process: in the last sample if it has settled, else in every sample.
func lists(side record.Side, id gpu.ID, such func(record.Process) bool) bool {
	if side.Curves[id].State == record.Flat {
		r, _ := side.Snapshot.Reading(id)
		return slices.ContainsFunc(r.Processes, func(p gpu.Process) bool { return such(side.Processes[p.PID]) })
	}
	return slices.ContainsFunc(side.Stayed[id], func(p record.Stay) bool { return such(side.Processes[p.PID]) })
}

func isGone(p record.Process) bool { return p.Gone }

// identified fills in ids that only the driver knew: the inventory may name a GPU by its bus id alone.
func identified(cards []record.Assigned, s gpu.Snapshot) []record.Assigned {
	out := slices.Clone(cards)
	for i, c := range out {
		for _, r := range s.Readings {
			sameBus := r.Device.BusID != "" && r.Device.BusID == c.Device.BusID
			if r.Device.ID == c.Device.ID || c.Device.ID == "" && sameBus {
				out[i].Device = r.Device
			}
		}
	}
	return out
}

// pids returns the PIDs of processes that a search found and of those that samples list.
func pids(found []record.Holding, samples ...gpu.Snapshot) (list []int) {
	for _, h := range found {
		list = append(list, h.PID)
	}
	for _, s := range samples {
		for _, r := range s.Readings {
			for _, p := range r.Processes {
				list = append(list, p.PID)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
