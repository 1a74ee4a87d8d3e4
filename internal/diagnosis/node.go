package diagnosis

import (
	"fmt"
	"slices"

	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/oom"
	"bookend/internal/slurm"
)

// pieces judges by the test allocation whether free memory can be had in one block. Where a message shows that less was
// free than asked, it made no difference.
func (j judge) pieces() Cause {
	c := Cause{Name: Pieces, Answer: No}
	enough := false
	for _, a := range j.accounts {
		if !a.short() {
			enough = true
			c = j.at(c, a)
			c.Evidence = fmt.Sprintf("%s was free, yet %s could not be had", Size(a.free), Size(a.asked))
		}
	}
	if len(j.accounts) > 0 && !enough && len(j.accounts) == len(j.said(oom.Device)) {
		a := j.accounts[0]
		c.Evidence = fmt.Sprintf("only %s free, %s asked", Size(a.free), Size(a.asked))
		return j.at(c, a)
	}
	for _, p := range j.Probes {
		if p.Result == gpu.ProbeGap && j.missing(p) >= significant && !j.fitsBlock(p) {
			c.Answer, c.Index = Yes, j.index(p.Device)
			c.Evidence = fmt.Sprintf("%s free, largest block %s (tested%s)", Size(p.Free.Bytes), Size(p.Largest.Bytes), j.clock(" at ", p.At))
			return c
		}
	}
	if text, why := j.untested(); text != "" || enough {
		if c.Answer, c.Detail = Unknown, why; c.Evidence == "" {
			c.Evidence = text
		}
		return c
	}
	p := j.Probes[0]
	for _, q := range j.Probes {
		if q.Largest.Bytes < p.Largest.Bytes {
			p = q
		}
	}
	c.Index = j.index(p.Device)
	c.Evidence = fmt.Sprintf("%s in one block", pair(p.Largest.Bytes, " of ", p.Free.Bytes))
	return c
}

// missing is how much of the free memory the largest block lacked.
func (j judge) missing(p gpu.Probe) uint64 {
	if !p.Free.Known() || !p.Largest.Known() {
		return 0
	}
	return p.Free.Bytes - min(p.Free.Bytes, p.Largest.Bytes)
}

// fitsBlock reports that every allocation that failed, as far as known, would have fit into the largest block.
func (j judge) fitsBlock(p gpu.Probe) bool {
	all := j.said(oom.Device)
	for _, m := range all {
		if !m.Asked.Known() || m.Asked.Bytes > p.Largest.Bytes {
			return false
		}
	}
	return len(all) > 0
}

// untested says that the test allocations do not tell, and for an admin why not; empty where every card's told.
func (j judge) untested() (text, why string) {
	told := map[gpu.ID]bool{}
	text = "not tested"
	for _, p := range j.Probes {
		switch {
		case (p.Result == gpu.ProbeOK || p.Result == gpu.ProbeGap) && p.Free.Known() && p.Largest.Known():
			told[p.Device] = true
		case p.Result == gpu.ProbeSkipped:
			why = p.Why
		default:
			text, why = "a test allocation failed", p.Why
		}
	}
	for _, c := range j.Cards {
		if !told[c.Device.ID] {
			return text, why
		}
	}
	if len(told) == 0 {
		return text, why
	}
	return "", ""
}

// faults are the findings of a card or driver that failed, with what to call them. An Xid that speaks of the program is
// none: it is what happens when the program is wrong.
var faults = map[code.Code]string{
	code.Lost: "the GPU fell off the bus or needs a reset", code.Broken: "CUDA did not work in a test after your job",
	code.Recovery: "the driver asks to recover the GPU", code.RemapFailed: "a bad memory row could not be replaced",
	code.XidFatal: "the driver reported a fault of the GPU", code.ECC: "uncorrectable memory errors",
	code.Fabric: "the NVLink fabric is not ready", code.Mismatch: "driver and library are of different versions",
}

