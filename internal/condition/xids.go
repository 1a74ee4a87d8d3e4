package condition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// NVIDIA's numbers that have rules of their own.
const (
	cleanedUp       = 45 // logged for each program that the driver ends, whatever the reason
	fallenOffTheBus = 79 // after it, no driver reports anything about the GPU any more
	contained       = 94 // a memory error that ended one program
	recoveryChanged = 154
)

// consequence is the time within which a program's error follows from a fault of its GPU.
const consequence = 10 * time.Second

func lookup(x gpu.Xid) catalog.DriverError {
	e, _ := catalog.LookupXid(cmp.Or(x.CausedBy, x.Code))
	return e
}

// xids judges the kernel log's lines about one GPU: all lines with one number and one cause are one finding.
func (in Input) xids(c record.Assigned, now gpu.Health) []record.Finding {
	lines := follow(only(in.Kernel.Xids, func(x gpu.Xid) bool {
		return x.BusID == c.Device.BusID && lookup(x).Code != catalog.KernelLog
	}))
	has := func(code int) bool { return slices.ContainsFunc(lines, func(x gpu.Xid) bool { return x.Code == code }) }
	var out []record.Finding
	for _, alike := range grouped(lines) {
		first := alike[0]
		if first.Code == gpu.BusLost && has(fallenOffTheBus) {
			continue // newer drivers write both
		}
		f := in.xid(c, now, alike)
		if has(first.CausedBy) {
			f.NoteOnly = "it followed from " + gpu.Error(first.CausedBy)
		}
		if f.Code == catalog.XidFatal && mended(lines, first) {
			f.AddDoubt("the driver said after it that the GPU needs no recovery")
		}
		out = append(out, f)
	}
	return out
}

// unnamed judges the lines that name no GPU: those of NVSwitches, PCIe slots and parts of AMD's driver.
func (in Input) unnamed() []record.Finding {
	var out []record.Finding
	for _, alike := range grouped(only(in.Kernel.Xids, func(x gpu.Xid) bool {
		return x.BusID == "" || lookup(x).Code == catalog.KernelLog
	})) {
		f := about(alike)
		f.Code, f.Expected = catalog.KernelLog, expected[catalog.KernelLog]
		if alike[0].BusID == "" {
			f.AddDoubt("the line names no GPU")
		}
		if f.Cause() == catalog.ByProgram {
			f.NoteOnly = "it is a program's error, on a GPU that is not named"
		}
		out = append(out, withDoubts(f, in.KernelDoubt, in.Doubt))
	}
	return out
}

func only(lines []gpu.Xid, are func(gpu.Xid) bool) []gpu.Xid {
	return slices.DeleteFunc(slices.Clone(lines), func(x gpu.Xid) bool { return !are(x) })
}

// grouped returns the lines by number and cause, in the order of the first of each.
func grouped(lines []gpu.Xid) (groups [][]gpu.Xid) {
	for _, x := range lines {
		i := slices.IndexFunc(groups, func(g []gpu.Xid) bool { return like(g[0])(x) })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], x)
	}
	return groups
}

func like(x gpu.Xid) func(gpu.Xid) bool {
	return func(y gpu.Xid) bool { return y.Code == x.Code && y.CausedBy == x.CausedBy }
}

// follow adds the cause to programs' errors that follow from a fault of the same GPU, where the lines do not name it.
func follow(lines []gpu.Xid) []gpu.Xid {
	var fault gpu.Xid
	for i, x := range lines {
		e := lookup(x)
		isConsequence := e.Cause == catalog.ByProgram && x.CausedBy == 0 && !x.LacksLine() &&
			x.At-fault.At <= consequence
		switch {
		case e.Code == catalog.XidFatal && e.Doubt == "" || x.Code == contained:
			fault = x
		case isConsequence && (fault.Instance == "" || fault.Instance == x.Instance):
			lines[i].CausedBy = fault.Code
		}
	}
	return lines
}

// mended reports whether the driver said after the last line like this one that the GPU needs no recovery. Its last
// word counts: on the way to a reset it may ask for one thing after another.
func mended(lines []gpu.Xid, x gpu.Xid) bool {
	over := false
	for _, y := range lines {
		switch {
		case y.Code == recoveryChanged:
			over = y.Recovery == gpu.RecoveryActions[0]
		case y.Code == gpu.AMDRecovered:
			over = true
		case like(x)(y):
			over = false
		}
	}
	return over
}

func about(alike []gpu.Xid) record.Finding {
	first := alike[0]
	own, _ := catalog.LookupXid(first.Code)
	f := finding(own.Code, describe(alike), own.Doubt)
	f.Xid, f.CausedBy, f.NoteOnly, f.Seen = first.Code, first.CausedBy, noteOnly(alike), first.Seen
	if first.EventOnly {
		f.AddDoubt("only an event of the driver reported it, and no line of the kernel log")
	}
	return f
}

