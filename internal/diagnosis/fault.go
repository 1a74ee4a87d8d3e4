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
		text += fmt.Sprintf(" (Xid %d)", f.Xid)
	}
	// A driver that hung or broke before the job may have recovered.
	doubtful := start && (f.Code == catalog.Stuck || f.Code == catalog.Broken) || f.Unknown != "" ||
		is.Doubtful && len(f.Doubts) > 0 || condition.Disputed(f) || f.Code == catalog.NoDriver && served
	switch {
	case start && (f.Code == catalog.Slow || f.Code == catalog.Unread): // it was read later
		return record.Cause{}
	case is.Silence != "" && (is.Fault == "" || doubtful):
		c = cannotTell(is.Silence)
	case is.Fault != "" && doubtful:
		c = cannotTell("not certain: " + text)
	case is.Fault != "":
		c = yes(text)
	case f.Code == catalog.Xid && f.Unknown == "" && !start:
		c = byXid(f.Xid)
	default:
		return record.Cause{}
	}
	c.Index = f.Index
	if start {
		c.Evidence = "when your job began: " + c.Evidence
	}
	return c
}

// containedError is the Xid of an uncorrectable memory error that ended one program and affected no other.
const containedError = 94

// byXid judges an Xid that may have left the GPU usable, by what is known of its number.
func byXid(number int) record.Cause {
	switch {
	case catalog.OfProgram(number):
		return no("the driver reported a program's error, not the GPU's")
	case number == containedError:
		return yes(fmt.Sprintf("the GPU had a memory error that ended a program (Xid %d)", number))
	}
	if e, _ := catalog.LookupXid(number); e.Cause != catalog.Unclear {
		text := "the driver reported an error that is no program's (Xid %d): %s"
		return cannotTell(fmt.Sprintf(text, number, e.Meaning))
	}
	return cannotTell(fmt.Sprintf("the driver reported an error that is not known to be a program's (Xid %d)", number))
}

// unfound judges a fault without a finding: one that something else reports, or that may have gone unread.
func unfound(e evidence) record.Cause {
	unread := unread(e)
	claim, certain := faultInOutput(e)
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

// logged reports whether the kernel log has a fault that may be on a GPU of the job and is not known as a program's.
func logged(e evidence) bool {
	return slices.ContainsFunc(e.kernel.Xids, func(x gpu.Xid) bool {
		mayBeOn := func(c record.Assigned) bool { return c.Device.BusID == "" || c.Device.BusID == x.BusID }
		return !catalog.OfProgram(x.Code) && (len(e.in.Cards) == 0 || slices.ContainsFunc(e.in.Cards, mayBeOn))
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

// outputFaults are what messages about faults report: the first whose words, in lower case, occur in the message. Only
// hardware faults are certain: no program can cause them. What CUDA or HIP attribute to the program is no fault at all.
var outputFaults = []struct {
	what    string
	certain bool
	words   []string
}{
	{"an uncorrectable memory error (ECC)", true, []string{"uncorrectable ecc error"}},
	{"an uncorrectable NVLink error", true, []string{"uncorrectable nvlink"}},
	{"that a GPU is lost", true, []string{"gpu is lost"}},
	{"", false, []string{"illegal memory access", "illegal instruction", "misaligned address", "device-side assert",
		"launch failure", "launch timed out", "invalid device ordinal", "memory access fault"}},
	{"that the GPU was refused: another process had it, or its compute mode forbids it", false,
		[]string{"busy or unavailable"}},
	{"that CUDA was not ready on this node (802)", false, []string{"not yet initialized"}},
	{"that the driver and its library have different versions", false, []string{"library version mismatch"}},
	{"that MPS did not answer", false, []string{"mps client failed"}},
	{"that the driver did not reach a GPU", false, []string{"the device handle for"}},
	{"an error of the GPU or its driver", false, []string{""}},
}

// faultIn returns the fault that a message reports, "" if it is none or the program's own.
func faultIn(m record.Message) (what string, certain bool) {
	said := func(words string) bool { return strings.Contains(strings.ToLower(m.Line), words) }
	for _, f := range outputFaults {
		if m.Kind == record.KindFault && slices.ContainsFunc(f.words, said) {
			return f.what, f.certain
		}
	}
	return "", false
}

// faultInOutput returns the last certain fault that the job's output reports, or else the first; "" if there is none.
func faultInOutput(e evidence) (what string, certain bool) {
	for _, m := range e.messages[record.KindFault] {
		if fault, sure := faultIn(m); sure || what == "" {
			what, certain = fault, certain || sure
		}
	}
	return what, certain
}

// afterFault reports whether a message about memory follows one about a GPU fault, which may have caused it.
func afterFault(e evidence) bool {
	faulty := map[int]bool{}
	for _, m := range e.in.Messages {
		if m.Kind == record.KindDevice && faulty[m.File] {
			return true
		}
		_, certain := faultIn(m)
		faulty[m.File] = faulty[m.File] || certain
	}
	return false
}