// fault judges the driver's and the card's condition.
func (j judge) fault() Cause {
	c := Cause{Name: Fault, Answer: No}
	program, untrusted := "", ""
	for _, f := range slices.Concat(j.Findings, j.StartFindings) {
		switch text, bad := faults[f.Code]; {
		case bad && f.Code == code.Broken && len(f.Doubts) > 0, f.Code == code.Blocked && f.Unknown == "":
			untrusted, c.Detail, c.Index = "a test allocation failed; that may be the test's own", f.Observed, f.Index
		case bad && f.Unknown == "":
			c.Answer, c.Evidence, c.Detail, c.Index = Yes, text, string(f.Code)+" "+f.Observed, f.Index
			return c
		case f.Code == code.Xid && f.Unknown == "" && untrusted == "":
			program, c.Detail, c.Index = "the driver reported a program's error, not the GPU's", f.Observed, f.Index
		}
	}
	if j.Kernel != nil && j.Kernel.Mismatch != "" {
		c.Answer, c.Evidence, c.Detail = Yes, faults[code.Mismatch], j.Kernel.Mismatch
		return c
	}
	switch unread := j.unread(); {
	case untrusted != "":
		c.Answer, c.Evidence = Unknown, untrusted
	case program != "":
		c.Evidence = program
	case unread != "" && len(j.said(oom.Fault)) > 0:
		c.Answer, c.Evidence, c.Detail = Unknown, "your program met a GPU error; "+unread, j.said(oom.Fault)[0].Line
	case unread != "":
		c.Answer, c.Evidence = Unknown, unread
	case len(j.said(oom.Fault)) > 0:
		c.Evidence, c.Detail = "your program met a GPU error, but GPU and driver are well", j.said(oom.Fault)[0].Line
	default:
		c.Evidence = "none in driver and kernel log"
	}
	return c
}

