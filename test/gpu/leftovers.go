package main

import (
	"fmt"
	"strings"

	"bookend/test/gpu/record"
)

// leftoverChains are the scenarios in which a job leaves memory behind. What holds it was started by the daemon, for
// Slurm ends everything in the job's own cgroup.
func leftoverChains() []chain {
	ignore := func(code string) map[string]string {
		return map[string]string{"policy": "{epilog: {" + code + ": ignore}}"}
	}
	blind := map[string]string{"thresholds": "{report: 1000GiB, drain: 1000GiB}"}
	return []chain{
		{gpus: 1, mode: "observe", steps: []step{orphanObserved, orphanInherited, orphanGone},
			controls: []control{{step: orphanInherited.name,
				off: map[string]string{"policy": "{prolog: {BKD-DIRTY: ignore}}"}}}},
		{gpus: 1, mode: "enforce", steps: []step{orphanEnforced}, controls: without(orphanEnforced,
			ignore("BKD-ORPHAN"))},
		{gpus: 1, mode: "enforce", steps: []step{orphanMoving}},
		{gpus: 1, mode: "enforce", steps: []step{phantom, phantomInherited}, controls: without(phantom, ignore("BKD-PHANTOM"))},
		{gpus: 1, torch: true, real: true, mode: "enforce", steps: []step{torchPhantom}},
		{gpus: 1, mode: "enforce", steps: []step{residue, residueInherited},
			controls: []control{{step: residue.name,
				off: blind}}},
		{gpus: 1, mode: "enforce", steps: []step{innocent}, controls: without(innocent, blind)},
		{gpus: 1, mode: "enforce", brisk: true, steps: []step{imported}},
		{gpus: 1, mode: "enforce", brisk: true, steps: []step{stopped},
			controls: without(stopped, ignore("BKD-ORPHAN"))},
		{gpus: 1, mode: "enforce", brisk: true, steps: []step{leaderless},
			controls: without(leaderless, ignore("BKD-ORPHAN"))},
		{gpus: 1, mode: "enforce", brisk: true, steps: []step{otherPIDs},
			controls: without(otherPIDs, ignore("BKD-ORPHAN"))},
	}
}

// The exit codes of a drain, by cause.
const (
	exitOrphan  = 10
	exitResidue = 11
	exitPhantom = 12
	exitStray   = 13
)

var orphanObserved = step{
	name: "orphan-observe", title: "Process left behind through a daemon (observe)",
	truth: "A root daemon started a CUDA process for the job, as its user and outside every job's cgroup; it " +
		"outlives the job and holds memory. That it is the job's follows from the job having had the GPU alone.",
	do: func(r *run) {
		job := r.leaveOrphan()
		r.orphan(job, "orphan")
		r.check("why no drain", "observe mode", held(job.End))
		r.draining(job, 0)
	},
}

var orphanEnforced = step{
	name: "orphan-enforce", title: "Process left behind through a daemon (enforce)",
	truth: "As above: a process of the ended job, in no job's cgroup, keeps memory that the next job would miss. The " +
		"node must take no further job.",
	do: leftIn("orphan", "cudajob", func(*holder) {}),
}

// leaveOrphan runs a job that asks the daemon for a CUDA process on its card and ends.
func (r *run) leaveOrphan() *record.Job {
	return r.leaveIn("cudajob", func(*holder) {})
}

// leaveIn waits until the process is as it shall be.
func (r *run) leaveIn(program string, ready func(*holder), flags ...string) *record.Job {
	return r.leave(func(s *standing) {
		h := r.ask(s, program, append([]string{"alloc", "--mib", fmt.Sprint(r.size())}, flags...)...)
		ready(h)
		h.Role = "left behind"
		r.scenery(&h.Holder)
		r.known(s, &h.Holder)
	})
}

// orphan wants the end of the job to name the process it left, and its kind.
func (r *run) orphan(job *record.Job, classes string) {
	h := r.scene.holder
	r.left(job, leftover{code: "BKD-ORPHAN", pid: h.PID, classes: classes, job: job.ID, evidence: "exclusive"})
	r.said(job, fmt.Sprintf("rocess %d (", h.PID))
}

var orphanMoving = step{
	name: "orphan-moving", title: "Process left behind on a GPU whose memory never settles",
	truth: "Two processes of the ended job stay, in no job's cgroup. One keeps its memory; the other takes and " +
		"frees 64 MiB every 0.7 s, so the memory of the GPU never settles. Both are named, and the first is enough " +
		"to drain the node.",
	do: func(r *run) {
		job := r.leave(func(s *standing) {
			kept := &r.ask(s, "cudajob", "alloc", "--mib", fmt.Sprint(r.size())).Holder
			moving := &r.ask(s, "cudajob", "alloc", "--mib", "2", "--churn", "700").Holder
			kept.Role, moving.Role, kept.Gone = "left behind", "takes and frees memory", 0
			r.scenery(kept, *moving)
			kept.GPU, kept.Held = s.card.UUID, r.listed(s.card.UUID)[kept.PID]
		})
		r.check("start of the job", "clean", verdict(job.Start))
		// A busy machine may leave the mover so little time that no look sees it move.
		end := strings.TrimSuffix(verdict(job.End), " BKD-MOVING")
		r.check("end of the job, moving or not", "BKD-ORPHAN BKD-ORPHAN", end)
		r.names(of(job.End, r.scene.holder.PID), leftover{
			code: "BKD-ORPHAN", pid: r.scene.holder.PID, classes: "orphan", job: job.ID, evidence: "exclusive",
		})
		r.rightCards(job)
		r.draining(job, exitOrphan)
	},
}

