package diagnosis

import (
	"fmt"
	"strings"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/oom"
)

const notCertain = "not certain: "

// fault judges the driver's and the card's condition.
func (j judge) fault() Cause {
	best := Cause{Name: Fault, Answer: No}
	for _, f := range j.Findings {
		best = worse(best, j.blame(f, false))
	}
	for _, f := range j.StartFindings {
		best = worse(best, j.blame(f, true))
	}
	if best = worse(worse(best, j.fatal()), j.versions()); best.Answer != No {
		return best
	}
	return j.well(best)
}

// worse is the cause that says more; of two that say the same the first.
func worse(a, b Cause) Cause {
	rank := map[Answer]int{Yes: 2, Unknown: 1}
	if rank[b.Answer] > rank[a.Answer] || a.Evidence == "" && rank[b.Answer] == rank[a.Answer] {
		return b
	}
	return a
}

// blame judges one finding of an end; its evidence is empty where it speaks of no fault.
func (j judge) blame(f finding.Finding, start bool) Cause {
	c := Cause{Name: Fault, Answer: No, Detail: string(f.Code) + " " + f.Observed, Index: f.Index}
	e := f.Code.Traits()
	text := e.Fault + numbered(f)
	switch {
	case e.Fault != "" && (f.Unknown != "" || e.Doubtful && len(f.Doubts) > 0 || health.Disputed(f) ||
		j.outdated(f, start)):
		c.Answer, c.Evidence = Unknown, notCertain+text
		if e.Silence != "" {
			c.Evidence = e.Silence
		}
	case e.Fault != "":
		c.Answer, c.Evidence = Yes, text
	case e.Silence != "" && !(start && (f.Code == code.Slow || f.Code == code.Unread)): // later it was read
		c.Answer, c.Evidence = Unknown, e.Silence
	case f.Code == code.Xid && f.Unknown == "" && !start:
		c.Evidence, c.Detail = "the driver reported a program's error, not the GPU's", f.Observed
		return c
	default:
		return Cause{Name: Fault, Answer: No}
	}
	switch {
	case start && f.Code == code.Broken && c.Answer == Yes:
		c.Evidence = "CUDA did not work in a test before your job"
	case start && f.Code != code.Broken && f.Code != code.Blocked:
		c.Evidence = "when your job began: " + c.Evidence
	}
	return c
}

// numbered adds which of the driver's errors a fault is, where the record says.
func numbered(f finding.Finding) string {
	if f.Code != code.XidFatal || f.Xid == 0 {
		return ""
	}
	return fmt.Sprintf(" (Xid %d)", f.Xid)
}

// outdated: something that was seen later speaks against the finding.
func (j judge) outdated(f finding.Finding, start bool) bool {
	switch f.Code {
	case code.Stuck:
		return start && j.unread() == ""
	case code.NoDriver:
		return len(j.accounts) > 0 // CUDA served the job
	case code.Broken:
		for _, p := range j.Probes {
			if start && p.Device == f.GPU && (p.Result == gpu.ProbeOK || p.Result == gpu.ProbeGap) {
				return true
			}
		}
	}
	return false
}

// fatal judges what the kernel's log says of faults and no finding tells: of a card that could not be looked at any
// more, or where nobody knows which cards the job had.
func (j judge) fatal() Cause {
	c := Cause{Name: Fault, Answer: No}
	if j.Kernel == nil {
		return c
	}
	for _, x := range j.Kernel.Xids {
		one := health.Input{Cards: []finding.Card{{Device: gpu.Device{BusID: x.BusID}}},
			Kernel: &gpu.KernelLog{Xids: []gpu.Xid{x}}}
		for _, f := range health.Judge(one) {
			if f.Code == code.XidFatal {
				c = worse(c, j.met(x, f))
			}
		}
	}
	return c
}

