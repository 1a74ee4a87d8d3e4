// Package settle holds the one rule by which a series of looks at a device is called clean, flat or still
// moving. The backend uses it to stop looking, the hook to judge what it got: never on one sample, except
// that a device whose memory and processes are both clean is clean at once.
package settle

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/gpu"
)

// State is what a series of looks at one device amounts to.
type State string

const (
	Clean   State = "clean"   // the last look shows nothing beyond what is expected
	Flat    State = "flat"    // something is there and has not changed for the rule's time, seen often enough
	Moving  State = "moving"  // still changing, or not watched long enough to tell
	Unknown State = "unknown" // the last look could not read it
)

// AtRest reports that what is there, if anything, has stopped changing.
func (s State) AtRest() bool { return s == Clean || s == Flat }

// Dirty reports that something is there, be it at rest or not.
func (s State) Dirty() bool { return s == Flat || s == Moving }

// Curve is the verdict on one device's series of looks.
type Curve struct {
	State   State         `json:"state"`
	Why     string        `json:"why,omitempty"` // for Unknown
	Looks   int           `json:"looks"`
	Settled time.Duration `json:"settled_ns"` // from the first look to the first of the final equal ones
	Span    time.Duration `json:"span_ns"`    // from the first look to the last
	// Steady is true when the final looks said the same for Rule.Flat, in looks enough and close enough to have
	// seen it: always for Flat; for Unknown it says that the device's fault, or what cannot be read, stayed.
	Steady bool `json:"steady,omitempty"`
}

// What it takes for equal looks to be an observation and not a coincidence.
const (
	// fewestLooks: two equal looks may be one moment that was met twice, such as two stalled calls or two points
	// of a sawtooth (readings jump during a teardown). The schedule gives four in the shortest default, 2 s.
	fewestLooks = 3
	// longestGap between neighbouring looks: nobody saw what lies in a longer one. The schedule's longest pause
	// is 1 s and the slowest call measured took 0.4 s; more is a stalled driver or a machine that was suspended
	// (looks are stamped with CLOCK_BOOTTIME, which goes on meanwhile).
	longestGap = 1500 * time.Millisecond
)

// JudgeDevice says what a series of looks, oldest first, amounts to for a device, which may be known by its bus id
// alone; its faults may name it either way. For a clean device the final equal looks are those that are clean. Unknown
// means that the last look shows nothing unexpected but could not read everything that would make it clean; an
// unexpected process is proof enough of the contrary.
func JudgeDevice(rule gpu.WatchRule, d gpu.Device, looks []gpu.Snapshot) Curve {
	if len(looks) == 0 {
		return Curve{State: Unknown, Why: "never looked at"}
	}
	last := lookAt(looks[len(looks)-1], d)
	clean, why := last.clean(rule)
	same := func(l look) bool { return equal(l, last) }
	if clean {
		same = func(l look) bool { also, _ := l.clean(rule); return also }
	}
	first := len(looks) - 1 // of the final looks that all say the same
	for first > 0 && same(lookAt(looks[first-1], d)) {
		first--
	}
	curve := Curve{
		Looks: len(looks), Span: span(looks), Settled: since(looks[0], looks[first]),
		Steady: observed(rule.Flat, looks[first:]),
	}
	switch {
	case clean:
		curve.State = Clean
	case why != "":
		curve.State, curve.Why = Unknown, why
	case curve.Steady:
		curve.State = Flat
	default:
		curve.State = Moving
	}
	return curve
}

// Done reports whether watching may end: every device is clean, or has said the same for Rule.Flat (be it that
// something is there or that it cannot be read), or no further look can tell more, or Rule.Max is over.
// A device that was asked for counts whether or not a look could read it.
func Done(rule gpu.WatchRule, devices []gpu.Device, looks []gpu.Snapshot) bool {
	if len(looks) == 0 {
		return false
	}
	if span(looks) >= rule.Max {
		return true
	}
	last := looks[len(looks)-1]
	for _, d := range devices {
		curve := JudgeDevice(rule, d, looks)
		useless := curve.State == Unknown && lookAt(last, d).reading.Memory.Unjudged != ""
		if curve.State != Clean && !curve.Steady && !useless {
			return false
		}
	}
	return true
}

// Pause returns how long to wait after n looks, so that looks fall at 0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.6, … s:
// dense over the 0.1 to 0.4 s of a teardown, sparse over the seconds in which orphaned workers notice.
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

// observed reports equal looks without a long gap, long and many enough. What was seen so well stays so.
func observed(flat time.Duration, equal []gpu.Snapshot) bool {
	first := 0
	for i := 1; i < len(equal); i++ {
		if since(equal[i-1], equal[i]) > longestGap {
			first = i
		}
		if i-first+1 >= fewestLooks && since(equal[first], equal[i]) >= flat {
			return true
		}
	}
	return false
}

func span(looks []gpu.Snapshot) time.Duration { return since(looks[0], looks[len(looks)-1]) }

// since never goes back: stamps come from another process.
func since(a, b gpu.Snapshot) time.Duration { return max(0, b.At-a.At) }

// Stay is memory that every look showed: a process's, or with PID 0 what no listed process accounts for. Its figure is
// the least that any look saw.
type Stay struct {
	gpu.Process
	// Soon is how many bytes are left in 5 s, if it goes on as it did over all looks.
	Soon uint64
	// Ending says that a process which holds it, or may hold it, ended too lately to tell what stays.
	Ending bool
}

