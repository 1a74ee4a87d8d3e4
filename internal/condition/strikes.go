package condition

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// History is what the faults of a node's GPUs are counted from.
type History struct {
	Runs  []record.Run
	Check *record.Check // the last health check; nil if there was none
	Now   gpu.Snapshot  // the driver's answer; without readings if it did not answer
	// A GPU with so many Faults Within so much time before At is a repeat offender.
	Faults int
	Within time.Duration
	At     time.Time
}

// sameFault is the time after a finding within which another finding on the GPU belongs to the same fault. A fault of
// the hardware shows up in several places, and a hook and the health check may find it one after the other.
const sameFault = 10 * time.Minute

// over are the findings that stand until a reset or longer, with the proof in a later end that one is over: until then
// it is one fault, however many hooks find it.
var over = map[catalog.Code]func(record.End, gpu.ID) bool{
	catalog.Lost: func(e record.End, id gpu.ID) bool {
		r, read := e.Snapshot.Reading(id)
		return read && r.Memory.Used.Known()
	},
	catalog.Recovery:     hasFact(gpu.RecoveryAction, "none"),
	catalog.RemapFailed:  hasFact(gpu.RemapFailed, "no"),
	catalog.RemapPending: hasFact(gpu.RemapPending, "no"),
	catalog.Pages:        hasFact(gpu.RetiredPending, "no"),
}

func hasFact(c gpu.FactCode, value string) func(record.End, gpu.ID) bool {
	return func(e record.End, id gpu.ID) bool {
		return slices.ContainsFunc(e.Health, func(h gpu.Health) bool { return h.Device == id && known(h, c) == value })
	}
}

// sight is an end of a run, or the last health check, with the GPUs that it was about.
type sight struct {
	end record.End
	at  time.Time
	run record.Run
}

// sights returns the ends of all runs, oldest first, and the last health check behind them: what an end found, too,
// with the lines of the kernel log, is then known.
func (h History) sights() (all []sight) {
	boots := record.BootsOf(h.Runs)
	for _, r := range h.Runs {
		for _, e := range r.AllEnds() {
			all = append(all, sight{*e, boots.Time(r, *e), r})
		}
	}
	slices.SortStableFunc(all, func(a, b sight) int { return a.at.Compare(b.at) })
	if c := h.Check; c != nil && !c.Stopped {
		e := record.End{At: c.At, Wall: c.Wall, Snapshot: c.Snapshot, Health: c.Health, Findings: c.Findings}
		r := record.Run{Epoch: c.Epoch, Devices: c.Cards}
		all = append(all, sight{e, boots.Time(r, e), r})
	}
	return all
}

// Struck returns the GPUs with faults that the records prove, by Slurm's index. Only what has neither doubts nor an
// unknown part counts, and no error that a program can cause. A GPU is left out if another one is at its bus id by now,
// as the driver or else the newest record says.
func (h History) Struck() []record.Struck {
	seen, at := map[gpu.ID]*offences{}, map[gpu.BusID]gpu.ID{}
	for _, s := range h.sights() {
		for _, c := range s.run.Devices {
			if c.Device.ID != "" && c.Device.BusID != "" && c.Device.Parent == "" {
				at[c.Device.BusID] = c.Device.ID
				seen[c.Device.ID] = cmp.Or(seen[c.Device.ID], &offences{known: map[string]bool{}})
				seen[c.Device.ID].add(s, c)
			}
		}
	}
	for _, r := range h.Now.Readings {
		at[r.Device.BusID] = r.Device.ID
	}
	all := []record.Struck{}
	for _, id := range slices.Sorted(maps.Values(at)) {
		if seen[id] == nil {
			continue
		}
		s := seen[id].within(h)
		if len(s.Faults) > 0 {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b record.Struck) int {
		return cmp.Or(cmp.Compare(len(a.Name()), len(b.Name())), cmp.Compare(a.Name(), b.Name()))
	})
	return all
}

// offences is what was seen of one GPU so far.
type offences struct {
	card    record.Assigned
	strikes []record.Strike
	last    time.Time       // when something was last added to the last strike
	known   map[string]bool // the keys of what was counted
}

// add adds what a sight proves about the GPU.
func (o *offences) add(s sight, c record.Assigned) {
	o.card = c
	for code, isOver := range over {
		if isOver(s.end, c.Device.ID) {
			delete(o.known, string(code))
		}
	}
	for _, f := range s.end.Findings {
		if f.GPU != c.Device.ID || f.Unknown != "" || len(f.Doubts) > 0 || s.elsewhere(f) || !o.isNew(s.keys(f, c)) {
			continue
		}
		if len(o.strikes) == 0 || s.at.Sub(o.last) > sameFault {
			o.strikes = append(o.strikes, record.Strike{At: s.at, Job: s.run.Job.ID})
		}
		one := &o.strikes[len(o.strikes)-1]
		o.last = s.at
		one.Codes = append(slices.DeleteFunc(one.Codes, func(c catalog.Code) bool { return c == f.Code }), f.Code)
		if f.Xid != 0 {
			one.Xids = append(slices.DeleteFunc(one.Xids, func(n int) bool { return n == f.Xid }), f.Xid)
		}
	}
}

// elsewhere reports whether another GPU has the same at the same time: then the cause may be what both depend on.
func (s sight) elsewhere(f record.Finding) bool {
	return slices.ContainsFunc(s.end.Findings, func(g record.Finding) bool {
		return g.GPU != "" && g.GPU != f.GPU && g.Code == f.Code && g.Xid == f.Xid
	})
}

func (o *offences) isNew(keys []string) bool {
	isNew := false
	for _, key := range keys {
		isNew = isNew || !o.known[key]
		o.known[key] = true
	}
	return isNew
}

// keys identify what a finding is about, so that what several hooks find is counted once: a standing fault, a count of
// memory errors, or an Xid and its lines in the kernel log. There are none if it does not speak against the GPU itself.
func (s sight) keys(f record.Finding, c record.Assigned) []string {
	boot := s.run.EpochOf(s.end).Boot
	x, _ := catalog.LookupXid(f.Xid)
	switch {
	case over[f.Code] != nil:
		return []string{string(f.Code)}
	case f.Code == catalog.ECC:
		i := slices.IndexFunc(s.end.Health, func(h gpu.Health) bool { return h.Device == f.GPU })
		if i < 0 {
			return []string{boot}
		}
		return []string{boot + " " + known(s.end.Health[i], gpu.ECCUncorrected)}
	case f.Code != catalog.Xid && f.Code != catalog.XidFatal, !x.OfGPU():
		return nil
	}
	keys := []string{fmt.Sprintf("%s xid %d", boot, f.Xid)}
	if s.end.Kernel == nil {
		return keys
	}
	for _, line := range s.end.Kernel.Xids {
		if line.Code == f.Xid && line.BusID == c.Device.BusID {
			keys = append(keys, fmt.Sprintf("%s at %d", keys[0], line.Seq))
		}
	}
	return keys
}

func (o *offences) within(h History) record.Struck {
	s := record.Struck{Device: o.card.Device, Hours: int(h.Within.Hours())}
	if o.card.Index >= 0 {
		s.Index = &o.card.Index
	}
	s.Faults = slices.DeleteFunc(o.strikes, func(one record.Strike) bool { return h.At.Sub(one.At) > h.Within })
	s.Repeats = len(s.Faults) >= h.Faults
	return s
}