// unread says what of the node's condition was not read; empty where all of it was.
func (j judge) unread() string {
	read := map[gpu.ID]bool{}
	for _, h := range j.Health {
		read[h.Device] = len(h.Facts) > 0
	}
	for _, c := range j.Cards {
		if read[c.Device.ID] {
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

// limits judges what is not the card's memory at all: the process's own limits, and host memory.
func (j judge) limits() Cause {
	c := Cause{Name: Limits, Answer: Yes}
	if text, detail := j.hostMemory(); text != "" {
		c.Evidence, c.Detail = text, detail
		return c
	}
	if a, ok := j.capped(); ok {
		c.Evidence = fmt.Sprintf("%s may use %s at most: set by your job", who(a), Size(a.Limit.Bytes))
		return c
	}
	if text := j.addressSpace(); text != "" {
		c.Evidence = text
		return c
	}
	return j.unlimited(c)
}

// hostMemory says how it is known that host memory ran out.
func (j judge) hostMemory() (text, detail string) {
	if j.Kernel != nil {
		for _, k := range j.Kernel.Kills {
			if o := slurm.OwnerOfCgroup("0::" + k.Cgroup); o.Found() && !j.another(o) && (o.ID == j.Job.ID || o.SLUID == j.Job.SLUID && o.SLUID != "") {
				return fmt.Sprintf("host memory ran out: the kernel ended your process %d", k.PID), k.Cgroup
			}
		}
	}
	if m := j.said(oom.Host); len(m) > 0 {
		switch {
		case slices.ContainsFunc(m, func(m oom.Message) bool { return m.Framework == oom.Slurm }):
			return "host memory ran out, not the GPU's", m[0].Line
		case j.cramped():
			return fmt.Sprintf("refused host memory, not the GPU's; ulimit -v is %s", Size(j.AddressSpace.Bytes)), m[0].Line
		}
		return "refused host memory, not the GPU's", m[0].Line
	}
	for _, status := range []int{j.Job.Exit.Raw, j.Job.Exit.Derived} {
		if j.Job.Exit.Known && signal(status) == slurmOutOfMemory {
			return "host memory ran out, not the GPU's (Slurm's job state)", ""
		}
	}
	return "", ""
}

// cramped reports a limit of address space.
func (j judge) cramped() bool {
	return j.AddressSpace.Known() && j.AddressSpace.Bytes > 0 && j.AddressSpace.Bytes < Unlimited
}

// slurmOutOfMemory is the "signal" in the status of a job that Slurm calls OUT_OF_MEMORY (0:125); Linux has no such signal.
const slurmOutOfMemory = 125

// capped finds a message of a program that was told not to take all, where the card would have had room.
func (j judge) capped() (oom.Message, bool) {
	for _, m := range j.said(oom.Device) {
		if !m.Limit.Known() || !m.Asked.Known() {
			continue
		}
		used := m.InUse
		if m.Allocated.Known() {
			used = m.Allocated
			if m.Idle.Known() {
				used.Bytes += m.Idle.Bytes
			}
		}
		if !used.Known() || used.Bytes+m.Asked.Bytes <= m.Limit.Bytes {
			continue
		}
		room, known := j.roomiest()
		switch {
		case m.Free.Known() && m.Asked.Bytes <= m.Free.Bytes:
			return m, true
		case !m.Free.Known() && known && m.Limit.Bytes < room/10*9 && used.Bytes+m.Asked.Bytes <= room:
			return m, true
		}
	}
	return oom.Message{}, false
}

// addressSpace finds a limit of address space behind a program that CUDA refused to serve. CUDA needs far more address
// space than the card has memory, and a GPU that was empty at both ends and that no other process of the job was seen to
// fill is not what it ran out of.
func (j judge) addressSpace() string {
	refused := j.startless()
	for _, m := range j.said(oom.Device) {
		a, full := j.account(m)
		refused = refused || !full || !a.short()
	}
	room, known := j.roomiest()
	if refused && j.cramped() && known && j.AddressSpace.Bytes < room {
		return fmt.Sprintf("ulimit -v is %s; CUDA needs far more than the GPU's memory", Size(j.AddressSpace.Bytes))
	}
	if j.startless() && j.emptyThroughout() && known {
		return fmt.Sprintf("CUDA could not start with %s of GPU memory free: a limit such as ulimit -v", Size(room))
	}
	return ""
}

// emptyThroughout: the cards were clean at both ends, and nobody saw more than half of one in use between them.
func (j judge) emptyThroughout() bool {
	if j.Start == nil || j.End == nil || !j.Start.AtRest(j.Cards) || !j.End.AtRest(j.Cards) || len(j.Cards) == 0 {
		return false
	}
	for _, s := range j.Seen {
		if room, known := j.capacity(s.Device); !s.Bytes.Known() || !known || s.Bytes.Bytes > room/2 {
			return false
		}
	}
	for _, h := range j.Health {
		for _, p := range h.Accounting.Processes {
			if room, known := j.capacity(h.Device); !p.Peak.Known() || known && p.Peak.Bytes > room/2 && j.began(p) {
				return false
			}
		}
	}
	return j.Shared == "" && j.SharedUnknown == ""
}

// began: a process that began while the job ran, or of which nobody knows when.
func (j judge) began(p gpu.Accounted) bool {
	if p.Began.IsZero() || j.WallStart.IsZero() || j.WallEnd.IsZero() {
		return true
	}
	return !p.Began.Before(j.WallStart) && !p.Began.After(j.WallEnd)
}

// unlimited answers where no limit was found.
func (j judge) unlimited(c Cause) Cause {
	c.Answer = No
	unread := j.unreadLog()
	free := j.AddressSpace.Known() && j.AddressSpace.Bytes >= Unlimited
	byHand := j.Job.Exit.Known && (signal(j.Job.Exit.Raw) == 9 || signal(j.Job.Exit.Derived) == 9)
	switch {
	case j.ranOut():
		c.Evidence = "the GPU's memory ran out"
	case byHand && unread != "":
		c.Answer, c.Evidence = Unknown, "ended by signal 9; whether for host memory is not known"
	case j.startless():
		c.Answer, c.Evidence = Unknown, "CUDA could not start for want of memory; why is not known"
	case unread != "":
		c.Answer, c.Evidence = Unknown, unread
	case free:
		c.Evidence = "no ulimit -v, nothing killed"
	case j.cramped():
		c.Evidence = fmt.Sprintf("ulimit -v is %s, and CUDA started", Size(j.AddressSpace.Bytes))
		if len(j.accounts) == 0 {
			c.Answer, c.Evidence = Unknown, fmt.Sprintf("ulimit -v is %s", Size(j.AddressSpace.Bytes))
		}
	default:
		c.Answer, c.Evidence = Unknown, "its ulimit -v is not known"
	}
	return c
}

// share judges whether the job had less than a card. That is so by design: alone it explains nothing.
func (j judge) share(d Diagnosis) Cause {
	c := Cause{Name: Share, Answer: No, Evidence: "it had the whole GPU"}
	if len(j.Cards) > 1 {
		c.Evidence = "it had whole GPUs"
	}
	for _, card := range j.Cards {
		if card.Device.Parent == "" {
			continue
		}
		c.Answer, c.Index = Yes, &card.Index
		c.Evidence = "a part of a GPU (MIG)"
		if room, known := j.capacity(card.Device.ID); known {
			c.Evidence += " with " + Size(room)
		}
		return with(c, d)
	}
	switch {
	case j.Shared != "":
		c.Answer, c.Evidence = Yes, "others may use the same GPU: "+j.Shared
		return with(c, d)
	case j.Job.MPSPercent != "":
		c.Answer, c.Evidence = Yes, "CUDA MPS shares the GPU"
		return with(c, d)
	case len(j.Cards) == 0:
		c.Answer, c.Evidence = Unknown, "which GPUs it had is not known"
	case j.SharedUnknown != "":
		c.Answer, c.Evidence = Unknown, j.SharedUnknown
	}
	return c
}

// with makes a cause a companion of the first that explains more.
func with(c Cause, d Diagnosis) Cause {
	for _, n := range rank {
		if o := d.Cause(n); o.Answer == Yes && o.With == "" {
			c.With = n
			return c
		}
	}
	return c
}
