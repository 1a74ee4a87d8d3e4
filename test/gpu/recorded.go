package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/diagnosis"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

func (r *run) recordedGrowing() {
	job := r.run1(r.script("for i in 1 2 3 4 5 6; do $CUDAJOB alloc --mib 2048 --sleep $((14 - 2 * i)) & sleep 2; done",
		"wait"), "--gres=gpu:1")
	r.cleanEnds(job)
	on, seen := r.recordedOf(job)
	r.holds("samples", "one each second", fmt.Sprint(on.Samples), seen && on.Samples >= 8)
	curve := on.Curve.Used
	if len(curve) == 0 {
		return
	}
	most := curve[:slices.Index(curve, slices.Max(curve))+1]
	steps := len(slices.Compact(slices.Clone(most)))
	r.holds("course", "it grows in steps", fmt.Sprint(most), slices.IsSorted(most) && steps >= 5)
	peak := on.Own.Bytes >> 20
	r.holds("peak of the job, MiB", "6 times 2048", fmt.Sprint(peak), peak >= 6*2048 && peak < 6*(2048+700))
	r.check("processes at once", "6", fmt.Sprint(on.Together))
	r.said(job, "clean: peak ")
	r.said(job, "6 processes")
}

func (r *run) recordedSeveral() {
	job := r.fails(r.crowd(fmt.Sprintf("$CUDAJOB alloc --mib %d --sleep 20 &", r.most()),
		"$CUDAJOB alloc --mib 2048 --sleep 20 &"), 0)
	r.answers(job, severalAtOnce)
}

// severalAtOnce: that the job's own need alone was too large is as wrong as that others were there.
var severalAtOnce = answers{yes: list(diagnosis.Processes),
	either: list(diagnosis.Others, diagnosis.Unlisted, diagnosis.Own, diagnosis.Pool, diagnosis.Pieces)}

// crowd starts programs, then one that fails for want of memory and does not say whose the rest is.
func (r *run) crowd(lines ...string) string {
	return r.script(append(lines, "sleep 6", fmt.Sprintf("$CUDAJOB alloc --mib %d --sleep 1 >/dev/null 2>&1 && exit 0",
		r.most()), r.wants(r.most()), "sleep 2", "exit 1")...)
}

// wants says in JAX's words that so many MiB could not be had.
func (r *run) wants(mib uint64) string {
	const says = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate"
	return fmt.Sprintf("echo '%s %d bytes.'", says, mib<<20)
}

func (r *run) recordedPiled() {
	rank := fmt.Sprintf("$CUDAJOB alloc --mib %d --sleep 20 &", r.total()*3/10)
	job := r.endsAs("FAILED", r.submit(0, r.crowd(rank, rank, rank), fmt.Sprintf("--gres=gpu:%d", len(r.cards))))
	r.answers(job, severalAtOnce)
	c := job.because(diagnosis.Processes)
	r.holds("the GPU that was not used", "named", c.Evidence, strings.Contains(c.Evidence, "idle"))
}

func (r *run) recordedSpikes() {
	const spike = "$CUDAJOB alloc --mib %d --sleep 0.1; sleep 2"
	lines := slices.Repeat([]string{fmt.Sprintf(spike, r.total()*9/10)}, 3)
	job := r.fails(r.script(append(lines, r.wants(r.total()*9/10), "sleep 2", "exit 1")...), 0)
	r.answers(job, answers{untold: list(diagnosis.Own), either: list(diagnosis.Others, diagnosis.Unlisted,
		diagnosis.Pool, diagnosis.Pieces, diagnosis.Processes, diagnosis.Limits)})
	on, seen := r.recordedOf(job)
	r.holds("samples", "one each second", fmt.Sprint(on.Samples), seen && on.Samples >= 6)
}

// sampled waits until the recorder has looked at a standing job twice more: a rehearsal leaves no time for that. A
// control has none.
func (r *run) sampled(s *standing) {
	id, _ := strconv.ParseUint(string(s.id), 10, 32)
	samples := func() int {
		if of := r.store().Recorded().Runs.About(r.kept(slurm.JobID(id))); of != nil {
			return of.Samples
		}
		return 0
	}
	begin, had := time.Now(), samples()
	for !r.scene.control && samples() < had+2 && time.Since(begin) < patience {
		time.Sleep(20 * time.Millisecond)
	}
}

// recordedOf is what was recorded of a job's first GPU.
func (r *run) recordedOf(job *job) (on ledger.Recorded, seen bool) {
	of := job.AtEnd().Recording
	if of == nil || len(of.GPUs) == 0 {
		return on, false
	}
	return of.GPUs[0], true
}
