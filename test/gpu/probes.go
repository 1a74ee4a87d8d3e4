package main

import (
	"fmt"
	"strings"

	"bookend/internal/gpu"
	"bookend/test/gpu/runrecord"
)

// nearly is by how much the largest block may fall short of the free memory on a card without faults: the page that
// cannot be had, and less than one more where free is no whole number of pages.
const nearly = 4 * mib

func (r *run) probeIdle() {
	job := r.onEveryCard()
	r.clean(job)
	var probed []runrecord.GPU
	for _, p := range job.AtEnd().Probes {
		probed = append(probed, runrecord.GPU{UUID: string(p.Device)})
		r.whole("the epilog's", p)
	}
	r.check("GPUs that the epilog tested", uuids(job.GPUs), uuids(probed))
	for _, t := range r.test("idle GPU", r.cards) {
		r.whole("the backend's", t)
	}
	r.draining(job, 0)
}

func (r *run) onEveryCard() *job {
	var lines []string
	for i := range r.cards {
		lines = append(lines, fmt.Sprintf("$CUDAJOB alloc --mib 64 --gpu %d --sleep 0", i))
	}
	return r.run1(r.script(lines...), fmt.Sprintf("--gres=gpu:%d", len(r.cards)))
}

// whole wants a test to have got all of the free memory in one block, without a context.
func (r *run) whole(whose string, p gpu.Probe) {
	said := string(p.Result) + " " + p.Why
	if p.Error != nil {
		said += fmt.Sprintf(" %+v", *p.Error)
	}
	r.check(whose+" test", "ok", strings.TrimSpace(said))
	r.check("its way", string(gpu.Contextless), string(p.Method))
	free, largest := p.Free.Bytes, p.Largest.Bytes
	r.holds("its largest block",
		"all of the free memory but 2 to 4 MiB", fmt.Sprintf("%s of %s free%s%s", size(largest), size(free), p.Free.Unknown, p.Largest.Unknown), p.Free.Known() && p.Largest.Known() && largest > 0 && largest+nearly >= free && largest <= free)
}

func size(bytes uint64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/mib) }

func (r *run) probeNearFull() {
	c := r.cards[0]
	h := r.startAs(0, c.uuid, "cudajob", "alloc", "--near-full", "129")
	h.Role = "has nearly all of the GPU"
	r.scenery(&h.Holder)
	r.evidence("the GPU nearly full")
	for _, t := range r.test("129 MiB free", []card{c}, h.PID) {
		r.whole("the backend's", t)
		r.holds("free memory", "100 to 160 MiB", size(t.Free.Bytes), t.Free.Bytes >= 100*mib && t.Free.Bytes <= 160*mib)
	}
	r.stillThere()
}

func (r *run) probeNeighbour() {
	job := r.leaveIn(1, ofNoJob, "cudajob", asItIs)
	r.skipped("the epilog's", job.AtEnd().Probes)
	for _, t := range r.test("somebody on the GPU", []card{r.cards[job.GPUs[0].Index]}) {
		r.skipped("the backend's", []gpu.Probe{t})
	}
	r.draining(job, 0)
	r.stillThere()
}

// skipped wants a test not to have been made, with a reason.
func (r *run) skipped(whose string, probes []gpu.Probe) {
	got := "no word of it"
	for _, p := range probes {
		got = string(p.Result) + ": " + p.Why
	}
	r.holds(whose+" test", "skipped, with a reason", got,
		len(probes) == 1 && probes[0].Result == gpu.ProbeSkipped && probes[0].Why != "")
}
