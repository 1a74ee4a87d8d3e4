package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/record"
)

func (r *run) oomSelf() {
	job := r.fails(r.script(r.fills("take 0", "--mib 163840 --chunks 80")), 0)
	r.because(job, answers{yes: list(record.CauseOwn)})
}

func (r *run) oomPool() {
	job := r.fails(r.script("export PYTORCH_ALLOC_CONF=expandable_segments:False", // as it is shipped
		r.fills("pieces", "--mib 135168 --chunks 66 --idle 67584 --ask 16384")), 0)
	r.because(job, answers{yes: list(record.CausePool)})
}

func (r *run) oomForeign() {
	h := r.squeeze(r.cards[0].uuid)
	job := r.fails(r.script(r.modest(h)), 0)
	r.evidence("after the job, the other process alive")
	r.because(job, answers{yes: list(record.CauseOthers)})
	r.stillThere()
}

func (r *run) oomPassing() {
	s := r.stand()
	var h *holder
	job := r.visited(s, func(other *holder) { // it tries while the other is there
		h = other
		r.act(s, r.modest(h))
		r.sampled(s.id)
	})
	r.rec.Holder = &h.Holder
	r.because(job, answers{yes: list(record.CauseOthers), either: list(record.CauseUnlisted, record.CauseProcesses)})
}

func (r *run) oomInherited() {
	r.leaveExported(r.most())
	job := r.fails(r.script(r.modest(nil)), 1)
	r.evidence("after the second job, the descriptor still held")
	r.because(job, answers{yes: list(record.CauseUnlisted), untold: list(record.CauseLeftover)})
	r.stillThere()
}

func (r *run) oomLimit() {
	job := r.fails(r.script(fmt.Sprintf("ulimit -v %d", r.cramped()), r.fills("take 4096", "--mib 4096")), 0)
	r.because(job, answers{untold: list(record.CauseLimits), either: list(record.CauseOthers, record.CauseUnlisted,
		record.CausePool, record.CauseOwn, record.CauseProcesses)})
	r.said(job, "look for ulimit in script")
}

func (r *run) oomSilent() {
	job := r.fails(r.script(r.fills("take 0", "--mib 163840 --chunks 80")+" >/dev/null 2>&1"), 0)
	r.because(job, answers{untold: list(record.CauseOwn), either: list(record.CauseOthers, record.CauseUnlisted,
		record.CausePool, record.CauseProcesses, record.CauseLimits)})
	c := job.because(record.CauseOwn)
	r.holds("the job's own need", "as much as was seen, or that nothing was", c.Evidence, ownNeedTold(c.Evidence))
}

// ownNeedTold: a job that says nothing of its own need may be over before the recorder's first sample, or between two.
func ownNeedTold(evidence string) bool {
	return slices.ContainsFunc([]string{"at least ", "not measured", "no sample saw any"}, func(told string) bool {
		return strings.Contains(evidence, told)
	})
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
		return "$CUDAJOB alloc " + fake
	}
	return r.python + " " + r.site.Program(real)
}

// fills is that of a job that fills a card, or tries to.
func (r *run) fills(real, fake string) string {
	return r.torch("memory.py "+real, "--torch --sleep 0 "+fake)
}

// modest asks for less than half of a card, and more than what r.most leaves. A rehearsal must be told whom the driver
// would list.
func (r *run) modest(other *holder) string {
	want := r.total() * 45 / 100 / 2048 * 2048
	fake := fmt.Sprintf("--mib %d --chunks %d", want, want/2048)
	if other != nil {
		fake += fmt.Sprintf(" --other %d:%d", other.PID, other.Held/mib)
	}
	return r.fills(fmt.Sprintf("take %d", want), fake)
}

// most is so much of a card that no job which wants half of it can have that, in MiB.
func (r *run) most() uint64 { return (r.total() * 7 / 10) &^ 1 }

// squeeze starts another user's process that takes most of a card.
func (r *run) squeeze(uuid string) *holder {
	h := r.startAs(1, uuid, "cudajob", "alloc", "--mib", fmt.Sprint(r.most()))
	h.Role = ofNoJob
	r.scenery(&h.Holder)
	settled(func() { r.known(uuid, &h.Holder) })
	r.evidence("the other process at work")
	return h
}

// fails runs a job of one of the users and wants it to fail.
func (r *run) fails(script string, user int, args ...string) *job {
	return r.endsAs("FAILED", r.submit(user, script, append([]string{"--gres=gpu:1"}, args...)...))
}

// visited runs a standing job that fails, on whose card another's process is only while it runs.
func (r *run) visited(s *standing, meanwhile func(*holder)) *job {
	h := r.squeeze(s.card.UUID)
	h.Proc = readProc(h.PID)
	meanwhile(h)
	h.kill()
	h.Role += "; gone before the job's end"
	r.awaitIdle()
	s.let()
	return r.endsAs("FAILED", s.id)
}

// answers are what is true of the causes: those that apply; those that applied but of which nobody could be sure from
// what there is to see, so that "cannot tell" is as good and "no" is wrong; and those that did not apply, of which
// likewise nobody could be sure. All others are to be ruled out.
type answers struct{ yes, untold, either []record.CauseName }

func list(all ...record.CauseName) []record.CauseName { return all }

var causes = list(record.CauseOthers, record.CauseLeftover, record.CauseUnlisted, record.CausePieces, record.CausePool,
	record.CauseFault,
	record.CauseOwn, record.CauseProcesses, record.CauseLimits, record.CauseShare)

func (a answers) want(name record.CauseName) []string {
	switch {
	case slices.Contains(a.yes, name):
		return []string{string(record.Yes)}
	case slices.Contains(a.untold, name):
		return []string{string(record.Yes), string(record.CannotTell)}
	case slices.Contains(a.either, name), name == record.CauseShare: // whether a program set a limit, few say
		return []string{string(record.No), string(record.CannotTell)}
	}
	return []string{string(record.No)}
}

// because wants the record of a failed job to answer every cause as it is true.
func (r *run) because(job *job, a answers) {
	r.answers(job, a)
	r.rightCards(job)
}

// answers is because without the GPUs that the job itself named.
func (r *run) answers(job *job, a answers) {
	asked := "no one asked"
	if d := job.AtEnd().Diagnosis; d != nil && d.Reason != "" {
		asked = "asked"
	}
	r.check("whether the job's end asks why", "asked", asked)
	for _, name := range causes {
		c, want := job.because(name), a.want(name)
		got := cmp.Or(strings.TrimSuffix(string(c.Answer)+": "+c.Evidence, ": "), "no answer")
		r.holds("cause "+string(name), strings.Join(want, " or "), got, slices.Contains(want, string(c.Answer)))
	}
	r.toldWhy(job)
}

// toldWhy wants the job's log to answer, and to rule out no cause that the record does not answer with no.
func (r *run) toldWhy(job *job) {
	r.said(job, "For your admin: bookend show")
	_, ruledOut, _ := strings.Cut(unwrapped(job.Output), "Ruled out: ")
	ruledOut, _, _ = strings.Cut(ruledOut, "Cannot tell: ")
	ruledOut, _, _ = strings.Cut(ruledOut, "For your admin: ")
	for _, name := range causes {
		title := strings.ReplaceAll(name.Title(), ", ", " or ")
		if job.because(name).Answer != record.No {
			r.holds("the job's log rules out "+title, "no", ruledOut, !strings.Contains(ruledOut, title))
		}
	}
}