// met judges a fatal line of the kernel's log by whose card it is of, and by what it proves.
func (j judge) met(x gpu.Xid, f finding.Finding) Cause {
	c := Cause{Name: Fault, Answer: j.ofMine(x), Evidence: f.Code.Traits().Fault + numbered(f), Detail: f.Observed}
	switch {
	case c.Answer == No:
		return Cause{Name: Fault, Answer: No}
	case c.Answer == Unknown:
		c.Evidence = "the driver reported a fault of a GPU; whether of your job's cannot be told"
	case health.Disputed(f):
		c.Answer, c.Evidence = Unknown, notCertain+c.Evidence
	}
	return c
}

// ofMine tells whether a line of the kernel's log is of one of the job's cards.
func (j judge) ofMine(x gpu.Xid) Answer {
	mine := No
	if len(j.Cards) == 0 {
		mine = Unknown
	}
	for _, c := range j.Cards {
		switch {
		case c.Device.BusID == x.BusID && (c.Device.Parent == "" || x.GI == nil):
			return Yes
		case c.Device.BusID == x.BusID, c.Device.BusID == "":
			mine = Unknown
		}
	}
	return mine
}

// versions judges a program that met a driver of another version: any of the node's may have brought its own library.
func (j judge) versions() Cause {
	if j.Kernel == nil || j.Kernel.Mismatch == "" {
		return Cause{Name: Fault, Answer: No}
	}
	return Cause{Name: Fault, Answer: Unknown,
		Evidence: "a program on this node had a library of another version than the driver", Detail: j.Kernel.Mismatch}
}

// well answers where nothing speaks of a fault: no, if all that can be read was.
func (j judge) well(c Cause) Cause {
	met := j.said(oom.Fault)
	unread := j.unread()
	switch {
	case unread != "" && c.Evidence != "":
		c.Answer, c.Evidence = Unknown, c.Evidence+"; "+unread
	case unread != "" && len(met) > 0:
		c.Answer, c.Evidence, c.Detail = Unknown, "your program met a GPU error; "+unread, met[0].Line
	case unread != "":
		c.Answer, c.Evidence = Unknown, unread
	case c.Evidence != "": // a program's error, and all else is well
	case len(met) > 0 && !j.tested() && !allOwn(met):
		c.Answer, c.Evidence, c.Detail = Unknown, "your program met a GPU error; CUDA was not tested after it",
			met[0].Line
	case len(met) > 0:
		c.Evidence, c.Detail = "your program met a GPU error, but GPU and driver are well", met[0].Line
	default:
		c.Evidence = "none in driver and kernel log"
	}
	return c
}

// tested: CUDA worked on each of the cards in a test.
func (j judge) tested() bool {
	text, _ := j.untested()
	return text == ""
}

// programErrors are CUDA's words for what a program's own kernels do wrong.
var programErrors = []string{
	"an illegal memory access", "an illegal instruction", "misaligned address", "device-side assert",
	"unspecified launch failure",
	"the launch timed out", "invalid device ordinal",
}

// allOwn: every message is of a kind that programs bring about themselves.
func allOwn(all []oom.Message) bool {
	for _, m := range all {
		own := false
		for _, text := range programErrors {
			own = own || strings.Contains(m.Line, text)
		}
		if !own {
			return false
		}
	}
	return true
}

// unread says what of the node's condition was not read; empty where all of it was.
func (j judge) unread() string {
	if len(j.Cards) == 0 {
		return "which GPUs it had is not known"
	}
	read := map[gpu.ID]bool{}
	for _, h := range j.Health {
		read[h.Device] = len(h.Facts) > 0
	}
	for _, c := range j.Cards {
		if read[c.Device.ID] || c.Device.Parent != "" && read[c.Device.Parent] {
			continue
		}
		if j.HealthUnknown != "" {
			return "GPU's condition not read: " + j.HealthUnknown
		}
		return "GPU's condition not read"
	}
	return j.unreadLog()
}

func (j judge) unreadLog() string {
	switch k := j.Kernel; {
	case k == nil:
		return "kernel log not read"
	case k.Unknown != "":
		return "kernel log not read: " + k.Unknown
	case k.Lost:
		return "part of the kernel log was overwritten"
	}
	return ""
}
