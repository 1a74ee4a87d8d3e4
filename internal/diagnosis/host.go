package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/oom"
	"bookend/internal/slurm"
)

// hostSign is a sign that host memory ran out, and whether that was what the job failed for.
type hostSign struct {
	answer       Answer
	text, detail string
}

// hostMemory is the strongest of such signs, zero for none. A message about a card that had too little free says what
// that allocation failed for: host memory that ran out once before it, for a helper or a thing that could do
// without, was not it.
func (j judge) hostMemory() hostSign {
	var signs []hostSign
	for _, more := range [][]hostSign{j.kills(), j.refusals(), j.state()} {
		signs = append(signs, more...)
	}
	for _, want := range []Answer{Yes, Unknown, No} {
		for _, s := range signs {
			if s.answer == want {
				return s
			}
		}
	}
	return hostSign{}
}

// hostAlone: it was host memory, and nothing that was said speaks of a card. Output that was not read may.
func (j judge) hostAlone() bool {
	said := len(j.said(oom.Host)) > 0 || j.unsearched() == ""
	return j.hostMemory().answer == Yes && said && len(j.said(oom.Device)) == 0
}

const tooOr = "host memory ran out too; whether that came first cannot be told"

// kills are the job's processes that the kernel ended. When is not known: that log has a clock of its own.
func (j judge) kills() []hostSign {
	if j.Kernel == nil {
		return nil
	}
	var out []hostSign
	for _, k := range j.Kernel.Kills {
		o := slurm.OwnerOfCgroup("0::" + k.Cgroup)
		if !o.Found() || j.another(o) || o.ID != j.Job.ID && (o.SLUID == "" || o.SLUID != j.Job.SLUID) {
			continue
		}
		s := hostSign{Yes, fmt.Sprintf("host memory ran out: the kernel ended your process %d", k.PID), k.Cgroup}
		switch {
		case !j.fellShort() || j.endedForMemory():
		case !j.Job.Exit.Known || j.endedByKill() || j.outOfMemory():
			s.answer, s.text = Unknown, tooOr
		default:
			s.answer, s.text = No, fmt.Sprintf("the kernel ended your process %d for host memory, but not decisive",
				k.PID)
		}
		out = append(out, s)
	}
	return out
}

// refusals are the messages about host memory.
func (j judge) refusals() []hostSign {
	var out []hostSign
	for i, m := range j.Messages {
		if m.Kind == oom.Host {
			out = append(out, j.refusal(i, m))
		}
	}
	return out
}

// refusal judges one such message. Those of programs stand in the order in which they were said, each file for itself;
// Slurm's comes at the end of a step, whenever it was.
func (j judge) refusal(i int, m oom.Message) hostSign {
	s := hostSign{Yes, "refused host memory, not the GPU's", m.Line}
	switch slurms := m.Framework == oom.Slurm; {
	case slurms && j.fellShort() && !j.endedForMemory():
		s.answer, s.text = Unknown, tooOr
	case slurms:
		s.text = "host memory ran out, not the GPU's"
	case j.followed(i, j.short):
		s.answer, s.text = No, "refused host memory before, but not decisive"
	case j.beside(i, j.short):
		s.answer, s.text = Unknown, unordered
	case j.after(i, device) && !ambiguous(m):
		s.text = "refused host memory after the GPU's"
	case j.cramped():
		s.text += "; ulimit -v is " + Size(j.AddressSpace.Bytes)
	case j.followed(i, device):
		s.answer, s.text = Unknown, "refused host memory before; whether that mattered cannot be told"
	case j.beside(i, device):
		s.answer, s.text = Unknown, unordered
	case ambiguous(m):
		s.answer, s.text = Unknown, "a library could not be mapped: a limit, or a folder that allows no programs"
	}
	return s
}

const unordered = "refused host memory too, in another file; which came first cannot be told"

// state is what Slurm's state of the job says: some process of it was ended for host memory, at whatever time.
func (j judge) state() []hostSign {
	switch {
	case !j.outOfMemory():
		return nil
	case j.fellShort():
		return []hostSign{{Unknown, tooOr, ""}}
	}
	return []hostSign{{Yes, "host memory ran out (Slurm's job state)", ""}}
}

func (j judge) outOfMemory() bool {
	e := j.Job.Exit
	return e.Known && (signal(e.Raw) == slurmOutOfMemory || signal(e.Derived) == slurmOutOfMemory)
}

// slurmOutOfMemory is the "signal" in the status of a job that Slurm calls OUT_OF_MEMORY (0:125); Linux has no such
// signal.
const slurmOutOfMemory = 125

// endedByKill: the job, or a step of it, ended by signal 9; a shell says 128 and the signal's number for its child.
func (j judge) endedByKill() bool {
	if !j.Job.Exit.Known {
		return false
	}
	for _, status := range []int{j.Job.Exit.Raw, j.Job.Exit.Derived} {
		if signal(status) == 9 || status>>8&0xff == 128+9 {
			return true
		}
	}
	return false
}

// endedForMemory: it ended by signal 9, and Slurm says for what. By itself that signal is scancel's and the time
// limit's too, and a process that the kernel ended may have been a helper, hours before.
func (j judge) endedForMemory() bool {
	slurms := func(m oom.Message) bool { return m.Kind == oom.Host && m.Framework == oom.Slurm }
	return j.endedByKill() && (j.outOfMemory() || slices.ContainsFunc(j.Messages, slurms))
}

// short: a message that shows a card with less free than was asked.
func (j judge) short(m oom.Message) bool {
	a, ok := j.account(m)
	return ok && a.short()
}

func (j judge) fellShort() bool { return slices.ContainsFunc(j.Messages, j.short) }

func device(m oom.Message) bool { return m.Kind == oom.Device }

// followed: behind a message in its own file, and so later, stands one that is so.
func (j judge) followed(i int, is func(oom.Message) bool) bool {
	return slices.ContainsFunc(j.Messages[i+1:],
		func(m oom.Message) bool { return m.File == j.Messages[i].File && is(m) })
}

// after: before a message in its own file stands one that is so.
func (j judge) after(i int, is func(oom.Message) bool) bool {
	return slices.ContainsFunc(j.Messages[:i],
		func(m oom.Message) bool { return m.File == j.Messages[i].File && is(m) })
}

// beside: in another file than a message stands one that is so, at whatever time.
func (j judge) beside(i int, is func(oom.Message) bool) bool {
	return slices.ContainsFunc(j.Messages, func(m oom.Message) bool { return m.File != j.Messages[i].File && is(m) })
}

// ambiguous: newer loaders say the same of a limit and of a folder mounted noexec.
func ambiguous(m oom.Message) bool {
	return strings.Contains(m.Line, oom.Segment) && !strings.Contains(m.Line, oom.Refused)
}
