package main

import (
	"fmt"
	"strings"

	"bookend/internal/diagnosis"
	"bookend/test/gpu/record"
)

// whyChains are the scenarios in which a job runs out of memory. What PyTorch says of it on the way is real.
func whyChains() []chain {
	blind := map[string]string{"thresholds": "{report: 1000GiB, drain: 1000GiB}"}
	deaf := map[string]string{"job_log": "{read: false}"}
	return []chain{
		why(oomSelf, deaf),
		why(oomPool, deaf),
		why(oomForeign, map[string]string{"slurm": "{shared_partitions: [main]}"}),
		why(oomPassing, map[string]string{"record": "{every: 0s}"}),
		why(oomInherited, blind),
		why(oomLimit, deaf),
		why(oomSilent, map[string]string{"slurm": "{shared_partitions: [main]}"}),
	}
}

// why is the chain of one such scenario, with a control that takes from Bookend what it needs for the answer.
func why(s step, off map[string]string) chain {
	return chain{gpus: 1, torch: true, mode: "observe", brisk: true, steps: []step{s}, controls: without(s, off)}
}

var oomSelf = step{
	name: "oom-self", title: "Out of memory by itself",
	truth: "PyTorch has the whole GPU and takes blocks of 2 GiB until there is no more. No one else was there: it " +
		"was the job itself.",
	do: func(r *run) {
		job := r.fails(r.script(r.torch("take 0", "--mib 163840 --chunks 80")), 0)
		r.because(job, answers{yes: list(diagnosis.Own)})
	},
}

var oomPool = step{
	name: "oom-pool", title: "Out of memory by pieces in its own pool",
	truth: "PyTorch's caching allocator has nearly all of the GPU; half of it was given back in pieces, and no " +
		"piece is as large as the block that the job asks for, while the pool's unused part is much larger.",
	do: func(r *run) {
		job := r.fails(r.script("export PYTORCH_ALLOC_CONF=expandable_segments:False", // as it is shipped
			r.torch("pieces", "--mib 135168 --chunks 66 --idle 67584 --ask 16384")), 0)
		r.because(job, answers{yes: list(diagnosis.Pool)})
	},
}

var oomForeign = step{
	name: "oom-foreign", title: "Out of memory beside another user's process",
	truth: "Another user's process, started outside Slurm, has most of the GPU before the job begins and when it " +
		"has ended. The job asks for less than half of a GPU, and does not get it.",
	do: func(r *run) {
		h := r.squeeze(r.cards[0].uuid)
		job := r.fails(r.script(r.modest(h)), 0)
		r.evidence("after the job, the other process alive")
		r.because(job, answers{yes: list(diagnosis.Others)})
		r.stillThere()
	},
}

var oomPassing = step{
	name: "oom-passing", title: "Out of memory beside a process that came and went",
	truth: "As above, but the other process came after the job's start and is gone before its end: no hook has seen " +
		"it. The recorder has, with its user, who is not the job's.",
	do: func(r *run) {
		job, h := r.squeezedMeanwhile()
		r.rec.Holder = &h.Holder
		r.because(job, answers{yes: list(diagnosis.Others), either: list(diagnosis.Unlisted, diagnosis.Processes)})
	},
}

var oomInherited = step{
	name: "oom-inherited", title: "Out of memory on a GPU with an earlier job's exported memory",
	truth: "An earlier job exported most of the GPU's memory as a descriptor to a process that never touched CUDA, " +
		"and ended: the memory stays in use, and no process is listed for it. Another user's job asks for less than " +
		"half of a GPU, and does not get it.",
	do: func(r *run) {
		r.leaveExported(r.most())
		job := r.fails(r.script(r.modest(nil)), 1)
		r.evidence("after the second job, the descriptor still held")
		r.because(job, answers{yes: list(diagnosis.Unlisted), untold: list(diagnosis.Leftover)})
		r.stillThere()
	},
}

