package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/condition"
	"bookend/internal/gpu"
	"bookend/internal/oomlog"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// pieces judges by test allocations whether free memory is fragmented. If the messages show that less was free than was
// requested, fragmentation made no difference.
func (j judge) pieces() record.Cause {
	roomy := slices.IndexFunc(j.failures, func(f failure) bool { return !f.short() })
	if roomy < 0 && len(j.failures) > 0 && len(j.failures) == len(j.said(record.KindDevice)) {
		f := j.failures[0]
		return on(f.card, no(fmt.Sprintf("only %s free, %s asked", gpu.Size(f.free), gpu.Size(f.asked))))
	}
	for _, p := range j.Probes {
		if p.Result != gpu.ProbeGap || p.Free.Bytes < p.Largest.Bytes+significant || j.fits(p.Largest.Bytes) {
			continue
		}
		gap := yes(fmt.Sprintf("%s free, largest block %s", gpu.Size(p.Free.Bytes), gpu.Size(p.Largest.Bytes)))
		if j.unplaced() {
			gap = untold(gap.Evidence + unweighed)
		}
		return on(j.mine(p.Device), gap)
	}
	switch why := j.untested(); {
	case roomy >= 0:
		f := j.failures[roomy]
		return on(f.card, untold(fmt.Sprintf("%s was free, yet %s could not be had", gpu.Size(f.free),
			gpu.Size(f.asked))))
	case why != "":
		return untold(why)
	}
	return no("free memory came in one block")
}

// fits reports whether every failed allocation would have fit into a block. One of unknown size might not.
func (j judge) fits(block uint64) bool {
	all := j.said(record.KindDevice)
	mayNot := func(m record.Message) bool { return !m.Asked.Known() || m.Asked.Bytes > block }
	return len(all) > 0 && !slices.ContainsFunc(all, mayNot)
}

// untested returns why the test allocations do not answer, or "" if every GPU has a result.
func (j judge) untested() string {
	if len(j.Cards) == 0 {
		return noCards
	}
	for _, c := range j.Cards {
		tells := func(p gpu.Probe) bool {
			done := p.Result == gpu.ProbeOK || p.Result == gpu.ProbeGap
			return p.Device == c.Device.ID && done && p.Free.Known() && p.Largest.Known()
		}
		if !slices.ContainsFunc(j.Probes, tells) {
			return "not tested, or without a result (the probe does, at a clean end)"
		}
	}
	return ""
}

// share judges whether the job had less than a whole GPU. That is by design, so it never explains a failure by itself.
func (j judge) share(d record.Diagnosis) record.Cause {
	c := j.shared()
	c.Name = record.CauseShare
	explains := func(n record.CauseName) bool { return d.Cause(n).Explains() }
	if i := slices.IndexFunc(rank, explains); i >= 0 && c.Answer == record.Yes {
		c.With = rank[i] // it accompanies the cause that explains most
	}
	return c
}

func (j judge) shared() record.Cause {
	for _, card := range j.Cards {
		if card.Device.Parent == "" {
			continue
		}
		text := "a part of a GPU (MIG or partition)"
		if room := j.capacity(card.Device.ID); room > 0 {
			text += " with " + gpu.Size(room)
		}
		return on(&card, yes(text))
	}
	switch {
	case j.Shared != "":
		return yes("others may use the same GPU: " + j.Shared)
	case j.Job.MPSPercent != "":
		return yes("CUDA MPS shares the GPU")
	case len(j.Cards) == 0:
		return untold(noCards)
	case j.SharedUnknown != "":
		return untold(j.SharedUnknown)
	}
	return no("it had the whole GPU")
}

func (j judge) fault() record.Cause {
	best := no("")
	for _, f := range j.Findings {
		best = worse(best, j.blame(f, false))
	}
	for _, f := range j.StartFindings {
		best = worse(best, j.blame(f, true))
	}
	if best.Answer == record.No {
		best = j.well(best)
	}
	return best
}

