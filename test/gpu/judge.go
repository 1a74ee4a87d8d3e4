package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/test/gpu/runrecord"
)

// run is one run of one scenario while it goes on.
type run struct {
	*lane
	rec   *runrecord.Run
	scene *scene
}

// check writes one judged statement down; what reads the same is right.
func (r *run) check(what string, want, got any) {
	r.holds(what, want, got, fmt.Sprint(want) == fmt.Sprint(got))
}

// holds writes down a statement with its own rule.
func (r *run) holds(what string, want, got any, right bool) {
	r.rec.Checks = append(r.rec.Checks,
		runrecord.Check{What: what, Want: fmt.Sprint(want), Got: fmt.Sprint(got), Right: right})
}

// said wants a phrase in the job's log, as its user reads it. Lines are wrapped there.
func (r *run) said(job *job, phrase string) {
	got := unwrapped(job.Output)
	right := strings.Contains(got, phrase)
	if right {
		got = phrase
	}
	r.holds("the job's log says so", phrase, got, right)
}

// unwrapped joins Bookend's lines: "| bookend: a b" and "| bookend:         c" become "a b c".
func unwrapped(output string) string {
	var words []string
	for line := range strings.Lines(output) {
		if text, ours := strings.CutPrefix(line, "| bookend:"); ours {
			words = append(words, strings.Fields(text)...)
		}
	}
	return strings.Join(words, " ")
}

// verdict words one end of a job: "clean" only of what was seen clean without a finding.
func verdict(e *record.End) string {
	if e == nil {
		return "no record"
	}
	var words []string
	for _, f := range e.Findings {
		words = append(words, string(f.Code))
	}
	for _, reading := range e.Snapshot.Readings {
		if state := e.Curves[reading.Device.ID].State; state != record.Clean && len(e.Findings) == 0 {
			words = append(words, string(state))
		}
	}
	if len(e.Snapshot.Readings) == 0 {
		words = append(words, "no GPU was read")
	}
	return cmp.Or(strings.Join(words, " "), "clean")
}

// clean wants a job clean at both ends, nobody to have searched /proc for that, and its user told so. Where memory
// stays long after its process, a search is in order.
func (r *run) clean(job *job) {
	r.cleanEnds(job)
	for _, e := range []*record.End{job.Start, job.End} {
		if e != nil {
			r.check("searches of all of /proc", "none", map[bool]string{true: "none", false: "one"}[e.Scan == nil])
		}
	}
}

func (r *run) cleanEnds(job *job) {
	r.check("start of the job", "clean", verdict(job.Start))
	r.check("end of the job", "clean", verdict(job.End))
	said := " clean: "
	if job.End != nil && gpu.Untested(job.End.Probes) != "" {
		said = " empty, not tested (" // a test was due, and another job may have the GPU
	}
	r.said(job, said)
	r.rightCards(job)
}

// leftover is what one end of a job must say of one thing on its card.
type leftover struct {
	code       string
	pid        int    // 0: no process is accused
	classes    string // of that process, sorted
	candidates []int  // those who may hold what nobody is listed for
	candidate  string // classes that each of them must have
	job        int    // to blame; 0: none
	evidence   record.Level
	unknown    bool              // it is neither yes nor no, with a reason
	of         *runrecord.Holder // whose bytes and card they are; nil: the scene's
}

// left wants a job that began clean to leave this and nothing else, its user told so, and the node drained or not.
func (r *run) left(job *job, w leftover, exit int) {
	r.check("start of the job", "clean", verdict(job.Start))
	r.names(r.one("end of the job", job.End, w.code), w)
	r.said(job, "in use")
	r.rightCards(job)
	r.draining(job, exit)
}

func (r *run) names(f record.Finding, w leftover) {
	var holder record.Holder
	if f.Holder != nil {
		holder = *f.Holder
	}
	r.check("process accused", w.pid, holder.PID)
	r.check("its classes", w.classes, classes(holder))
	r.blames(f, w.job, w.evidence)
	r.holds("unknown, with a reason", w.unknown, f.Unknown, w.unknown == (f.Unknown != ""))
	if h := cmp.Or(w.of, r.scene.holder); h != nil && w.code != "BKD-UNREAD" {
		r.check("card", h.GPU, string(f.GPU))
		r.bytes(*h, f.Bytes.Bytes)
	}
	var found []int
	for _, c := range f.Candidates {
		found = append(found, c.PID)
		for _, class := range strings.Fields(w.candidate) {
			r.holds(fmt.Sprintf("process %d, which may hold it, is", c.PID), class, classes(c),
				slices.Contains(c.Classes, record.Class(class)))
		}
	}
	slices.Sort(found)
	r.check("processes that may hold it", sorted(w.candidates), found)
	if len(w.candidates) > 0 {
		r.check("every process was looked into for them", true, f.Searched)
	}
}