var oomLimit = step{
	name: "oom-ulimit", title: "Out of memory by a limit of its own",
	truth: "The job's script sets ulimit -v, and PyTorch starts a CUDA that cannot have the address space it needs: " +
		"error 2, out of memory, on an idle GPU.",
	do: func(r *run) {
		job := r.fails(r.script(fmt.Sprintf("ulimit -v %d", r.cramped()), r.torch("take 4096", "--mib 4096")), 0)
		r.because(job, answers{yes: list(diagnosis.Limits), either: list(diagnosis.Others)})
	},
}

var oomSilent = step{
	name: "oom-silent", title: "Out of memory by itself, without a word",
	truth: "As the first, but nothing of what PyTorch says reaches the job's output. No one else was there. How much " +
		"it had the recorder saw, if it was there for a second at least.",
	do: func(r *run) {
		job := r.fails(r.script(r.torch("take 0", "--mib 163840 --chunks 80")+" >/dev/null 2>&1"), 0)
		r.because(job, answers{untold: list(diagnosis.Own), either: list(diagnosis.Others, diagnosis.Unlisted,
			diagnosis.Pool, diagnosis.Processes, diagnosis.Limits)})
		var d *record.Diagnosis
		if job.End != nil {
			d = job.End.Diagnosis
		}
		c, _ := d.Of(string(diagnosis.Own))
		r.holds("the job's own need", "as much as was seen, or that it was not measured", c.Evidence,
			strings.Contains(c.Evidence, " or more") || strings.Contains(c.Evidence, "not measured"))
	},
}

// cramped is a limit of address space, in KiB, under which PyTorch can be imported and CUDA does not start: that alone
// takes more than 3.9 GiB (measured), the import what it took when the lane looked for it.
func (r *run) cramped() uint64 {
	const without, more = 40000000, 3 << 19
	if r.needs == 0 {
		return without
	}
	return r.needs + more
}

// torch makes the shell line that runs PyTorch, and in a rehearsal what plays it.
func (r *run) torch(real, fake string) string {
	if r.fake > 0 {
		return "$CUDAJOB alloc --torch --sleep 0 " + fake
	}
	return fmt.Sprintf("%s %s %s", r.python, r.site.Program("memory.py"), real)
}

// modest asks for less than half of a card, and more than what r.most leaves. A rehearsal must be told whom the driver
// would list.
func (r *run) modest(other *holder) string {
	want := r.total() * 45 / 100 / 2048 * 2048
	fake := fmt.Sprintf("--mib %d --chunks %d", want, want/2048)
	if other != nil {
		fake += fmt.Sprintf(" --other %d:%d", other.PID, other.Held/mib)
	}
	return r.torch(fmt.Sprintf("take %d", want), fake)
}

// most is so much of a card that no job which wants half of it can have that, in MiB.
func (r *run) most() uint64 { return (r.total() * 7 / 10) &^ 1 }

// squeeze starts another user's process that takes most of a card.
func (r *run) squeeze(uuid string) *holder {
	h := r.startAs(1, uuid, "cudajob", "alloc", "--mib", fmt.Sprint(r.most()))
	h.Role = "another user's, of no job"
	r.scenery(&h.Holder)
	settled(func() { r.known(&standing{card: record.GPU{UUID: uuid}}, &h.Holder) })
	r.evidence("the other process at work")
	return h
}

// fails runs a job of one of the users and wants it to fail.
func (r *run) fails(script string, user int, args ...string) *record.Job {
	return r.endsAs("FAILED", r.submit(user, script, append([]string{"--gres=gpu:1"}, args...)...))
}

// squeezedMeanwhile runs a job that is squeezed only while it runs: it tries once the other process is there, and ends
// once that is gone.
func (r *run) squeezedMeanwhile() (*record.Job, *holder) {
	s := r.stand()
	h := r.squeeze(s.card.UUID)
	h.Proc = readProc(h.PID)
	r.act(s, r.modest(h))
	r.sampled(s)
	h.kill()
	h.Role += "; gone before the job's end"
	r.awaitIdle()
	s.let()
	return r.endsAs("FAILED", s.id), h
}