// of is the finding about a process, empty if there is none.
func of(e *record.End, pid int) record.Finding {
	if e != nil {
		for _, f := range e.Findings {
			if f.PID == pid {
				return f
			}
		}
	}
	return record.Finding{}
}

var orphanInherited = step{
	name: "inherited", title: "Next job on the same GPU (observe)",
	truth: "The earlier job's process still holds memory when the same user's next job gets the GPU. The next job " +
		"uses the GPU and leaves nothing of its own.",
	do: func(r *run) {
		job := r.inherit()
		r.inherited(job, leftover{pid: r.scene.holder.PID, classes: "orphan"})
		r.said(job, fmt.Sprintf("your job %d", r.scene.left.ID))
		r.draining(job, 0)
	},
}

// inherit runs the next job on the card that another has left something on.
func (r *run) inherit() *record.Job {
	r.resume()
	r.rec.Holder, r.rec.Others = r.scene.holder, r.scene.others
	job := r.run1(r.script(whichCard...), "--gres=gpu:1")
	r.evidence("after the second job, the holder still there")
	r.stillThere()
	return job
}

// inherited wants the start of the job to name what it found and who left it, and its end to blame nobody.
func (r *run) inherited(job *record.Job, w leftover) {
	w.code, w.job, w.evidence = "BKD-DIRTY", r.scene.left.ID, "exclusive"
	r.names(r.one("start of the job", job.Start, w.code), w)
	r.check("end of the job", "clean", verdict(job.End))
	r.said(job, "before your job started")
	r.rightCards(job)
}

var orphanGone = step{
	name: "freed", title: "Next job after the process was killed",
	truth: "The process that an earlier job left is killed; its memory is free before the next job begins.",
	do: func(r *run) {
		r.daemon.killAll()
		r.awaitIdle()
		job := r.run1(r.script(whichCard...), "--gres=gpu:1")
		r.clean(job)
	},
}

var phantom = step{
	name: "phantom", title: "Forked child of a killed CUDA process",
	truth: "A CUDA process of the job forked, without exec, and was killed; the driver goes on listing its PID, " +
		"which is no one's, and the child holds the memory through the descriptors it inherited.",
	do: func(r *run) {
		r.leavePhantom("cudajob", "alloc", "--mib", fmt.Sprint(r.size()), "--fork-hold")
	},
}

var torchPhantom = step{
	name: "torch-phantom", title: "Forked child of a killed PyTorch process",
	truth: "As above, with PyTorch's multiprocessing: the parent is killed, the child sleeps on with its descriptors.",
	do:    func(r *run) { r.leavePhantom("forkhold", fmt.Sprint(min(8<<10, r.size()))) },
}

func (r *run) leavePhantom(program string, args ...string) {
	job := r.leave(func(s *standing) {
		h := r.ask(s, program, args...)
		h.Role, h.Proc = "dead: killed, its child lives", readProc(h.PID)
		children := r.kin("child with inherited descriptors")
		if len(children) == 0 {
			panic(brokenf("process %d has no child with the driver open: %q", h.PID, h.line))
		}
		h.kill()
		awaitGone(h.PID)
		r.scenery(&h.Holder, children...)
		r.known(s, &h.Holder)
	})
	w := r.phantomLeft()
	w.code, w.job, w.evidence = "BKD-PHANTOM", job.ID, "exclusive"
	r.left(job, w)
	r.draining(job, exitPhantom)
}

func (r *run) phantomLeft() leftover {
	return leftover{pid: r.scene.holder.PID, classes: "phantom", candidates: pids(r.scene.others), candidate: "orphan"}
}

var phantomInherited = step{
	name: "phantom-inherited", title: "Next job on a GPU with a dead process's memory",
	truth: "The child of the killed process still holds the memory when the next job gets the GPU; that job " +
		"leaves nothing.",
	do: func(r *run) {
		job := r.inherit()
		r.inherited(job, r.phantomLeft())
		r.draining(job, 0)
	},
}

