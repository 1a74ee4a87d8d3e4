package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"bookend/internal/gpu"
	"bookend/internal/protocol"
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

// probePattern ends a job whose end is to write and read the GPU's memory, and one right after it.
func (r *run) probePattern() {
	job := r.patterned()
	p := job.AtEnd().Probes[0]
	r.whole("the epilog's", p)
	found := cmp.Or(p.Pattern, &gpu.Pattern{Why: "none"})
	r.holds("written and read", "at least 99 % of the free memory", found.Outcome(), 100*found.Bytes >= 99*p.Free.Bytes)
	r.check("wrong words", 0, int(found.Wrong))
	r.draining(job, 0)
	r.draining(r.patterned(), 0)
}

// patterned runs a job on one GPU and wants it clean at both ends.
func (r *run) patterned() *job {
	job := r.run1(r.script("$CUDAJOB alloc --mib 64 --sleep 0"), "--gres=gpu:1")
	r.clean(job)
	return job
}

func (r *run) probePlanted() {
	const offset, bit = 8 * 1234567890, 1 << 20 // what internal/allocation flips
	c := r.cards[0]
	request := must(protocol.ReadRequest(bytes.NewReader(r.probeRequest([]card{c}, false))))
	request.Probe.Pattern = []gpu.ID{gpu.ID(c.uuid)}
	for range 2 {
		tests := r.tests("a planted bit", start([]string{r.site.Program(planter)}, nil, must(request.Line())))
		last := tests[len(tests)-1]
		r.check("the test", string(gpu.ProbeWrong), string(last.Result))
		found := cmp.Or(last.Pattern, &gpu.Pattern{Why: "none"})
		is := func(w gpu.WrongWord) bool { return w == gpu.WrongWord{Offset: offset, Flipped: bit} }
		only := found.Wrong == 2 && len(found.First) == 2 && is(found.First[0]) && is(found.First[1])
		r.holds("wrong words", "bit 20 of word 1234567890 in both rounds, nothing else", found.Outcome(), only)
	}
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