// Stayed lists the processes that every one of these looks shows on a device, where the looks are enough to call
// something flat. What the total does meanwhile does not matter: something else on the GPU may move for ever. A PID
// names one process only with its start time, which the caller has to compare.
func Stayed(rule gpu.WatchRule, d gpu.Device, looks []gpu.Snapshot) (stayed []Stay) {
	readings := trusted(rule, d, looks)
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
			stayed = append(stayed, stay(p, looks, held))
		}
	}
	return stayed
}

// Rest is what a balance leaves of a device's memory in every one of these looks, where they are enough to call
// something flat. It is unknown if the balance of one of them is.
func Rest(rule gpu.WatchRule, d gpu.Device, looks []gpu.Snapshot, balance func(gpu.Reading) gpu.Figure) Stay {
	held := []gpu.Figure{gpu.Unknown("not seen in every sample")}
	if readings := trusted(rule, d, looks); len(readings) > 0 {
		held = held[:0]
		for _, r := range readings {
			held = append(held, balance(r))
		}
	}
	return stay(gpu.Process{}, looks, held)
}

// trusted are a device's readings, none unless every look has one with all processes and they were observed.
func trusted(rule gpu.WatchRule, d gpu.Device, looks []gpu.Snapshot) (all []gpu.Reading) {
	if !observed(rule.Flat, looks) {
		return nil
	}
	for _, s := range looks {
		l := lookAt(s, d)
		if l.missing != "" || l.reading.ProcessesUnknown != "" {
			return nil
		}
		all = append(all, l.reading)
	}
	return all
}

// stay is a process whose memory each look showed so. A figure that any look could not read is unknown.
func stay(p gpu.Process, looks []gpu.Snapshot, held []gpu.Figure) Stay {
	p.Memory = held[0]
	for _, f := range held {
		if !f.Known() {
			p.Memory = f
			return Stay{Process: p}
		}
		p.Memory.Bytes = min(p.Memory.Bytes, f.Bytes)
	}
	return Stay{Process: p, Soon: soon(looks, held)}
}

// ahead is how long what is being given back may take to be gone: as long again as a watch. Real teardown takes 0.4 s.
const ahead = 5 * time.Second

// soon extends the line that fits these figures best, from the last one on, if it falls. A few MiB less at each look,
// or a sawtooth, leave much; memory that is really given back falls over the whole watch.
func soon(looks []gpu.Snapshot, held []gpu.Figure) uint64 {
	n := float64(len(held))
	var meanAt, meanHeld, together, spread float64
	for i := range held {
		meanAt += since(looks[0], looks[i]).Seconds() / n
		meanHeld += float64(held[i].Bytes) / n
	}
	for i := range held {
		at := since(looks[0], looks[i]).Seconds() - meanAt
		together += at * (float64(held[i].Bytes) - meanHeld)
		spread += at * at
	}
	slope := min(0, together/max(spread, 1e-9)) // stamps come from another process: all may be one
	return uint64(max(0, float64(held[len(held)-1].Bytes)+slope*ahead.Seconds()))
}

// tolerance is how far two readings may differ and still count as equal: 2 MiB, the page in which the driver
// hands memory out and takes it back. Leftovers were measured not to move at all, teardown to move by
// hundreds of MiB between two looks, so nothing real lies in between; an exact comparison would let a single
// page of the driver's own keep a leak "moving" for ever.
const tolerance = 2 << 20

type look struct {
	reading gpu.Reading
	missing string // why the snapshot has no reading of the device; empty when it has
	faults  []gpu.FaultCode
}

func lookAt(s gpu.Snapshot, d gpu.Device) (l look) {
	for _, f := range s.Faults {
		if Concerns(f, d) {
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

// Concerns reports a fault of a device, or of the GPU that it is a MIG instance of. Other instances share its bus id.
func Concerns(f gpu.Fault, d gpu.Device) bool {
	if f.Device != "" && d.ID != "" {
		return f.Device == d.ID || f.Device == d.Parent
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

func (l look) memoryWithin(rule gpu.WatchRule) (within bool, unknown string) {
	m, want := l.reading.Memory, rule.Expect[l.reading.Device.ID].Used(l.reading.Processes)
	switch {
	case m.Unjudged != "":
		return false, m.Unjudged
	case !m.Used.Known():
		return false, m.Used.Unknown
	}
	return m.Used.Bytes <= want || m.Used.Bytes-want < rule.SlackBytes, ""
}

// equal reports whether two looks say the same, within tolerance; what both could not read is, if for one reason.
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
		equalProcesses(a.reading, b.reading)
}

// unread is true when nothing is known: a card may fail before its reading or in it.
func (l look) unread() bool {
	r := l.reading
	return l.missing != "" || !r.Memory.Used.Known() && r.ProcessesUnknown != "" && len(r.Processes) == 0
}

func equalProcesses(a, b gpu.Reading) bool {
	if len(a.Processes) != len(b.Processes) {
		return false
	}
	for _, p := range a.Processes { // backends sort by PID, but do not promise it
		if q, listed := b.Process(p.PID); !listed || !equalFigure(p.Memory, q.Memory) {
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
