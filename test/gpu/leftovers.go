package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/record"
	"bookend/test/gpu/runrecord"
)

// The exit codes of a drain, by cause.
const (
	exitOrphan  = 10
	exitResidue = 11
	exitPhantom = 12
	exitStray   = 13
)

func (r *run) orphanObserved() {
	job := r.leaveOrphan()
	r.orphan(job, "orphan", 0)
	r.check("why no drain", "observe mode", job.AtEnd().Verdict.Held)
}

// leaveOrphan runs a job that asks the daemon for a CUDA process on its card and ends.
func (r *run) leaveOrphan() *job { return r.leaveIn(0, "left behind", "cudajob", asItIs) }

// leaveIn runs a job that leaves a user's program, and waits until that is as it shall be.
func (r *run) leaveIn(user int, role, program string, ready func(*holder), flags ...string) *job {
	return r.leave(func(s *standing) { r.occupies(user, s.card.UUID, role, program, ready, flags...) })
}

// leftIn is a job that leaves a program, once that is as it shall be; the node is drained for it.
func leftIn(classes, program string, ready func(*holder), flags ...string) func(*run) {
	return func(r *run) { r.orphan(r.leaveIn(0, "left behind", program, ready, flags...), classes, exitOrphan) }
}

func asItIs(*holder) {}

func inOwnNamespace(h *holder) {
	if p := readProc(h.PID); !strings.HasSuffix(p.NSpid, "\t1") {
		panic(fmt.Errorf("process %d is in no PID namespace of its own: %+v", h.PID, p))
	}
}

// itsOrphan is what the end of a job that had its GPU alone must say of the process it left.
func (r *run) itsOrphan(job *job, classes string) leftover {
	return leftover{code: "BKD-ORPHAN", pid: r.scene.holder.PID, classes: classes, job: job.ID, evidence: "exclusive"}
}

// orphan wants the end of the job to name the process it left, and its kind.
func (r *run) orphan(job *job, classes string, exit int) {
	r.left(job, r.itsOrphan(job, classes), exit)
	r.said(job, fmt.Sprintf("rocess %d (", r.scene.holder.PID))
}

func (r *run) orphanMoving() {
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
	r.names(about(job, r.scene.holder.PID), r.itsOrphan(job, "orphan"))
	r.rightCards(job)
	r.draining(job, exitOrphan)
}

// about is the finding of a job's end about a process, empty if there is none.
func about(job *job, pid int) (f record.Finding) {
	found := job.AtEnd().Findings
	if i := slices.IndexFunc(found, func(f record.Finding) bool { return f.Holder != nil && f.Holder.PID == pid }); i >= 0 {
		f = found[i]
	}
	return f
}

func (r *run) orphanInherited() {
	job := r.inherit(leftover{pid: r.scene.holder.PID, classes: "orphan"})
	r.said(job, fmt.Sprintf("your job %d", r.scene.left.ID))
}

// inherit runs the next job on the card that another has left something on. It wants its start to name what it found
// and who left it, and its end to blame nobody.
func (r *run) inherit(w leftover) *job {
	r.resume()
	r.rec.Holder, r.rec.Others = r.scene.holder, r.scene.others
	job := r.run1(r.script(whichCard...), "--gres=gpu:1")
	r.evidence("after the second job, the holder still there")
	r.stillThere()
	w.code, w.job, w.evidence = "BKD-DIRTY", r.scene.left.ID, "exclusive"
	r.names(r.one("start of the job", job.Start, w.code), w)
	r.check("end of the job", "clean", verdict(job.End))
	r.said(job, "before your job started")
	r.rightCards(job)
	r.draining(job, 0)
	return job
}

func (r *run) orphanGone() {
	r.daemon.killAll()
	r.awaitIdle()
	r.clean(r.run1(r.script(whichCard...), "--gres=gpu:1"))
}

func (r *run) phantom() {
	r.leavePhantom("cudajob", r.forkHold())
}

func (r *run) forkHold() []string {
	return []string{"alloc", "--mib", fmt.Sprint(r.size()), "--fork-hold"}
}

func (r *run) torchPhantom() { r.leavePhantom("forkhold", []string{fmt.Sprint(min(8<<10, r.size()))}) }

// leavePhantom runs a job that leaves a child of a dead process; others come and go beside it.
func (r *run) leavePhantom(program string, args []string, others ...runrecord.Holder) {
	job := r.leave(func(s *standing) {
		h := r.ask(s, program, args...)
		h.Role, h.Proc = "dead: killed, its child lives", readProc(h.PID)
		children := r.kin("child with inherited descriptors")
		if len(children) == 0 {
			panic(fmt.Errorf("process %d has no child with the driver open: %q", h.PID, h.line))
		}
		h.kill()
		awaitGone(h.PID)
		r.scenery(&h.Holder, append(others, children...)...)
		r.scene.others = children
		r.known(s.card.UUID, &h.Holder)
	})
	w := r.phantomLeft()
	w.code, w.job, w.evidence = "BKD-PHANTOM", job.ID, "exclusive"
	r.left(job, w, exitPhantom)
}

func (r *run) phantomLeft() leftover {
	return leftover{pid: r.scene.holder.PID, classes: "phantom", candidates: pids(r.scene.others), candidate: "orphan"}
}

func (r *run) residue() {
	job := r.leaveExported(r.size())
	r.exported(job, "exported orphan", exitResidue)
}

// leaveExported runs a job that hands so many MiB to a process which never touched CUDA; others belong to the scene.
func (r *run) leaveExported(size uint64, others ...runrecord.Holder) *job {
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
	all := append([]runrecord.Holder{*r.scene.holder}, r.scene.others...)
	return leftover{candidates: pids(all), candidate: "exported"}
}

// exported wants the end of the job to say so, of candidates of these classes.
func (r *run) exported(job *job, classes string, exit int) {
	w := r.exportedLeft()
	w.code, w.job, w.evidence, w.candidate = "BKD-RESIDUE", job.ID, "exclusive", classes
	r.left(job, w, exit)
}

func (r *run) innocent() {
	other := r.startAs(1, "", "cudajob", "holdctl")
	other.Role = "innocent: has the control node open"
	job := r.leaveExported(r.size(), other.Holder)
	r.exported(job, "exported", 0)
}

func (r *run) imported() {
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
		settled(func() { r.known(s.card.UUID, &importer.Holder) })
	})
	r.orphan(job, "orphan", exitOrphan)
}