// noteOnly returns why lines are worth no more than a note, empty if they are.
func noteOnly(alike []gpu.Xid) string {
	last := alike[len(alike)-1]
	isMild := !slices.ContainsFunc(alike, func(x gpu.Xid) bool { return !strings.HasPrefix(x.Text, "Non-fatal") })
	_, known := catalog.LookupXid(last.Code)
	switch {
	case last.CausedBy != 0:
		return ""
	case last.Code == cleanedUp:
		return "the driver logs it for a program that is ended, as by scancel, and the log has no cause"
	case last.Code == recoveryChanged && last.Recovery == gpu.RecoveryActions[0]:
		return "the driver asks for no recovery any more"
	case last.Code == gpu.PortDown:
		return "what is behind the slot may be no GPU"
	case lookup(last).Noted():
		return "it needs no repair"
	case !known && last.Code > gpu.FirstSXid && isMild:
		return "the NVSwitch calls it not fatal"
	}
	return ""
}

func (in Input) xid(c record.Assigned, now gpu.Health, alike []gpu.Xid) record.Finding {
	f := withDoubts(about(alike), in.KernelDoubt)
	isLost := f.Xid == fallenOffTheBus || f.Xid == gpu.BusLost
	if f.Code == catalog.XidFatal && needsNoRecovery(now) {
		f.AddDoubt("the driver itself asks for no recovery of the GPU")
	}
	if f.Code == catalog.XidFatal && !isLost && len(in.Now) == 0 {
		f.AddDoubt("the driver did not say whether the GPU recovered")
	}
	if c.Device.Parent != "" && !slices.ContainsFunc(alike, func(x gpu.Xid) bool { return x.Instance == "" }) {
		f.Unknown = fmt.Sprintf("%s (%s) in the kernel log is of MIG %s: whether that is this job's cannot be told",
			gpu.Error(f.Xid), meaning(alike[0]), strings.Join(instances(alike), ", "))
	}
	return f
}

// meaning returns what a line says: of a change of the recovery action what the driver asks for now.
func meaning(x gpu.Xid) string {
	if x.Code != recoveryChanged || x.Recovery == "" {
		return lookup(x).Meaning
	}
	for _, r := range factRows() {
		if asked, _ := r.judge(r, x.Recovery, gpu.Fact{}); r.Fact == gpu.RecoveryAction && asked != "" {
			return asked
		}
	}
	return "the driver asks for no recovery any more"
}

const mostText = 120 // bytes

// describe returns number, meaning, count and times by the log's clock, MIG instances, and the last line's text.
func describe(alike []gpu.Xid) string {
	first, last := alike[0], alike[len(alike)-1]
	written := 0 // lines, kept or not
	for _, x := range alike {
		written += 1 + x.More
	}
	s := gpu.Error(first.Code)
	if first.CausedBy != 0 {
		s += " after " + gpu.Error(first.CausedBy)
	}
	s += fmt.Sprintf(" (%s)", meaning(last))
	switch {
	case first.LacksLine():
		s += fmt.Sprintf(", recorded while the job ran (%d in all)", written)
	case written == 1:
		s += fmt.Sprintf(" at %.6f s of the kernel log", first.At.Seconds())
	default:
		s += fmt.Sprintf(", %d times from %.6f to %.6f s of the kernel log", written, first.At.Seconds(),
			last.At.Seconds())
	}
	for _, more := range instances(alike) {
		s += ", " + more
	}
	if pid := last.OwnerPID(); pid != 0 {
		s += fmt.Sprintf(", PID %d", pid)
	}
	if last.Text != "" {
		s += ": " + last.Text[:min(len(last.Text), mostText)]
	}
	return s
}

func instances(alike []gpu.Xid) (out []string) {
	for _, x := range alike {
		if x.Instance != "" && !slices.Contains(out, x.Instance) {
			out = append(out, x.Instance)
		}
	}
	return out
}

// WithRecorded returns the kernel log, nil if it was not read, with the errors that the recorder saw of a run's GPUs;
// nil if there is neither. An error that is in both is one.
func WithRecorded(log *gpu.KernelLog, run record.Run, seen record.Recording) *gpu.KernelLog {
	all := gpu.KernelLog{Unknown: "not read since the job began"}
	if log != nil {
		all = *log
		all.Xids = slices.Clone(log.Xids)
	}
	for _, g := range seen.GPUs {
		i := slices.IndexFunc(run.Devices, func(d record.Assigned) bool { return d.Device.ID == g.ID })
		if i >= 0 && run.Devices[i].Device.BusID != "" {
			for _, f := range g.Faults {
				all.Xids = withFault(all.Xids, run.Devices[i].Device.BusID, f)
			}
		}
	}
	if log == nil && len(all.Xids) == 0 {
		return nil
	}
	return &all
}

// withFault adds an error that the recorder saw to those of the kernel log. An event without a number adds nothing to
// an error of the same GPU that has one and is not a program's.
func withFault(log []gpu.Xid, bus gpu.BusID, f record.RecordedFault) []gpu.Xid {
	known := false
	for i, x := range log {
		if x.BusID == bus && x.Code == f.Code {
			log[i].Seen, known = f.First, true
		}
		known = known || x.BusID == bus && gpu.IsEvent(f.Code) && !catalog.OfProgram(x.Code)
	}
	if known {
		return log
	}
	return append(log, gpu.Xid{BusID: bus, Code: f.Code, More: f.Times() - 1, Seen: f.First, EventOnly: f.Lines == 0})
}