// blame judges one finding of an end. Its evidence is empty if the finding indicates no fault.
func (j judge) blame(f record.Finding, start bool) (c record.Cause) {
	e := f.Code.Traits()
	text := e.Fault
	if f.Code == catalog.XidFatal && f.Xid != 0 {
		text += fmt.Sprintf(" (Xid %d)", f.Xid)
	}
	// A driver that hung or broke before the job may have recovered. If CUDA served the job, there was a driver.
	doubtful := start && (f.Code == catalog.Stuck || f.Code == catalog.Broken) || f.Unknown != "" ||
		e.Doubtful && len(f.Doubts) > 0 || condition.Disputed(f) ||
		f.Code == catalog.NoDriver && len(j.failures) > 0
	switch {
	case start && (f.Code == catalog.Slow || f.Code == catalog.Unread): // it was read later
		return no("")
	case e.Silence != "" && (e.Fault == "" || doubtful):
		c = untold(e.Silence)
	case e.Fault != "" && doubtful:
		c = untold("not certain: " + text)
	case e.Fault != "":
		c = yes(text)
	case f.Code == catalog.Xid && f.Unknown == "" && !start:
		c = byXid(f.Xid)
	default:
		return no("")
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
	case condition.OfProgram(number):
		return no("the driver reported a program's error, not the GPU's")
	case number == containedError:
		return yes(fmt.Sprintf("the GPU had a memory error that ended a program (Xid %d)", number))
	}
	return untold(fmt.Sprintf("the driver reported an error that is not known to be a program's (Xid %d)", number))
}

// well answers when no finding indicates a fault: no if everything readable was read and shows none.
func (j judge) well(c record.Cause) record.Cause {
	unread := j.unread()
	switch {
	case j.Kernel != nil && j.Kernel.Mismatch != "": // any program on the node may have used its own library
		return untold("a program on this node had a library of another version than the driver")
	case j.logged():
		return untold("the driver reported a fault of a GPU; whether of your job's cannot be told")
	case j.saidFault() != "":
		return j.claimed()
	case unread != "":
		return untold(unread)
	case len(j.said(record.KindFault)) > 0 && j.untested() != "":
		return untold("your program met a GPU error; CUDA was not tested after it")
	case c.Evidence == "":
		return no("none in driver and kernel log")
	}
	return c
}

// programsErrors are errors that CUDA or HIP attribute to the program: wrong addresses and their consequences.
var programsErrors = []string{"illegal memory access", "illegal instruction", "misaligned address",
	"device-side assert", "launch failure", "launch timed out", "invalid device ordinal", "memory access fault"}

// phrase is a lower-case text that occurs in output, and the error that it reports.
type phrase struct{ words, what string }

// hardwareErrors are faults that no program can cause.
var hardwareErrors = []phrase{
	{"uncorrectable ecc error", "an uncorrectable memory error (ECC)"},
	{"uncorrectable nvlink", "an uncorrectable NVLink error"},
	{"gpu is lost", "that a GPU is lost"},
}

// refusals are errors that are not the program's own, but do not prove a hardware fault either.
var refusals = []phrase{
	{"busy or unavailable", "that the GPU was refused: another process had it, or its compute mode forbids it"},
	{"not yet initialized", "that CUDA was not ready on this node (802)"},
	{"library version mismatch", "that the driver and its library have different versions"},
	{"mps client failed", "that MPS did not answer"},
	{"the device handle for", "that the driver did not reach a GPU"},
}

// worded returns the error in the list that a message about a fault reports, or "" if it is in none.
func worded(list []phrase, m record.Message) string {
	for _, p := range list {
		if m.Kind == record.KindFault && strings.Contains(strings.ToLower(m.Line), p.words) {
			return p.what
		}
	}
	return ""
}

func hardware(m record.Message) string { return worded(hardwareErrors, m) }

