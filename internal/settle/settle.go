// Package settle holds the one rule that calls a series of samples of a device clean, flat or still moving. The backend
// uses it to stop sampling, the hook to judge the samples. One sample is never enough, except that a device whose
// memory and processes are both clean is clean at once.
package settle

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// What makes equal samples an observation and not a coincidence.
const (
	// fewestSamples: two equal samples may show the same moment, as in two stalled calls or two points of a sawtooth
	// (readings jump during a teardown). The schedule gives four in the shortest default, 2 s.
	fewestSamples = 3
	// longestGap between neighbouring samples: in a longer one, changes go unseen. The schedule's longest pause is 1 s
	// and the slowest call measured took 0.4 s; a longer gap is a stalled driver or a suspended machine (samples are
	// stamped with CLOCK_BOOTTIME, which continues meanwhile).
	longestGap = 1500 * time.Millisecond
)

// JudgeDevice judges a series of samples, oldest first, of a device, which may be known by its bus id alone; its faults
// may name it either way. For a clean device the final equal samples are those that are clean. Unknown means that the
// last sample shows nothing unexpected, such as a process, but could not read all that would make it clean.
func JudgeDevice(rule gpu.WatchRule, d gpu.Device, samples []gpu.Snapshot) record.Curve {
	if len(samples) == 0 {
		return record.Curve{State: record.Unreadable, Why: "never looked at"}
	}
	last := sampleOf(samples[len(samples)-1], d)
	clean, why := last.clean(rule)
	same := func(l sample) bool { return equal(l, last) }
	if clean {
		same = func(l sample) bool { also, _ := l.clean(rule); return also }
	}
	first := len(samples) - 1 // the first of the final samples that are all equal
	for first > 0 && same(sampleOf(samples[first-1], d)) {
		first--
	}
	curve := record.Curve{Looks: len(samples), Span: span(samples), Settled: since(samples[0], samples[first]),
		Steady: observed(rule.Flat, samples[first:])}
	switch {
	case clean:
		curve.State = record.Clean
	case why != "":
		curve.State, curve.Why = record.Unreadable, why
	case curve.Steady:
		curve.State = record.Flat
	default:
		curve.State = record.Moving
	}
	return curve
}

// Done reports whether sampling may stop: every device is clean or has not changed for Rule.Flat (something is there,
// or it cannot be read), or further samples cannot tell more, or Rule.Max is over. A device that was asked for counts
// whether or not a sample could read it.
func Done(rule gpu.WatchRule, devices []gpu.Device, samples []gpu.Snapshot) bool {
	if len(samples) == 0 {
		return false
	}
	if span(samples) >= rule.Max {
		return true
	}
	last := samples[len(samples)-1]
	for _, d := range devices {
		curve := JudgeDevice(rule, d, samples)
		useless := curve.State == record.Unreadable && sampleOf(last, d).reading.Memory.Unjudged != ""
		if curve.State != record.Clean && !curve.Steady && !useless {
			return false
		}
	}
	return true
}

// Pause returns how long to wait after n samples, so that samples fall at 0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.6, … s: dense
// over the 0.1 to 0.4 s of a teardown, sparse over the seconds in which orphaned workers notice and end.
func Pause(n int) time.Duration {
	const first, longest = 100 * time.Millisecond, time.Second
	switch {
	case n <= 1:
		return first
	case n >= 6: // first << 4 is beyond the longest
		return longest
	}
	return first << (n - 2)
}

// observed reports whether equal samples without a long gap are enough in number and time, whatever comes later.
func observed(flat time.Duration, equal []gpu.Snapshot) bool {
	first := 0
	for i := 1; i < len(equal); i++ {
		if since(equal[i-1], equal[i]) > longestGap {
			first = i
		}
		if i-first+1 >= fewestSamples && since(equal[first], equal[i]) >= flat {
			return true
		}
	}
	return false
}

func span(samples []gpu.Snapshot) time.Duration { return since(samples[0], samples[len(samples)-1]) }

// since is never negative: the timestamps come from another process.
func since(a, b gpu.Snapshot) time.Duration { return max(0, b.At-a.At) }

// Stayed returns the processes that every one of these samples shows on a device, if the samples are enough to call
// something flat. Changes of the total do not matter: something else on the GPU may change for ever. A PID identifies a
// process only with its start time, which the caller has to compare.
func Stayed(rule gpu.WatchRule, d gpu.Device, samples []gpu.Snapshot) (stayed []record.Stay) {
	readings := trusted(rule, d, samples)
	if len(readings) == 0 {
		return nil
	}
	for _, p := range readings[len(readings)-1].Processes {
		held, always := []gpu.Figure{}, true
		for _, r := range readings {
			q, listed := r.Process(p.PID)
			held, always = append(held, q.Memory), always && listed
		}
		if always {
			stayed = append(stayed, stay(p, samples, held))
		}
	}
	return stayed
}

// Rest returns what a balance leaves of a device's memory in every one of these samples, if they are enough to call
// something flat. It is unknown if the balance of one of them is.
func Rest(rule gpu.WatchRule, d gpu.Device, samples []gpu.Snapshot, balance func(gpu.Reading) gpu.Figure) record.Stay {
	held := []gpu.Figure{gpu.Unknown("not seen in every sample")}
	if readings := trusted(rule, d, samples); len(readings) > 0 {
		held = held[:0]
		for _, r := range readings {
			held = append(held, balance(r))
		}
	}
	return stay(gpu.Process{}, samples, held)
}

