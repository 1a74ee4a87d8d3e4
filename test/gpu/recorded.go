package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/child"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/cluster"
)

func (r *run) recordedGrowing() {
	const processes = 6
	gate := r.gate()
	id := r.submit(0, r.script(fmt.Sprintf("for i in $(seq %d); do $CUDAJOB alloc --mib 2048 & all=\"$all $!\"; sleep 2; done",
		processes), r.until(gate), "kill $all", "wait || true"), "--gres=gpu:1")
	r.awaitTogether(id, processes)
	try(open(gate))
	job := r.endsAs("COMPLETED", id)
	r.cleanEnds(job)
	on, seen := r.recordedOf(job)
	r.holds("samples", "one each second", on.Samples, seen && on.Samples >= 8)
	curve := on.Curve.Used
	if len(curve) == 0 {
		return
	}
	most := curve[:slices.Index(curve, slices.Max(curve))+1]
	steps := len(slices.Compact(slices.Clone(most)))
	r.holds("course", "it grows in steps", most, slices.IsSorted(most) && steps >= 5)
	peak := on.Own.Bytes >> 20
	r.holds("peak of the job, MiB", "6 times 2048", peak, peak >= 6*2048 && peak < 6*(2048+700))
	r.check("processes at once", 6, on.Together)
	r.said(job, "clean: peak ")
	r.said(job, "6 processes")
}

func (r *run) recordedSeveral() {
	job := r.fails(r.crowd(r.most(), fmt.Sprintf("$CUDAJOB alloc --mib %d --sleep 120 &", r.most()),
		"$CUDAJOB alloc --mib 2048 --sleep 120 &"), 0)
	r.answers(job, answers{untold: severalAtOnce.yes, either: severalAtOnce.either}) // the largest may have asked itself
}

// severalAtOnce: that the job's own need alone was too large is as wrong as that others were there.
var severalAtOnce = answers{yes: list(record.CauseProcesses),
	either: list(record.CauseOthers, record.CauseUnlisted, record.CauseOwn, record.CausePool, record.CausePieces)}

// crowd starts programs, then one that fails for want of so many MiB and does not say whose the rest is.
func (r *run) crowd(asked uint64, lines ...string) string {
	return r.script(append(lines, "sleep 6", fmt.Sprintf("$CUDAJOB alloc --mib %d --sleep 1 >/dev/null 2>&1 && exit 0",
		asked), r.wants(asked), "sleep 2", "exit 1")...)
}

// wants says in JAX's words that so many MiB could not be had.
func (r *run) wants(mib uint64) string {
	const says = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate"
	return fmt.Sprintf("echo '%s %d bytes.'", says, mib<<20)
}

func (r *run) recordedPiled() {
	rank := fmt.Sprintf("$CUDAJOB alloc --mib %d --sleep 120 &", r.total()*3/10)
	job := r.endsAs("FAILED", r.submit(0, r.crowd(r.total()*4/10, rank, rank, rank), fmt.Sprintf("--gres=gpu:%d", len(r.cards))))
	r.answers(job, severalAtOnce)
	c := job.because(record.CauseProcesses)
	r.holds("the GPU that was not used", "named", c.Evidence, strings.Contains(c.Evidence, "idle"))
}

func (r *run) recordedSpikes() {
	const spike = "$CUDAJOB alloc --mib %d --sleep 0.1; sleep 2"
	lines := slices.Repeat([]string{fmt.Sprintf(spike, r.total()*9/10)}, 3)
	job := r.fails(r.script(append(lines, r.wants(r.total()*9/10), "sleep 2", "exit 1")...), 0)
	r.answers(job, answers{untold: list(record.CauseOwn), either: list(record.CauseOthers, record.CauseUnlisted,
		record.CausePool, record.CausePieces, record.CauseProcesses, record.CauseLimits)})
	on, seen := r.recordedOf(job)
	r.holds("samples", "one each second", on.Samples, seen && on.Samples >= 6)
}

