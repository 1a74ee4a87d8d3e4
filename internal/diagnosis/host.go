package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/oom"
	"bookend/internal/slurm"
)

// limits judges what is not the card's memory at all: the process's own limits, and host memory.
func (j judge) limits() Cause {
	c := j.hostMemory()
	if c.Answer == Yes {
		return c
	}
	if text := j.addressSpace(); text != "" {
		return yes(text)
	}
	if c.Evidence != "" {
		return c
	}
	return j.unlimited()
}

// hostMemory judges the signs that host memory ran out: the job's processes that the kernel ended, Slurm's state and
// line, and what programs say. No evidence: there is none. Beside a message about a card it may have been a helper's,
// hours before, unless the job was ended for it.
func (j judge) hostMemory() Cause {
	slurms := slices.ContainsFunc(j.said(oom.Host), func(m oom.Message) bool { return m.Framework == oom.Slurm })
	full := slices.ContainsFunc(j.failures, failure.short)
	ended := j.endedBy(9) && (j.endedBy(slurmOutOfMemory) || slurms)
	pid := j.killed()
	switch {
	case (pid != 0 || slurms || j.endedBy(slurmOutOfMemory)) && full && !ended:
		return untold("host memory ran out too; whether that came first cannot be told")
	case pid != 0:
		return yes(fmt.Sprintf("host memory ran out: the kernel ended your process %d", pid))
	case slurms:
		return yes("host memory ran out, not the GPU's")
	case j.endedBy(slurmOutOfMemory):
		return yes("host memory ran out (Slurm's job state)")
	}
	c := untold("")
	for _, m := range j.said(oom.Host) {
		switch {
		case len(j.said(oom.Device)) > 0:
			c = untold("refused host memory too; whether that mattered cannot be told")
		case j.cramped():
			return yes("refused host memory; ulimit -v is " + Size(j.AddressSpace.Bytes))
		case ambiguous(m):
			c = untold("a library could not be mapped: a limit, or a directory that allows no programs")
		default:
			return yes("refused host memory, not the GPU's")
		}
	}
	return c
}

// hostAlone: it was host memory, and nothing that was said speaks of a card. Output that was not read may.
func (j judge) hostAlone() bool {
	told := len(j.said(oom.Host)) > 0 || j.unsearched() == ""
	return j.hostMemory().Answer == Yes && told && len(j.said(oom.Device)) == 0
}

// killed is a process of the job that the kernel ended for host memory. When is not known: that log has a clock of its
// own.
func (j judge) killed() (pid int) {
	if j.Kernel == nil {
		return 0
	}
	for _, k := range j.Kernel.Kills {
		o := slurm.OwnerOfCgroup("0::" + k.Cgroup)
		if o.Same(slurm.Owner{ID: j.Job.ID, SLUID: j.Job.SLUID}) {
			return k.PID
		}
	}
	return 0
}

// slurmOutOfMemory is the "signal" in the status of a job that Slurm calls OUT_OF_MEMORY (0:125); Linux has no such
// signal.
const slurmOutOfMemory = 125

func signal(status int) int { return status & 0x7f }

// endedBy: the job, or a step of it, ended by a signal; a shell says 128 and the signal's number for its child.
// Signal 9 is scancel's and the time limit's too.
func (j judge) endedBy(sig int) bool {
	by := func(status int) bool { return signal(status) == sig || sig == 9 && status>>8&0xff == 128+9 }
	return j.Job.Exit.Known && (by(j.Job.Exit.Raw) || by(j.Job.Exit.Derived))
}

// ambiguous: newer loaders say the same of a limit and of a folder mounted noexec.
func ambiguous(m oom.Message) bool {
	return strings.Contains(m.Line, oom.Segment) && !strings.Contains(m.Line, oom.Refused)
}

// cramped reports a limit of address space.
func (j judge) cramped() bool {
	return j.AddressSpace.Known() && j.AddressSpace.Bytes > 0 && j.AddressSpace.Bytes < Unlimited
}

// addressSpace finds a limit of address space behind a program that CUDA refused to serve. CUDA needs far more address
// space than the card has memory, and a GPU that was empty at both ends and that no other process of the job was
// seen to fill is not what it ran out of, whatever limit is on record: what a script sets for itself no hook can
// see.
func (j judge) addressSpace() string {
	refused := j.startless() || len(j.said(oom.Device)) > len(j.failures) ||
		slices.ContainsFunc(j.failures, func(f failure) bool { return !f.short() })
	room := j.roomiest()
	if refused && !j.started() && j.cramped() && j.AddressSpace.Bytes < room {
		return fmt.Sprintf("ulimit -v is %s; CUDA needs far more than the GPU's memory", Size(j.AddressSpace.Bytes))
	}
	if j.startless() && !j.spread() && j.emptyThroughout() && room > 0 {
		return fmt.Sprintf("CUDA could not start with %s of GPU memory free: a limit such as ulimit -v", Size(room))
	}
	return ""
}

// started: a process of the job was seen with memory of a card, so CUDA had the address space that it needs.
func (j judge) started() bool {
	return len(j.peaks) > 0 && j.peaks[0].Peak.Bytes > 0 ||
		slices.ContainsFunc(j.Seen, func(s Sighting) bool { return s.Own && s.Bytes.Bytes > 0 })
}

// emptyThroughout: the cards were at rest and empty at both ends, and nobody saw one in use between them.
func (j judge) emptyThroughout() bool {
	return j.unlooked(Limits) == "" && j.SharedUnknown == "" && len(j.held) == 0 && len(j.Seen) == 0 &&
		len(j.peaks) == 0
}

// unlimited answers where no limit was found.
func (j judge) unlimited() Cause {
	unread := j.unreadLog()
	switch {
	case j.ranOut():
		return no("the GPU's memory ran out")
	case j.startless():
		return untold("CUDA could not start for want of memory; why is not known")
	case unread != "":
		return untold(unread)
	case j.cramped():
		return untold("ulimit -v is " + Size(j.AddressSpace.Bytes))
	case !j.AddressSpace.Known() || j.AddressSpace.Bytes < Unlimited:
		return untold("its ulimit -v is not known (the task hooks tell)")
	case j.unsearched() != "":
		return untold("no ulimit -v, nothing killed; " + j.unsearched())
	case len(j.said(oom.Device)) > 0 && !j.started(): // a CPU's allocator may say the same
		return untold("no ulimit -v at first, nothing killed")
	default:
		return no("no ulimit -v, nothing killed")
	}
}
