package settle

import (
	"cmp"
	"slices"

	"bookend/internal/gpu"
)

// tolerance is how far two readings may differ and still count as equal: 2 MiB, the page in which the driver
// hands memory out and takes it back. Leftovers were measured not to move at all, teardown to move by
// hundreds of MiB between two looks, so nothing real lies in between; an exact comparison would let a single
// page of the driver's own keep a leak "moving" for ever.
const tolerance = 2 << 20

// look is what one snapshot says about one device.
type look struct {
	reading gpu.Reading
	missing string // why the snapshot has no reading of the device; empty when it has
	faults  []gpu.FaultCode
}

func lookAt(s gpu.Snapshot, d gpu.Device) (l look) {
	for _, f := range s.Faults {
		if concerns(f, d) {
			l.faults = append(l.faults, f.Code)
			l.missing = cmp.Or(l.missing, f.Detail, string(f.Code))
		}
	}
	slices.Sort(l.faults)
	l.missing = cmp.Or(l.missing, "device missing from the look")
	// The reading of a device that is known by its bus id alone; the MIG instances there have ids.
	byBus := func(r gpu.Reading) bool { return r.Device.BusID == d.BusID && d.BusID != "" && r.Device.Parent == "" }
	for _, r := range s.Readings {
		if d.ID != "" && r.Device.ID == d.ID || d.ID == "" && byBus(r) {
			l.reading, l.missing = r, ""
			break
		}
	}
	return l
}

// concerns reports whether a fault is the device's. One that names another id at the same bus id is not: a card's
// MIG instances share it. A device without any name has the faults without one.
func concerns(f gpu.Fault, d gpu.Device) bool {
	if f.Device != "" && d.ID != "" {
		return f.Device == d.ID
	}
	return f.BusID == d.BusID && (d.BusID != "" || f.Device == d.ID)
}

// clean answers whether the look shows nothing beyond what is expected, or why it cannot tell. Both memory and
// processes must be within: an exported handle has memory and no process, a client that has just started a process and
// no memory. Either one beyond is enough for "no", and so is a stranger in an incomplete list.
func (l look) clean(rule gpu.WatchRule) (clean bool, unknown string) {
	if l.missing != "" {
		return false, l.missing
	}
	r, want := l.reading, rule.Expect[l.reading.Device.ID]
	stranger := slices.ContainsFunc(r.Processes, func(p gpu.Process) bool { _, ok := want.Expects(p.PID); return !ok })
	within, why := l.memoryWithin(rule)
	switch {
	case stranger || !within && why == "":
		return false, ""
	case r.ProcessesUnknown != "":
		return false, "processes: " + r.ProcessesUnknown
	case why != "":
		return false, "memory: " + why
	}
	return true, ""
}

// memoryWithin compares used memory with the expected. A figure that contains the driver's own share can only
// be compared with an earlier figure of the same kind: against an idle 0 it says nothing.
func (l look) memoryWithin(rule gpu.WatchRule) (within bool, unknown string) {
	m, want := l.reading.Memory, rule.Expect[l.reading.Device.ID].Used(l.reading.Processes)
	switch {
	case m.Unjudged != "":
		return false, m.Unjudged
	case !m.Used.Known():
		return false, m.Used.Unknown
	case l.incomparable(rule):
		return false, "the driver counts its own share as used, and no earlier reading is known"
	}
	return m.Used.Bytes <= want || m.Used.Bytes-want < rule.SlackBytes, ""
}

// incomparable reports a figure that no further look can make comparable.
func (l look) incomparable(rule gpu.WatchRule) bool {
	return l.reading.Memory.Unjudged != "" || l.reading.Memory.UsedHasReserved &&
		rule.Expect[l.reading.Device.ID].Bytes == 0
}

// equal reports whether two looks say the same, within tolerance. What both could not read counts as the same,
// unless the driver gave different reasons.
func equal(a, b look) bool {
	if !slices.Equal(a.faults, b.faults) {
		return false
	}
	if a.unread() || b.unread() {
		return a.unread() && b.unread()
	}
	if (a.reading.ProcessesUnknown == "") != (b.reading.ProcessesUnknown == "") {
		return false
	}
	unjudged := a.reading.Memory.Unjudged != "" && b.reading.Memory.Unjudged != "" // files come and go in it
	return (unjudged || equalFigure(a.reading.Memory.Used, b.reading.Memory.Used)) &&
		equalProcesses(a.reading.Processes, b.reading.Processes)
}

// unread is true when nothing is known: a card may fail before its reading or in it.
func (l look) unread() bool {
	r := l.reading
	return l.missing != "" || !r.Memory.Used.Known() && r.ProcessesUnknown != "" && len(r.Processes) == 0
}

func equalProcesses(a, b []gpu.Process) bool {
	if len(a) != len(b) {
		return false
	}
	for i, p := range a {
		if b[i].PID != p.PID { // backends sort by PID, but do not promise it
			i = slices.IndexFunc(b, func(q gpu.Process) bool { return q.PID == p.PID })
		}
		if i < 0 || !equalFigure(p.Memory, b[i].Memory) {
			return false
		}
	}
	return true
}

func equalFigure(a, b gpu.Figure) bool {
	if !a.Known() || !b.Known() {
		return a.Known() == b.Known()
	}
	return max(a.Bytes, b.Bytes)-min(a.Bytes, b.Bytes) <= tolerance
}
