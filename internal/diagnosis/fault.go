package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// fault judges errors of the GPUs and their driver: by what the ends found, or else by logs and messages.
func fault(e evidence) record.Cause {
	var found record.Cause
	for i, f := range slices.Concat(e.in.Findings, e.in.StartFindings) {
		found = worse(found, e.in.blame(f, i >= len(e.in.Findings), len(e.balances) > 0))
	}
	if found.Answer == record.Yes || found.Answer == record.CannotTell {
		return found
	}
	return cmp.Or(unfound(e), found, no("none in driver and kernel log"))
}

// blame judges one finding of an end, if it is about a fault. If CUDA served the job, there was a driver.
func (in Input) blame(f record.Finding, start, served bool) record.Cause {
	is := f.Code.Traits()
	text := is.Fault
	if f.Code == catalog.XidFatal && f.Xid != 0 {
		text += fmt.Sprintf(" (%s)", gpu.Error(f.Xid))
	}
	// A driver that hung or broke before the job may have recovered.
	doubtful := start && (f.Code == catalog.Stuck || f.Code == catalog.Broken) || f.Unknown != "" ||
		(is.Doubtful || f.Earlier) && len(f.Doubts) > 0 || in.Disputed != nil && in.Disputed(f) ||
		f.Code == catalog.NoDriver && served
	readLater := start && (f.Code == catalog.Slow || f.Code == catalog.Unread || f.Earlier)
	c := rules[record.Cause]{
		{f.NoteOnly != "" || readLater, record.Cause{}},
		{is.Silence != "" && (is.Fault == "" || doubtful), cannotTell(is.Silence)},
		{is.Fault != "" && doubtful, cannotTell("not certain: " + text)},
		{is.Fault != "", yes(text)},
		{f.Code == catalog.Xid && f.Unknown == "" && !start, byXid(f, in.Shared != "")},
	}.first()
	if c.Answer == "" {
		return c
	}
	c.Index = f.Index
	if start || f.Earlier {
		c.Evidence = "when your job began: " + c.Evidence
	}
	return c
}

// containedError is the Xid of an uncorrectable memory error that ended one program and affected no other.
const containedError = 94

// byXid judges an Xid that may have left the GPU usable, by what is known of its number or of the error that caused it.
func byXid(f record.Finding, shared bool) record.Cause {
	number := cmp.Or(f.CausedBy, f.Xid)
	e, _ := f.DriverError()
	const reported = "the driver reported an error that is "
	name := fmt.Sprintf(" (%s)", gpu.Error(number))
	return rules[record.Cause]{
		{e.Cause == catalog.ByProgram, no("the driver reported a program's error, not the GPU's")},
		{number == containedError && shared,
			cannotTell("the GPU had a memory error that ended a program, perhaps another job's" + name)},
		{number == containedError, yes("the GPU had a memory error that ended a program" + name)},
		{e.Cause != catalog.Unclear, cannotTell(reported + "no program's" + name + ": " + e.Meaning)},
		{true, cannotTell(reported + "not known to be a program's" + name)},
	}.first()
}

// unfound judges a fault without a finding: one that something else reports, or that may have gone unread.
func unfound(e evidence) record.Cause {
	met, unread, claim, certain := len(e.messages[record.KindFault]) > 0, unread(e), "", false
	if len(e.faults) > 0 && e.faults[0].is(string(record.CauseFault)) {
		claim, certain = "your program's output reports "+e.faults[0].Claim, e.faults[0].is("certain")
	}
	const mismatch = "a program on this node had a library of another version than the driver"
	return rules[record.Cause]{
		// any program on the node may have used its own library
		{e.in.Kernel.Mismatch != "", cannotTell(mismatch)},
		{logged(e), cannotTell("the driver reported a fault of a GPU; whether of your job's cannot be told")},
		{certain && !e.spread, yes(claim)}, // only for a job of one node is it known on which node the fault occurred
		{claim != "", cannotTell(claim)},
		{unread != "", cannotTell(unread)},
		{met && untested(e.in) != "", cannotTell("your program met a GPU error; CUDA was not tested after it")},
	}.first()
}