// recordedStray is a login that used the job's GPU and went before the job ended.
func (r *run) recordedStray() {
	s := r.stand()
	h := r.occupies(1, s.card.UUID, "dead: "+ofNoJob, "cudajob", asItIs)
	r.sampled(s.id)
	h.kill()
	awaitGone(h.PID)
	job := r.release(s)
	r.scene.left = job
	f := about(job, h.PID)
	r.check("the stranger", "BKD-STRAY", string(f.Code))
	r.blames(f, 0, record.ByRecorder)
	r.bytes(h.Holder, f.Bytes.Bytes)
	r.rightCards(job)
	r.draining(job, 0)
}

// recordedLeak is a job that leaves a process: all that it used to its very end is on record.
func (r *run) recordedLeak() {
	job := r.leave(func(s *standing) {
		r.occupies(0, s.card.UUID, "left behind", "cudajob", asItIs)
		r.sampled(s.id)
	})
	r.left(job, r.itsOrphan(job, "orphan"), exitOrphan)
	end := job.AtEnd()
	gaps := end.Recording.Gaps(job.Start.At, end.Over())
	r.holds("times without a sample", "none", gaps, len(gaps) == 0)
	on, _ := r.recordedOf(job)
	r.holds("peak of the GPU, MiB", fmt.Sprintf("%d or more", r.size()), on.Peak.Bytes/mib,
		on.Peak.Bytes >= r.size()*mib)
}

// recordedTrespass is a job's process on the GPU of another user's job, gone before either job ends.
func (r *run) recordedTrespass() {
	victim := r.stand()
	id, h, gate := r.guest(victim.card.UUID, "dead: ", "--gres="+r.oneGPU)
	r.sampled(victim.id)
	h.kill()
	awaitGone(h.PID)
	job := r.release(victim)
	f := about(job, h.PID)
	r.check("on the record of the job whose GPU it was", "BKD-FOREIGN", string(f.Code))
	try(open(gate))
	culprit := r.endsAs("COMPLETED", id)
	f = about(culprit, h.PID)
	r.check("on the record of the job whose process it was", "BKD-TRESPASS", string(f.Code))
	r.blames(f, int(number(string(id))), record.ByRecorder)
	r.said(culprit, "may use")
	r.draining(culprit, 0)
}

// sampled waits until two samples of a standing job are on record that were taken after now, one after the other: a
// rehearsal leaves no time for that, and a count on record may be an old one. A control has none.
func (r *run) sampled(id cluster.JobID) {
	for n := 0; n < 2 && !r.scene.control; n++ {
		now := child.SystemClock().Boot()
		settled(func() {
			if at := state.Recorded.Peek(r.store()).At; at < now || r.soFar(id).Samples == 0 {
				panic(fmt.Errorf("no sample of job %s since %v, the last at %v", id, now, at))
			}
		})
	}
}

// awaitTogether waits until so many of a job's programs have memory, and were recorded at once. A control has no recorder.
func (r *run) awaitTogether(id cluster.JobID, processes int) {
	settled(func() {
		text, _ := r.site.Output(id)
		ready, together := strings.Count(text, "ready "), 0
		if gpus := r.soFar(id).GPUs; len(gpus) > 0 {
			together = gpus[0].Together
		}
		if ready < processes || !r.scene.control && together < processes {
			panic(fmt.Errorf("of %d processes %d began, and %d were recorded at once", processes, ready, together))
		}
	})
}

// soFar is what is recorded of a job that runs.
func (r *run) soFar(id cluster.JobID) (so record.Recording) {
	n, _ := strconv.ParseUint(string(id), 10, 32)
	if of := state.Recorded.Peek(r.store()).Runs.About(r.kept(slurm.JobID(n))); of != nil {
		so = *of
	}
	return so
}

// recordedOf is what was recorded of a job's first GPU.
func (r *run) recordedOf(job *job) (on record.GPURecording, seen bool) {
	of := job.AtEnd().Recording
	if of == nil || len(of.GPUs) == 0 {
		return on, false
	}
	return of.GPUs[0], true
}