// saidFault returns a fault that the job's output reports and that is not known to be the program's own; "" if none.
func (j judge) saidFault() (what string) {
	for _, m := range j.said(record.KindFault) {
		own := func(words string) bool { return strings.Contains(strings.ToLower(m.Line), words) }
		if what == "" && !slices.ContainsFunc(programsErrors, own) {
			what = cmp.Or(worded(refusals, m), "an error of the GPU or its driver")
		}
		what = cmp.Or(hardware(m), what)
	}
	return what
}

// claimed judges by the job's output alone. Only for a job of one node is it known on which node the fault occurred.
func (j judge) claimed() record.Cause {
	text := "your program's output reports " + j.saidFault()
	if !j.spread() && slices.ContainsFunc(j.Messages, func(m record.Message) bool { return hardware(m) != "" }) {
		return yes(text)
	}
	return untold(text)
}

// afterFault reports whether a message about memory follows one about a GPU fault, which may have caused it.
func (j judge) afterFault() bool {
	faulty := map[int]bool{}
	for _, m := range j.Messages {
		if m.Kind == record.KindDevice && faulty[m.File] {
			return true
		}
		faulty[m.File] = faulty[m.File] || hardware(m) != ""
	}
	return false
}

// logged reports whether the kernel log has a fault that may be on a GPU of the job and is not known as a program's.
func (j judge) logged() bool {
	if j.Kernel == nil {
		return false
	}
	return slices.ContainsFunc(j.Kernel.Xids, func(x gpu.Xid) bool {
		mayBeOn := func(c record.Assigned) bool { return c.Device.BusID == "" || c.Device.BusID == x.BusID }
		return !condition.OfProgram(x.Code) && (len(j.Cards) == 0 || slices.ContainsFunc(j.Cards, mayBeOn))
	})
}

// unread returns what was not read of the GPUs' condition and the kernel log, or "" if everything was.
func (j judge) unread() string {
	if len(j.Cards) == 0 {
		return noCards
	}
	for _, c := range j.Cards {
		reads := func(h gpu.Health) bool {
			return len(h.Facts) > 0 && h.Device != "" && (h.Device == c.Device.ID || h.Device == c.Device.Parent)
		}
		if j.HealthUnknown != "" || !slices.ContainsFunc(j.Health, reads) {
			return strings.TrimSuffix("GPU's condition not read: "+j.HealthUnknown, ": ")
		}
	}
	return j.unreadLog()
}

func (j judge) unreadLog() string {
	if k := j.Kernel; k == nil || k.Unknown != "" || k.Lost {
		return "the kernel log was not read in full"
	}
	return ""
}

// limits judges causes other than GPU memory: the process's own limits and host memory.
func (j judge) limits() record.Cause {
	c, limit := j.hostMemory(), j.addressSpace()
	switch {
	case c.Answer != record.Yes && limit != "":
		return yes(limit)
	case c.Evidence == "":
		return j.unlimited()
	}
	return c
}

// hostMemory judges the signs that host memory ran out: kernel kills of the job's processes, Slurm's state and log
// line, and programs' messages. Without a sign, its evidence is empty. If a GPU was full too, the kill may have hit a
// helper process hours earlier, so it is certain only if the job was ended for it.
func (j judge) hostMemory() record.Cause {
	bySlurm := func(m record.Message) bool { return m.Framework == record.FromSlurm }
	slurms := slices.ContainsFunc(j.said(record.KindHost), bySlurm) || j.endedBy(slurmOutOfMemory)
	full, pid := slices.ContainsFunc(j.failures, failure.short), j.killed()
	switch {
	case (pid != 0 || slurms) && full && !(j.endedBy(9) && slurms):
		return untold("host memory ran out too; whether that came first cannot be told")
	case pid != 0:
		return yes(fmt.Sprintf("host memory ran out: the kernel ended your process %d", pid))
	case slurms:
		return yes("host memory ran out, not the GPU's")
	}
	c := untold("")
	for _, m := range j.said(record.KindHost) {
		switch {
		case len(j.said(record.KindDevice)) > 0:
			return untold("refused host memory too" + unweighed)
		case j.cramped():
			return yes("refused host memory; ulimit -v is " + gpu.Size(j.AddressSpace.Bytes))
		case !ambiguous(m):
			return yes("refused host memory, not the GPU's")
		}
		c = untold("a library could not be mapped: a limit, or a directory that allows no programs")
	}
	return c
}