// logged reports whether the kernel log has a fault, not a note, that may be on the job's GPUs and is no program's.
func logged(e evidence) bool {
	return slices.ContainsFunc(e.in.Kernel.Xids, func(x gpu.Xid) bool {
		mayBeOn := func(c record.Assigned) bool { return c.Device.BusID == "" || c.Device.BusID == x.BusID }
		row, _ := catalog.LookupXid(cmp.Or(x.CausedBy, x.Code))
		isFault := row.Cause != catalog.ByProgram && !row.Noted()
		return isFault && (len(e.in.Cards) == 0 || slices.ContainsFunc(e.in.Cards, mayBeOn))
	})
}

// unread returns what was not read of the GPUs' condition and the kernel log, or "" if everything was.
func unread(e evidence) string {
	if len(e.in.Cards) == 0 {
		return noGPUs
	}
	for _, c := range e.in.Cards {
		reads := func(h gpu.Health) bool {
			return len(h.Facts) > 0 && h.Device != "" && (h.Device == c.Device.ID || h.Device == c.Device.Parent)
		}
		if e.in.HealthUnknown != "" || !slices.ContainsFunc(e.in.Health, reads) {
			return strings.TrimSuffix("GPU's condition not read: "+e.in.HealthUnknown, ": ")
		}
	}
	return unreadLog(e)
}

func unreadLog(e evidence) string {
	return rules[string]{{e.in.Kernel.Unknown != "" || e.in.Kernel.Lost, "the kernel log was not read in full"}}.first()
}

// inOrder judges, for a job that failed, whether its GPUs were in order from its start to its end. It is yes only if
// everything that tells was read and nothing was found; a test allocation that was due and not made is named with it.
func inOrder(e evidence) record.Cause {
	c := wasInOrder(e)
	if failed(e.in.Job.Exit) == "" {
		return record.Cause{}
	}
	lead := map[record.Answer]string{record.Yes: "The GPUs were in order ", record.No: "The GPUs were not in order: ",
		record.CannotTell: "Whether the GPUs were in order is not known: "}
	c.Name, c.Evidence = record.InOrder, lead[c.Answer]+c.Evidence
	return c
}

func wasInOrder(e evidence) record.Cause {
	for _, f := range slices.Concat(e.in.StartFindings, e.in.Findings) {
		entry, known := catalog.Lookup(f.Code)
		isUnsure := entry.Scope == catalog.Own || len(f.Doubts) > 0 || f.Xid != 0 && f.Cause() == catalog.Unclear
		switch {
		case f.Unknown != "", !known:
			return cannotTell(entry.Title)
		case entry.Severity == catalog.Note, f.NoteOnly != "":
		case f.Xid != 0 && f.Cause() == catalog.ByProgram: // it says nothing against the GPU
		case isUnsure:
			return cannotTell(entry.Title)
		default:
			return no(entry.Title)
		}
	}
	why, text := notRead(e), "from start to end"
	if i := slices.IndexFunc(e.in.Probes, gpu.Probe.Untested); i >= 0 {
		text += "; not tested by an allocation: " + e.in.Probes[i].Why
	}
	return rules[record.Cause]{{why != "", cannotTell(why)}, {true, yes(text)}}.first()
}

// notRead returns what is not known of the job's GPUs between its start and its end, "" if nothing.
func notRead(e evidence) string {
	partly := func(h gpu.Health) bool {
		return slices.ContainsFunc(h.Facts, func(f gpu.Fact) bool { return f.Unknown != "" })
	}
	unclean := func(c record.Assigned) bool {
		at := func(s *record.Side) bool { return s != nil && s.Curves[c.Device.ID].State == record.Clean }
		return !at(e.in.Start) || !at(e.in.End)
	}
	beside := func(s Sighting) bool { return !s.Own && !s.Likely && !e.ownPIDs[s.PID] && mayMatter(s.Bytes) }
	claim := ""
	if len(e.faults) > 0 && !e.faults[0].ofProgram() {
		claim = "the job's output reports " + e.faults[0].Claim
	}
	return cmp.Or(unread(e), rules[string]{
		{slices.ContainsFunc(e.in.Health, partly), "part of the GPUs' condition could not be read"},
		{e.in.Kernel.Mismatch != "" || logged(e), "the kernel log has an error that may be of these GPUs"},
		{claim != "", claim},
		{e.spread, "the GPUs of other nodes are not known"},
		{e.in.Shared == "" && slices.ContainsFunc(e.in.Seen, beside), "a process that may not be the job's was on one"},
		{slices.ContainsFunc(e.in.Cards, unclean), "not every GPU was seen clean at both ends"},
	}.first())
}
