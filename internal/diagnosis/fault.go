package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/condition"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// fault judges errors of the GPUs and their driver: by what the ends found, or else by logs and messages.
func fault(e evidence) record.Cause {
	var found record.Cause
	for _, f := range e.in.Findings {
		found = worse(found, blame(f, false, len(e.balances) > 0))
	}
	for _, f := range e.in.StartFindings {
		found = worse(found, blame(f, true, len(e.balances) > 0))
	}
	if found.Answer == record.Yes || found.Answer == record.CannotTell {
		return found
	}
	return cmp.Or(unfound(e), found, no("none in driver and kernel log"))
}

// blame judges one finding of an end, if it is about a fault. If CUDA served the job, there was a driver.
func blame(f record.Finding, start, served bool) (c record.Cause) {
	is := f.Code.Traits()
	text := is.Fault
	if f.Code == catalog.XidFatal && f.Xid != 0 {
		text += fmt.Sprintf(" (%s)", gpu.Error(f.Xid))
	}
	// A driver that hung or broke before the job may have recovered.
	doubtful := start && (f.Code == catalog.Stuck || f.Code == catalog.Broken) || f.Unknown != "" ||
		(is.Doubtful || f.Earlier) && len(f.Doubts) > 0 || condition.Disputed(f) || f.Code == catalog.NoDriver && served
	switch {
	case f.NoteOnly != "":
		return record.Cause{}
	case start && (f.Code == catalog.Slow || f.Code == catalog.Unread || f.Earlier): // it was read later
		return record.Cause{}
	case is.Silence != "" && (is.Fault == "" || doubtful):
		c = cannotTell(is.Silence)
	case is.Fault != "" && doubtful:
		c = cannotTell("not certain: " + text)
	case is.Fault != "":
		c = yes(text)
	case f.Code == catalog.Xid && f.Unknown == "" && !start:
		c = byXid(f)
	default:
		return record.Cause{}
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
func byXid(f record.Finding) record.Cause {
	number := cmp.Or(f.CausedBy, f.Xid)
	e, _ := f.DriverError()
	switch {
	case e.Cause == catalog.ByProgram:
		return no("the driver reported a program's error, not the GPU's")
	case number == containedError:
		return yes(fmt.Sprintf("the GPU had a memory error that ended a program (Xid %d)", number))
	case e.Cause != catalog.Unclear:
		text := "the driver reported an error that is no program's (%s): %s"
		return cannotTell(fmt.Sprintf(text, gpu.Error(number), e.Meaning))
	}
	return cannotTell(fmt.Sprintf("the driver reported an error that is not known to be a program's (%s)",
		gpu.Error(number)))
}

// unfound judges a fault without a finding: one that something else reports, or that may have gone unread.
func unfound(e evidence) record.Cause {
	unread := unread(e)
	claim, certain := "", false
	if len(e.faults) > 0 && slices.Contains(e.faults[0].keeps, record.CauseFault) {
		claim, certain = e.faults[0].Claim, e.faults[0].Certain
	}
	switch {
	case e.kernel.Mismatch != "": // any program on the node may have used its own library
		return cannotTell("a program on this node had a library of another version than the driver")
	case logged(e):
		return cannotTell("the driver reported a fault of a GPU; whether of your job's cannot be told")
	case certain && !e.spread: // only for a job of one node is it known on which node the fault occurred
		return yes("your program's output reports " + claim)
	case claim != "":
		return cannotTell("your program's output reports " + claim)
	case unread != "":
		return cannotTell(unread)
	case len(e.messages[record.KindFault]) > 0 && untested(e.in) != "":
		return cannotTell("your program met a GPU error; CUDA was not tested after it")
	}
	return record.Cause{}
}

// logged reports whether the kernel log has a fault that may be on a GPU of the job and is not known as a program's. A
// note is none.
func logged(e evidence) bool {
	return slices.ContainsFunc(e.kernel.Xids, func(x gpu.Xid) bool {
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
	if e.kernel.Unknown != "" || e.kernel.Lost {
		return "the kernel log was not read in full"
	}
	return ""
}