// blames wants a finding to blame a job, 0 for none, with this evidence.
func (r *run) blames(f record.Finding, job int, evidence record.Level) {
	var owner record.Owner
	if f.Owner != nil && f.Owner.Level != record.NoEvidence {
		owner = *f.Owner
	}
	r.check("job blamed", job, owner.Job)
	r.check("evidence", evidence, owner.Level)
}

func sorted(list []int) []int { return slices.Sorted(slices.Values(list)) }

// rightCards wants Bookend's cards to be those that Slurm's numbers mean by gres.conf and /proc/driver/nvidia, and
// those that CUDA gave the job.
func (r *run) rightCards(job *job) {
	var byNumber []runrecord.GPU
	for _, g := range job.GPUs {
		if g.Index < len(r.cards) {
			byNumber = append(byNumber, runrecord.GPU{Index: g.Index, UUID: r.cards[g.Index].uuid})
		}
	}
	r.check("Slurm's numbers mean the GPUs of gres.conf", cmp.Or(words(byNumber), "at least one"), words(job.GPUs))
	if len(job.CUDA) > 0 { // PyTorch may name no UUID
		r.check("the GPUs are those that CUDA gave the job", uuids(job.CUDA), uuids(job.GPUs))
	}
}

func words(cards []runrecord.GPU) string {
	var all []string
	for _, c := range cards {
		all = append(all, fmt.Sprintf("%d=%s", c.Index, c.UUID))
	}
	return strings.Join(all, " ")
}

func uuids(cards []runrecord.GPU) string {
	var all []string
	for _, c := range cards {
		all = append(all, c.UUID)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// one wants exactly one finding at an end, and returns it.
func (r *run) one(where string, e *record.End, code string) record.Finding {
	r.check(where, code, verdict(e))
	if e == nil || len(e.Findings) == 0 {
		return record.Finding{}
	}
	return e.Findings[0]
}

// bytes wants a finding's bytes within 64 MiB of what is held, and between what the holder asked for and what is
// missing from the card by its own account, which does not come from NVML.
func (r *run) bytes(h runrecord.Holder, got uint64) {
	const tolerance = 64 * mib
	r.holds("bytes", fmt.Sprintf("%d MiB, give or take 64", h.Held/mib), fmt.Sprintf("%d MiB", got/mib),
		h.Held > 0 && got+tolerance >= h.Held && got <= h.Held+tolerance)
	if h.Gone > 0 {
		r.holds("bytes by the holder's own account", fmt.Sprintf("%d to %d MiB", h.Allocated/mib, h.Gone/mib),
			fmt.Sprintf("%d MiB", got/mib), got >= h.Allocated && got <= h.Gone+tolerance)
	}
}

// draining wants the node drained by a failed epilog with this exit code, or not drained at all (0).
func (r *run) draining(job *job, exit int) {
	r.check("exit code on record", exit, exitOf(job.End))
	want, got := map[bool]string{true: inService, false: drained + "Epilog error"}[exit == 0], r.service()
	r.holds("the node", want, got, got == want || r.story && exit != 0 && strings.HasPrefix(got, drained+"BKD-"))
	if exit == 0 {
		return
	}
	seen := "no failed epilog"
	for _, h := range must(r.site.HookRuns(r.node)) {
		if h.Hook == "epilog" && h.Failed() && string(h.Job) == fmt.Sprint(job.ID) {
			seen = fmt.Sprintf("exit %d", h.Exit)
		}
	}
	r.check("what slurmd saw of the epilog", fmt.Sprintf("exit %d", exit), seen)
}

const (
	inService = "in service"
	drained   = "drained: " // and the reason
)

func (r *run) service() string {
	if n := must(r.site.Node(r.node)); n.Has("DRAIN") {
		return drained + n.Reason
	}
	return inService
}

func exitOf(e *record.End) string {
	if e == nil {
		return "no record"
	}
	return fmt.Sprint(e.Verdict.Exit)
}
