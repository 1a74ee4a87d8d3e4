package diagnosis

import (
	"cmp"
	"fmt"
	"slices"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// limits judges causes other than GPU memory: the process's own limits and host memory.
func limits(e evidence) record.Cause {
	host := hostMemory(e)
	if limit := addressSpace(e); limit != "" && host.Answer != record.Yes {
		return yes(limit)
	}
	return cmp.Or(host, unlimited(e))
}

// hostMemory judges the signs that host memory ran out: kernel kills of the job's processes, Slurm's state and log
// line, and programs' messages. If a GPU was full too, the kill may have hit a helper process hours earlier, so it is
// certain only if the job was ended for it.
func hostMemory(e evidence) record.Cause {
	messages, exit := e.messages[record.KindHost], e.in.Job.Exit
	bySlurm := func(m record.Message) bool { return m.Framework == record.FromSlurm }
	byProgram := func(m record.Message) bool { return !m.Ambiguous() }
	slurms := slices.ContainsFunc(messages, bySlurm) || ended(exit, slurmOutOfMemory)
	full, kill := len(e.balances) > len(e.withRoom), killed(e)
	pid, ran := kill.PID, fmt.Sprintf("host memory ran out: the kernel ended your process %d", kill.PID)
	if kill.Limit > 0 {
		ran += "; the limit was " + gpu.Size(kill.Limit)
	}
	if kill.Whole {
		ran += takenBefore(e)
	}
	unclear, limit := (pid != 0 || slurms) && full && !(ended(exit, 9) && slurms), gpu.Size(e.in.AddressSpace.Bytes)
	return rules[record.Cause]{
		{unclear, cannotTell("host memory ran out too; whether that came first cannot be told")},
		{pid != 0, yes(ran)},
		{slurms, yes("host memory ran out, not the GPU's")},
		{len(messages) == 0, record.Cause{}},
		{len(e.failures) > 0, cannotTell("refused host memory too" + unweighed)},
		{e.addressLimited, yes("refused host memory; ulimit -v is " + limit)},
		{slices.ContainsFunc(messages, byProgram), yes("refused host memory, not the GPU's" + takenBefore(e))},
		{true, cannotTell("a library could not be mapped: a limit, or a directory that allows no programs")},
	}.first()
}

// takenBefore says what the node's memory was short of at the job's start. It does not count for a limit of the job's.
func takenBefore(e evidence) string {
	short := func(f record.Finding) bool { return f.Code == catalog.HostMemory }
	if i := slices.IndexFunc(e.in.StartFindings, short); i >= 0 {
		return "; before your job, " + e.in.StartFindings[i].Observed
	}
	return ""
}

// killed returns the first kill of a process of the job for host memory, zero for none. Its time is of another clock.
func killed(e evidence) gpu.HostKill {
	for _, k := range e.in.Kernel.Kills {
		if e.in.Job.Owns(slurm.OwnerOfCgroup("0::" + k.Cgroup)) {
			return k
		}
	}
	return gpu.HostKill{}
}

// slurmOutOfMemory is the "signal" in the status of an OUT_OF_MEMORY job (0:125); Linux has no such signal.
const slurmOutOfMemory = 125

func signal(status int) int { return status & 0x7f }

// ended reports whether a signal, or a shell's 128+9, ended the job or a step. scancel and time limits send 9 too.
func ended(exit slurm.ExitStatus, sig int) bool {
	by := func(status int) bool { return signal(status) == sig || sig == 9 && status>>8&0xff == 128+9 }
	return exit.Known && (by(exit.Raw) || by(exit.Derived))
}

// hostAlone reports whether host memory ran out and no message is about a GPU. Without a message about host memory, the
// output must also have been read in full.
func hostAlone(e evidence) bool {
	searched := len(e.messages[record.KindHost]) > 0 || e.unsearched == ""
	return hostMemory(e).Answer == record.Yes && searched && len(e.failures) == 0
}

// addressSpace describes the address-space limit with which CUDA could not serve a program: CUDA needs far more than
// the GPU's memory. Hooks cannot see a limit set by a script; that, or a process now gone, may be another cause.
func addressSpace(e evidence) string {
	odd := func(f failure) bool { return !f.capped && !(f.balanced && f.short()) }
	refused := e.startFailed || slices.ContainsFunc(e.failures, odd)
	if refused && !e.served && e.addressLimited && e.in.AddressSpace.Bytes < e.roomiest() {
		return fmt.Sprintf("ulimit -v is %s; CUDA needs far more than the GPU's memory",
			gpu.Size(e.in.AddressSpace.Bytes))
	}
	return ""
}

// notTheGPU is no if no program can have been refused GPU memory, or else no answer.
func notTheGPU(e evidence) record.Cause {
	return rules[record.Cause]{{stoppedByLimit(e), no(didNotStart)}, {hostAlone(e), no("it was host memory")}}.first()
}

func stoppedByLimit(e evidence) bool { return e.startFailed && addressSpace(e) != "" }

const didNotStart = "CUDA did not even start"

func unlimited(e evidence) record.Cause {
	unread, space := cmp.Or(unreadLog(e), e.unsearched), e.in.AddressSpace
	full := len(e.balances) > 0 && len(e.withRoom) == 0 && len(e.balances) == len(e.in.Messages) // no other message
	open := !space.Known() || space.Bytes < record.Unlimited ||
		len(e.failures) > 0 && !e.served // a CPU allocator may print the same
	const noStart = "CUDA could not start for want of memory; no limit was seen, but a script may set ulimit -v"
	return rules[record.Cause]{
		{full, no("the GPU's memory ran out")},
		{e.startFailed, cannotTell(noStart)},
		{e.addressLimited, cannotTell("ulimit -v is " + gpu.Size(space.Bytes))},
		{unread != "", cannotTell(unread)},
		{open, cannotTell("its ulimit -v when it failed is not known (the task hooks tell the first)")},
		{true, no("no ulimit -v, nothing killed")},
	}.first()
}

// share judges whether the job had less than a whole GPU, or allowed itself less.
func share(e evidence) record.Cause {
	if i := slices.IndexFunc(e.failures, failure.isCapped); i >= 0 {
		f := e.failures[i]
		return on(f.gpu, yes("your program may use "+gpu.Size(f.message.Cap)+", by a limit that it set"))
	}
	for _, c := range e.in.Cards {
		if c.Device.Parent == "" {
			continue
		}
		text := "a part of a GPU (MIG or partition)"
		if room := e.in.capacity(c.Device.ID); room > 0 {
			text += " with " + gpu.Size(room)
		}
		return on(&c, yes(text))
	}
	// without figures, or with enough free, a limit of its own may have stopped it
	uncertain := func(f failure) bool { return !f.balanced || !f.short() }
	const itself = "it had the whole GPU; whether its program set a limit is not known"
	return rules[record.Cause]{
		{e.in.Shared != "", yes("others may use the same GPU: " + e.in.Shared)},
		{e.in.Job.MPSPercent != "", yes("CUDA MPS shares the GPU")},
		{len(e.in.Cards) == 0, cannotTell(noGPUs)},
		{e.in.SharedUnknown != "", cannotTell(e.in.SharedUnknown)},
		{slices.ContainsFunc(e.failures, uncertain), cannotTell(itself)},
		{true, no("it had the whole GPU")},
	}.first()
}