var residue = step{
	name: "residue", title: "Memory without a process: an exported handle",
	truth: "The job exported memory as a descriptor and handed it to a process outside every job that never touched " +
		"CUDA. The job has ended; the memory stays in use and the driver lists no process for it. No one else has " +
		"the driver open.",
	do: func(r *run) {
		job := r.leaveExported(r.size())
		w := r.exportedLeft()
		w.code, w.job, w.evidence, w.candidate = "BKD-RESIDUE", job.ID, "exclusive", "exported orphan"
		r.left(job, w)
		r.draining(job, exitResidue)
	},
}

// leaveExported runs a job that hands so many MiB to a process which never touched CUDA; others belong to the scene.
func (r *run) leaveExported(size uint64, others ...record.Holder) *record.Job {
	return r.leave(func(s *standing) {
		socket := r.inHome(s, "hold")
		h := r.startAs(0, "", "cudajob", "holdfd", socket)
		h.Role = "has the exported descriptor"
		r.act(s, fmt.Sprintf("$CUDAJOB alloc --mib %d --export %s --sleep 0 >/dev/null", size, socket))
		r.scenery(&h.Holder, others...)
		r.unlisted(s, &h.Holder, size*mib)
	})
}

// exportedLeft accuses no process, and names all that may hold the memory.
func (r *run) exportedLeft() leftover {
	all := append([]record.Holder{*r.scene.holder}, r.scene.others...)
	return leftover{candidates: pids(all), candidate: "exported"}
}

var residueInherited = step{
	name: "residue-inherited", title: "Next job on a GPU with an exported handle's memory",
	truth: "The descriptor is still held when the next job gets the GPU; that job leaves nothing.",
	do: func(r *run) {
		job := r.inherit()
		r.inherited(job, r.exportedLeft())
		r.draining(job, 0)
	},
}

var innocent = step{
	name: "residue-innocent", title: "An exported handle, and an innocent process with the driver open",
	truth: "As above, but another user's process has the driver's control node open as well, since before the job, " +
		"and holds nothing. No one can tell from outside which of the two has the memory: both are named, and the " +
		"node is not drained on that.",
	do: func(r *run) {
		other := r.startAs(1, "", "cudajob", "holdctl")
		other.Role = "innocent: has the control node open"
		job := r.leaveExported(r.size(), other.Holder)
		w := r.exportedLeft()
		w.code, w.job, w.evidence = "BKD-RESIDUE", job.ID, "exclusive"
		r.left(job, w)
		r.draining(job, 0)
	},
}

var imported = step{
	name: "ipc", title: "CUDA IPC importer after the exporter died",
	truth: "One process of the job allocated memory and another mapped it by CUDA IPC. The first was killed; the " +
		"second outlives the job and holds all of it.",
	do: func(r *run) {
		job := r.leave(func(s *standing) {
			socket := r.inHome(s, "ipc")
			exporter := r.ask(s, "cudajob", "ipc-export", "--mib", fmt.Sprint(r.size()), "--socket", socket)
			importer := r.ask(s, "cudajob", "ipc-import", "--socket", socket)
			exporter.Role, importer.Role = "dead: allocated the memory", "maps it"
			exporter.Proc, importer.Proc = readProc(exporter.PID), readProc(importer.PID)
			exporter.kill() // it may have ended by itself
			awaitGone(exporter.PID)
			importer.Allocated, importer.Gone = r.size()*mib, 0
			r.scenery(&importer.Holder, exporter.Holder)
			settled(func() { r.known(s, &importer.Holder) })
		})
		r.orphan(job, "orphan")
		r.draining(job, exitOrphan)
	},
}

var stopped = step{
	name: "stopped", title: "Stopped process",
	truth: "A process of the ended job was stopped by SIGSTOP while it holds memory. Its name is chosen to mislead " +
		"who reads /proc carelessly.",
	do: leftIn("orphan stopped", "cudajob", inState("T"), "--stop", "--name", "a) R (b"),
}

// leftIn is a job that leaves a program, once that is as it shall be; the node is drained for it.
func leftIn(classes, program string, ready func(*holder), flags ...string) func(*run) {
	return func(r *run) {
		job := r.leaveIn(program, ready, flags...)
		r.orphan(job, classes)
		r.draining(job, exitOrphan)
	}
}

var leaderless = step{
	name: "leaderless", title: "Process whose first thread has ended",
	truth: "The first thread of a process of the ended job has exited, so /proc calls the process a zombie and " +
		"shows no descriptor of it; a second thread lives and holds the memory.",
	do: leftIn("dying orphan", "cudajob", inState("Z"), "--leader-exits"),
}

var otherPIDs = step{
	name: "pidns", title: "Process in another PID namespace",
	truth: "A process of the ended job lives in a PID namespace of its own, where it has another PID, and holds " +
		"memory.",
	do: leftIn("container orphan", contained, func(h *holder) {
		if p := readProc(h.PID); !strings.HasSuffix(p.NSpid, "\t1") {
			panic(brokenf("process %d is in no PID namespace of its own: %+v", h.PID, p))
		}
	}),
}
