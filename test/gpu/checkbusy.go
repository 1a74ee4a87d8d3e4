package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/test/cluster"
	"bookend/test/gpu/record"

	"golang.org/x/sys/unix"
)

// A job at work tells of itself in beats of so many ms: some 150 uses of its first GiB each.
const (
	beatMillis = 50
	quietTime  = 500 * time.Millisecond // between two checks
	// leastPace is what a job must keep of its pace beside a check: there its driver's calls wait for no lock.
	leastPace = 0.9
	fewBeats  = 5 // of fewer, of either kind, no pace is known
)

var checkBusy = step{
	name: "check-busy", title: "Health checks beside a job at work",
	truth: "A job uses its GPU without pause, and keeps 20 GiB of it. Five health checks run meanwhile: each sees " +
		"the job's process, finds nothing and says nothing. None takes memory of the GPU, the job keeps its pace, " +
		"and ends well.",
	do: func(r *run) {
		id, gate, pid := r.toil()
		spans := r.besideWork(id, pid)
		try(open(gate))
		job := r.finish(id)
		if r.scene.off != nil {
			return
		}
		r.check("what became of the job", "COMPLETED", job.State)
		r.clean(job)
		r.paced(beatsIn(job.Output), spans)
		r.draining(job, 0)
	},
}

// toil starts a job that is at work until a gate opens, and returns the PID of its process.
func (r *run) toil() (id cluster.JobID, gate string, pid int) {
	gate = r.gate()
	script := r.script(fmt.Sprintf("$CUDAJOB alloc --mib %d --chunks %d --beat %d &", r.size()&^1023, r.size()>>10,
		beatMillis),
		r.until(gate), "kill $!", "wait $! || true")
	id = r.submit(0, script, "--gres=gpu:1")
	r.awaitOutput(id, "beat ")
	text := must(r.site.Output(id))
	m := regexp.MustCompile(`(?m)^ready pid=(\d+) `).FindStringSubmatch(text)
	if m == nil {
		panic(brokenf("job %s said %q", id, tail(text)))
	}
	return id, gate, int(number(m[1]))
}

// besideWork runs health checks beside a job at work, and returns when.
func (r *run) besideWork(id cluster.JobID, pid int) (spans []span) {
	checks := 5
	if r.scene.off != nil {
		checks = 1 // of a job that is not on record each takes seconds
		defer r.hide(id)()
	}
	text := must(r.site.Output(id))
	card := cudaCards(text)
	if len(card) != 1 {
		panic(brokenf("job %s named %d GPUs: %q", id, len(card), tail(text)))
	}
	w, first := r.follow("highest", "highest", card[0].UUID)
	for i := range checks {
		time.Sleep(quietTime)
		began := monotonic()
		c := r.nodeCheck(fmt.Sprintf("beside the job, %d of %d", i+1, checks))
		spans = append(spans, span{began, monotonic()})
		r.nothingFound(c)
		r.check("processes that it saw", occupants([]record.Occupant{{GPU: card[0].UUID, PID: pid}}), occupants(c.Seen))
	}
	time.Sleep(quietTime)
	r.untouched(number(first["used"]), w.most())
	return spans
}

// untouched wants the most that was in use meanwhile to be what was in use at first: a test allocation would have
// taken the rest.
func (r *run) untouched(first, most uint64) {
	r.holds("the most of the GPU in use meanwhile", fmt.Sprintf("%d MiB, as before", first/mib),
		fmt.Sprintf("%d MiB", most/mib),
		first > 0 && most < first+64*mib)
}

// hide puts a job's record aside; back puts it back.
func (r *run) hide(id cluster.JobID) (back func()) {
	folder, aside := filepath.Join(r.site.Run(), "state", r.node, string(id)), filepath.Join(r.site.Dir,
		"aside-"+string(id))
	try(os.Rename(folder, aside))
	return func() { try(os.Rename(aside, folder)) }
}

// span is a time on CLOCK_MONOTONIC, in ms.
type span struct{ from, to float64 }

func (s span) meets(o span) bool { return s.from < o.to && o.from < s.to }

func monotonic() float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return float64(t.Nano()) / 1e6
}

// beat is what a job at work says of a while: how often it used its memory, and what took longest, in ms.
type beat struct {
	span
	uses, worst float64
}

// beatsIn are the beats in a job's output.
func beatsIn(output string) (all []beat) {
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "beat ") {
			continue
		}
		said, b := parseReady(line), beat{}
		for key, to := range map[string]*float64{"from_ms": &b.from, "to_ms": &b.to, "uses": &b.uses,
			"worst_ms": &b.worst} {
			*to, _ = strconv.ParseFloat(said[key], 64)
		}
		if b.to > b.from && b.uses > 0 {
			all = append(all, b)
		}
	}
	return all
}

// pace is how a job did over some beats: its uses a ms, the middle of them, and the longest of all.
type pace struct {
	beats         int
	middle, worst float64
}

func paceOf(beats []beat) pace {
	p, t := pace{beats: len(beats)}, record.Timing{}
	for _, b := range beats {
		t.Millis, p.worst = append(t.Millis, b.uses/(b.to-b.from)), max(p.worst, b.worst)
	}
	p.middle = t.Median()
	return p
}

// paces are a job's paces beside checks and without any.
func paces(beats []beat, checks []span) (beside, without pace) {
	met := func(b beat) bool { return slices.ContainsFunc(checks, b.meets) }
	return paceOf(slices.DeleteFunc(slices.Clone(beats), func(b beat) bool { return !met(b) })),
		paceOf(slices.DeleteFunc(slices.Clone(beats), met))
}

// paced wants the job to have been as fast beside the checks as without them. Of a rehearsal's pace, which depends on
// what else the machine does, nothing is wanted but that it is known.
func (r *run) paced(beats []beat, checks []span) {
	beside, without := paces(beats, checks)
	if beside.beats < fewBeats || without.beats < fewBeats {
		panic(brokenf("the job told of itself %d times beside checks and %d times without", beside.beats,
			without.beats))
	}
	least := leastPace
	if r.lane != nil && r.fake > 0 {
		least = 0
	}
	kept := beside.middle / without.middle
	r.holds("the job's pace beside the checks", fmt.Sprintf("%.2f of its pace without, or more", least),
		fmt.Sprintf("%.3f: %.2f uses a ms in %d beats, and %.2f in %d; the longest took %.2f ms, and %.2f", kept,
			beside.middle, beside.beats,
			without.middle, without.beats, beside.worst, without.worst), kept >= least)
}

// most ends a watcher of the highest use and returns what that was, in bytes.
func (w *watcher) most() (bytes uint64) {
	_ = w.cmd.Process.Kill()
	for line := range w.lines {
		bytes = max(bytes, number(parseReady(line)["used"]))
	}
	_ = w.cmd.Wait() // says that it was killed
	return bytes
}
