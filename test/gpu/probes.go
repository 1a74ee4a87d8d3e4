package main

import (
	"fmt"
	"strings"

	"bookend/internal/gpu"
	"bookend/test/gpu/record"
)

// nearly is by how much the largest block may fall short of the free memory on a card without faults: the page that
// cannot be had, and less than one more where free is no whole number of pages.
const nearly = 4 * mib

func (r *run) probeIdle() {
	job := r.onEveryCard()
	r.clean(job)
	var probed []record.GPU
	for _, p := range job.AtEnd().Probes {
		probed = append(probed, record.GPU{UUID: p.GPU})
		r.whole("the epilog's", p)
	}
	r.check("GPUs that the epilog tested", uuids(job.GPUs), uuids(probed))
	for _, t := range r.test("idle GPU", r.cards) {
		r.whole("the backend's", t.Probe)
	}
	r.draining(job, 0)
}

// onEveryCard runs a job that uses all cards.
func (r *run) onEveryCard() *record.Job {
	var lines []string
	for i := range r.cards {
		lines = append(lines, fmt.Sprintf("$CUDAJOB alloc --mib 64 --gpu %d --sleep 0", i))
	}
	return r.run1(r.script(lines...), fmt.Sprintf("--gres=gpu:%d", len(r.cards)))
}

// whole wants a test to have got all of the free memory in one block, without a context.
func (r *run) whole(whose string, p record.Probe) {
	r.check(whose+" test", "ok", strings.TrimSpace(p.Result+" "+p.Why+" "+p.Error))
	r.check("its way", string(gpu.Contextless), p.Method)
	r.holds("its largest block", "all of the free memory but 2 to 4 MiB",
		fmt.Sprintf("%s of %s free%s", size(p.Largest), size(p.Free), p.Unknown),
		p.Unknown == "" && p.Largest > 0 && p.Largest+nearly >= p.Free && p.Largest <= p.Free)
}

func size(bytes uint64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/mib) }

func (r *run) probeNearFull() {
	c := r.cards[0]
	h := r.startAs(0, c.uuid, "cudajob", "alloc", "--near-full", "129")
	h.Role = "has nearly all of the GPU"
	r.scenery(&h.Holder)
	r.evidence("the GPU nearly full")
	for _, t := range r.test("129 MiB free", []card{c}, h.PID) {
		r.whole("the backend's", t.Probe)
		r.holds("free memory", "100 to 160 MiB", size(t.Probe.Free), t.Probe.Free >= 100*mib &&
			t.Probe.Free <= 160*mib)
	}
	r.stillThere()
}

func (r *run) probeNeighbour() {
	job := r.leaveIn(1, ofNoJob, "cudajob", asItIs)
	r.skipped("the epilog's", job.AtEnd().Probes)
	for _, t := range r.test("somebody on the GPU", []card{r.cards[job.GPUs[0].Index]}) {
		r.skipped("the backend's", []record.Probe{t.Probe})
	}
	r.draining(job, 0)
	r.stillThere()
}

// skipped wants a test not to have been made, with a reason.
func (r *run) skipped(whose string, probes []record.Probe) {
	got := "no word of it"
	for _, p := range probes {
		got = p.Result + ": " + p.Why
	}
	r.holds(whose+" test", "skipped, with a reason", got, len(probes) == 1 &&
		probes[0].Result == string(gpu.ProbeSkipped) && probes[0].Why != "")
}