// hostAlone reports whether host memory ran out and no message is about a GPU. Without a message about host memory, the
// output must also have been read in full.
func (j judge) hostAlone() bool {
	told := len(j.said(record.KindHost)) > 0 || j.unsearched() == ""
	return j.hostMemory().Answer == record.Yes && told && len(j.said(record.KindDevice)) == 0
}

// killed returns a process of the job killed for host memory, or 0. The time is unknown: the log has its own clock.
func (j judge) killed() (pid int) {
	if j.Kernel == nil {
		return 0
	}
	for _, k := range j.Kernel.Kills {
		o := slurm.OwnerOfCgroup("0::" + k.Cgroup)
		if j.Job.Owns(o) {
			return k.PID
		}
	}
	return 0
}

// slurmOutOfMemory is the "signal" in the status of an OUT_OF_MEMORY job (0:125); Linux has no such signal.
const slurmOutOfMemory = 125

func signal(status int) int { return status & 0x7f }

// endedBy reports whether a signal, or a shell's 128+9, ended the job or a step. scancel and time limits send 9 too.
func (j judge) endedBy(sig int) bool {
	by := func(status int) bool { return signal(status) == sig || sig == 9 && status>>8&0xff == 128+9 }
	return j.Job.Exit.Known && (by(j.Job.Exit.Raw) || by(j.Job.Exit.Derived))
}

// ambiguous reports a message that newer loaders print both for a limit and for a directory mounted noexec.
func ambiguous(m record.Message) bool {
	return strings.Contains(m.Line, oomlog.Segment) && !strings.Contains(m.Line, oomlog.Refused)
}

func (j judge) cramped() bool {
	return j.AddressSpace.Known() && j.AddressSpace.Bytes > 0 && j.AddressSpace.Bytes < record.Unlimited
}

// addressSpace describes the address-space limit with which CUDA could not serve a program: CUDA needs far more than
// the GPU's memory. Hooks cannot see a limit set by a script; that, or a process now gone, may be another cause.
func (j judge) addressSpace() string {
	refused := j.startless() || len(j.said(record.KindDevice)) > len(j.failures) ||
		slices.ContainsFunc(j.failures, func(f failure) bool { return !f.short() })
	if refused && !j.started && j.cramped() && j.AddressSpace.Bytes < j.roomiest() {
		return fmt.Sprintf("ulimit -v is %s; CUDA needs far more than the GPU's memory", gpu.Size(j.AddressSpace.Bytes))
	}
	return ""
}

func (j judge) unlimited() record.Cause {
	unread := cmp.Or(j.unreadLog(), j.unsearched())
	switch {
	case j.every(failure.short) && len(j.failures) == len(j.Messages): // no other message was found
		return no("the GPU's memory ran out")
	case j.startless():
		return untold("CUDA could not start for want of memory; no limit was seen, but a script may set ulimit -v")
	case j.cramped():
		return untold("ulimit -v is " + gpu.Size(j.AddressSpace.Bytes))
	case unread != "":
		return untold(unread)
	case !j.AddressSpace.Known() || j.AddressSpace.Bytes < record.Unlimited,
		len(j.said(record.KindDevice)) > 0 && !j.started: // a CPU allocator may print the same
		return untold("its ulimit -v when it failed is not known (the task hooks tell the first)")
	}
	return no("no ulimit -v, nothing killed")
}