// trusted returns a device's readings, or none unless every sample has one with all processes and they were observed.
func trusted(rule gpu.WatchRule, d gpu.Device, samples []gpu.Snapshot) (all []gpu.Reading) {
	if !observed(rule.Flat, samples) {
		return nil
	}
	for _, s := range samples {
		l := sampleOf(s, d)
		if l.missing != "" || l.reading.ProcessesUnknown != "" {
			return nil
		}
		all = append(all, l.reading)
	}
	return all
}

// stay returns a process with the smallest of these figures, or an unknown one if any sample could not read it.
func stay(p gpu.Process, samples []gpu.Snapshot, held []gpu.Figure) record.Stay {
	p.Memory = held[0]
	for _, f := range held {
		if !f.Known() {
			p.Memory = f
			return record.Stay{Process: p}
		}
		p.Memory.Bytes = min(p.Memory.Bytes, f.Bytes)
	}
	return record.Stay{Process: p, Soon: soon(samples, held)}
}

// ahead is how long memory being freed may take to be gone: as long again as a watch. Real teardown takes 0.4 s.
const ahead = 5 * time.Second

// soon extrapolates the line that best fits these figures, from the last one on, if it falls. A few MiB less in each
// sample, or a sawtooth, leave much; memory that is really being freed falls over the whole watch.
func soon(samples []gpu.Snapshot, held []gpu.Figure) uint64 {
	n := float64(len(held))
	var meanAt, meanHeld, together, spread float64
	for i := range held {
		meanAt += since(samples[0], samples[i]).Seconds() / n
		meanHeld += float64(held[i].Bytes) / n
	}
	for i := range held {
		at := since(samples[0], samples[i]).Seconds() - meanAt
		together += at * (float64(held[i].Bytes) - meanHeld)
		spread += at * at
	}
	slope := min(0, together/max(spread, 1e-9)) // timestamps come from another process: all may be equal
	return uint64(max(0, float64(held[len(held)-1].Bytes)+slope*ahead.Seconds()))
}

// tolerance is how far two readings may differ and still count as equal: 2 MiB, the page in which the driver allocates
// and frees memory. Leftovers were measured not to change at all, teardown to change by hundreds of MiB between two
// samples; with an exact comparison, a single page of the driver's own could keep a leak "moving" for ever.
const tolerance = 2 << 20

type sample struct {
	reading gpu.Reading
	missing string // why the snapshot has no reading of the device; empty if it has one
	faults  []gpu.FaultCode
}

func sampleOf(s gpu.Snapshot, d gpu.Device) (l sample) {
	for _, f := range s.Faults {
		if f.Concerns(d) {
			l.faults = append(l.faults, f.Code)
			l.missing = cmp.Or(l.missing, f.Detail, string(f.Code))
		}
	}
	slices.Sort(l.faults)
	l.missing = cmp.Or(l.missing, "device missing from the look")
	// This is the reading of a device known by its bus id alone: MIG instances with that bus id have ids.
	byBus := func(r gpu.Reading) bool { return r.Device.BusID == d.BusID && d.BusID != "" && r.Device.Parent == "" }
	for _, r := range s.Readings {
		if d.ID != "" && r.Device.ID == d.ID || d.ID == "" && byBus(r) {
			l.reading, l.missing = r, ""
			break
		}
	}
	return l
}

// clean reports whether the sample shows nothing beyond what is expected, or why that is unknown. Both memory and
// processes must be within it: an exported handle has memory and no process, a client that has just started a process
// and no memory. One of them beyond it means not clean, and so does an unexpected process in an incomplete list.
func (l sample) clean(rule gpu.WatchRule) (clean bool, unknown string) {
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

func (l sample) memoryWithin(rule gpu.WatchRule) (within bool, unknown string) {
	m, want := l.reading.Memory, rule.Expect[l.reading.Device.ID].Used(l.reading.Processes)
	switch {
	case m.Unjudged != "":
		return false, m.Unjudged
	case !m.Used.Known():
		return false, m.Used.Unknown
	}
	return m.Used.Bytes <= want || m.Used.Bytes-want < rule.SlackBytes, ""
}

// equal reports whether two samples are equal, within tolerance. If both could not be read for one reason, they are.
func equal(a, b sample) bool {
	if !slices.Equal(a.faults, b.faults) {
		return false
	}
	if a.unread() || b.unread() {
		return a.unread() && b.unread()
	}
	if (a.reading.ProcessesUnknown == "") != (b.reading.ProcessesUnknown == "") {
		return false
	}
	unjudged := a.reading.Memory.Unjudged != "" && b.reading.Memory.Unjudged != "" // system files vary in it
	return (unjudged || equalFigure(a.reading.Memory.Used, b.reading.Memory.Used)) &&
		equalProcesses(a.reading, b.reading)
}

// unread reports whether nothing is known of the device: a GPU may fail before or during its reading.
func (l sample) unread() bool {
	r := l.reading
	return l.missing != "" || !r.Memory.Used.Known() && r.ProcessesUnknown != "" && len(r.Processes) == 0
}

func equalProcesses(a, b gpu.Reading) bool {
	differs := func(p gpu.Process) bool { // backends sort by PID, but do not promise it
		q, listed := b.Process(p.PID)
		return !listed || !equalFigure(p.Memory, q.Memory)
	}
	return len(a.Processes) == len(b.Processes) && !slices.ContainsFunc(a.Processes, differs)
}

func equalFigure(a, b gpu.Figure) bool {
	if !a.Known() || !b.Known() {
		return a.Known() == b.Known()
	}
	return max(a.Bytes, b.Bytes)-min(a.Bytes, b.Bytes) <= tolerance
}
