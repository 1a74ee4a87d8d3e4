package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/compare"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// TestCase is what a hook knows before it tests its job's GPUs. The scene must include who else may use them.
type TestCase struct {
	Scene compare.Input
	Found []record.Finding // by this hook so far
	InJob bool             // the hook runs in the job's own cgroup
	Again bool             // another hook has run or runs for this start or end of the job
}

// Plan divides GPUs into those that may be tested and others, with reasons: a test must take memory from no process.
func (c TestCase) Plan(cards []record.Assigned) (test []record.Assigned, skipped []gpu.Probe) {
	for _, card := range cards {
		if why := c.forbids(card); why != "" {
			skipped = append(skipped, SkippedTest(card.Device.ID, why))
			continue
		}
		test = append(test, card)
	}
	return test, skipped
}

func SkippedTest(id gpu.ID, why string) gpu.Probe {
	return gpu.Probe{Device: id, Result: gpu.ProbeSkipped, Why: why, Free: gpu.Unknown("not tested"),
		Largest: gpu.Unknown("not tested")}
}

func (c TestCase) forbids(card record.Assigned) string {
	s := c.Scene
	keeps := func(o attribution.Allocation) bool { return o.Keeps(card.Device.ID) }
	switch {
	case c.InJob:
		return gpu.NoTestInJob
	case c.Again:
		return "another hook of this job was here before, or is at work: the GPU may be somebody's by now"
	case card.Device.ID == "":
		return "its id is unknown"
	case card.Device.Parent != "":
		return gpu.NoTestOfPart
	case s.Shared != "":
		return gpu.NoTestOfShared + s.Shared
	case s.SharedUnknown != "":
		return "whether others may use it is not known: " + s.SharedUnknown
	case s.Unread[card.Device.ID] != "":
		return s.Unread[card.Device.ID]
	case slices.ContainsFunc(s.Book.Others, keeps):
		return "another live job was given it, or may have been"
	}
	return cmp.Or(c.failed(card), Busy(s, card))
}

// failed names what is wrong with the GPU or the driver: a test would show no more, and may hang in a failed driver.
func (c TestCase) failed(card record.Assigned) string {
	for _, f := range c.Found {
		entry, _ := catalog.Lookup(f.Code)
		driver := entry.Scope == catalog.Driver && entry.Severity != catalog.Note && f.NoteOnly == ""
		if driver || entry.Scope == catalog.Card && entry.Severity == catalog.Serious && f.GPU == card.Device.ID {
			return fmt.Sprintf("%s (%s)", entry.Title, f.Code)
		}
	}
	return ""
}

// Busy says why a GPU may carry more than what belongs to the node, empty if nothing suggests it. That the job found
// the same at its start is no excuse: a test may still take memory from its owner.
func Busy(s compare.Input, card record.Assigned) string {
	id := card.Device.ID
	reading, ok := s.Now.Snapshot.Reading(id)
	rest := record.Unexplained(reading, s.Limits, s.Baselines[id])
	stranger := func(p gpu.Process) bool {
		return slices.Contains(p.Kinds, gpu.MPS) || !compare.IsResident(s.Baselines[id], p.PID, s.Now.Processes[p.PID])
	}
	switch {
	case !ok || s.Now.Curves[id].Why != "" || reading.ProcessesUnknown != "":
		return "it could not be read"
	case !s.Now.Curves[id].State.AtRest():
		return "its memory was not at rest"
	case slices.ContainsFunc(reading.Processes, stranger):
		return "a process is on it"
	case !rest.Known() || rest.Bytes >= s.Limits.Report:
		return "memory of it is in use, or may be"
	}
	return ""
}

// Known returns the PIDs of the processes that the baselines expect on the GPUs of a plan.
func (c TestCase) Known(test []record.Assigned) (pids []int) {
	for _, card := range test {
		for _, r := range c.Scene.Baselines[card.Device.ID].Residents {
			pids = append(pids, r.PID)
		}
	}
	return pids
}

// TestResult is the result of a GPU's test, with what affects how much it proves.
type TestResult struct {
	gpu.Probe
	Seen    int       // processes that came to this result, one after the other
	Earlier time.Time // when an earlier hook tested the GPU (wall time), zero if this hook did
}

// Bad reports whether no memory could be allocated, or not be trusted.
func (o TestResult) Bad() bool { return o.Result.Bad() }

// Retry reports whether another process should test the GPU alone: if the result is bad, or if the process had started
// CUDA for several GPUs together and could not test this one, possibly because of another one.
func (o TestResult) Retry(together bool) bool {
	return o.Bad() || together && o.Result == gpu.ProbeSkipped && o.Times.Init > 0
}

// Again returns what holds after a second process has tested the GPU alone: the later result, surer if both agree. But
// wrong bits count even if they come only once.
func (o TestResult) Again(second gpu.Probe) TestResult {
	if second.Result == gpu.ProbeSkipped || o.Result == gpu.ProbeWrong && second.Result != gpu.ProbeWrong {
		return o
	}
	after := TestResult{Probe: second, Seen: 1}
	code := func(o TestResult) int { return cmp.Or(o.Error, &gpu.CallError{Code: -1}).Code }
	if o.Result == second.Result && code(o) == code(after) {
		after.Seen = o.Seen + 1
	}
	return after
}

func FoundByTests(cards []record.Assigned, outcomes []TestResult) (found []record.Finding) {
	for _, c := range cards {
		for _, o := range outcomes {
			if o.Device == c.Device.ID && o.Device != "" && (o.Bad() || o.Result == gpu.ProbeGap) {
				found = append(found, o.finding(c))
			}
			if p := o.Pattern; o.Device == c.Device.ID && o.Earlier.IsZero() && p != nil && p.Slow != "" {
				f := record.Saw(catalog.SlowMemory, p.Slow, "the GPU's own speed")
				f.GPU, f.Index = c.Device.ID, &c.Index
				found = append(found, f)
			}
		}
	}
	return found
}

func (o TestResult) finding(c record.Assigned) record.Finding {
	f := record.Finding{GPU: c.Device.ID, Index: &c.Index, Expected: "a block as large as the free memory"}
	switch o.Result {
	case gpu.ProbeGap:
		f.Code, f.Bytes = catalog.Gap, gpu.Unknown("free memory or largest block unknown")
		if o.Free.Known() && o.Largest.Known() {
			f.Bytes = gpu.Bytes(o.Free.Bytes - min(o.Free.Bytes, o.Largest.Bytes))
		}
		f.Observed = fmt.Sprintf("%s free, but at most %s in one block, after %d attempts", size(o.Free),
			size(o.Largest), o.Attempts)
	case gpu.ProbeBlocked:
		f.Code, f.Observed = catalog.Blocked, o.reason()
		if o.Free.Known() {
			f.Observed = fmt.Sprintf("none of %s free could be allocated: %s", size(o.Free), f.Observed)
		}
	case gpu.ProbeBroken:
		f.Code, f.Observed, f.Expected = catalog.Broken, o.reason(), "memory can be had through CUDA"
	case gpu.ProbeWrong:
		f.Code, f.Observed, f.Expected = catalog.Bits, o.Pattern.Outcome(), "what was written"
	}
	if !o.Earlier.IsZero() {
		f.Observed = fmt.Sprintf("tested at %s, at an earlier job's end or start: %s",
			o.Earlier.UTC().Format("2006-01-02 15:04:05 UTC"), f.Observed)
		f.Doubts = append(f.Doubts, "it was tested by an earlier hook and may have been repaired since")
	}
	if o.Bad() && o.Seen < 2 {
		f.Doubts = append(f.Doubts, "seen once, by one process")
	}
	if own := o.own(c.Device); o.Bad() && own != "" {
		f.Doubts = append(f.Doubts, own)
	}
	return f
}

func size(f gpu.Figure) string { return f.Text("an unknown amount") }

// reason words the failed call with its meaning and remedy, or returns Why if no call failed.
func (o TestResult) reason() string {
	e := o.Error
	if e == nil {
		return o.Why
	}
	text := fmt.Sprintf("%s: %s", e.Call, e.Name)
	if e.Code > 0 { // others are the backend's own: the driver gave none
		text += fmt.Sprintf(" (%d)", e.Code)
	}
	for _, more := range []string{o.Why, e.Meaning, e.Remedy} {
		if more != "" && more != text { // a backend may repeat itself
			text += "; " + strings.TrimSuffix(more, ".")
		}
	}
	return text
}

// own says why a bad result may come from the test's limits, library or device nodes, by the vendor's error codes.
func (o TestResult) own(d gpu.Device) string {
	switch e := o.Error; {
	case o.Result == gpu.ProbeWrong:
	case e == nil:
		return "no call is known to have failed: the backend itself may be at fault"
	case slices.Contains(gpu.VendorOf(d).Surroundings, e.Code) && o.Result == gpu.ProbeBroken, e.Code <= 0,
		strings.HasPrefix(e.Call, "dl"):
		return "the error may come from the test's own surroundings (library, limits, device nodes)"
	}
	return ""
}

// WhenTested reports whether a hook of this phase tests its job's GPUs.
func WhenTested(at config.ProbeAt, phase slurm.Context) bool {
	return phase == slurm.Prolog && (at == config.ProbeProlog || at == config.ProbeBoth) ||
		phase == slurm.Epilog && (at == config.ProbeEpilog || at == config.ProbeBoth)
}

// TestMaxAge is how long a start trusts a test at an earlier job's end.
const TestMaxAge = 24 * time.Hour

// MarkOfTests returns from where a start reads the kernel's log: before the oldest test that it may trust, or nil.
func MarkOfTests(tested map[gpu.ID]record.TestRecord, now time.Duration) (mark *gpu.KernelMark) {
	for _, t := range tested {
		counts := t.Probe.At >= now-TestMaxAge && t.Kernel != (gpu.KernelMark{})
		if counts && (mark == nil || t.Kernel.Seq < mark.Seq) {
			mark = &t.Kernel
		}
	}
	return mark
}

// PatternDue reports whether a test of a GPU also writes and reads its memory: if the last time is as long ago as the
// site wants, or after a bad test or a sign of a fault in this job. A sign that stands until a reset counts once a day.
func PatternDue(id gpu.ID, found []record.Finding, last gpu.Probe, every, now time.Duration) bool {
	is := func(codes ...catalog.Code) bool {
		return slices.ContainsFunc(found, func(f record.Finding) bool {
			return f.GPU == id && slices.Contains(codes, f.Code) && f.Cause() != catalog.ByProgram
		})
	}
	if is(catalog.Xid, catalog.ECC) || last.Result.Bad() {
		return true
	}
	if day := 24 * time.Hour; is(catalog.RemapPending, catalog.Pages) && (every == 0 || every > day) {
		every = day
	}
	before := last.Pattern
	if before != nil && before.Bytes == 0 { // it was not finished: on a GPU before Turing it never is
		every = min(every, time.Hour)
	}
	return every > 0 && (before == nil || now < before.At || now-before.At >= every)
}

// SinceTest is what a hook knows that may invalidate an earlier test.
type SinceTest struct {
	At     time.Duration // CLOCK_BOOTTIME
	Epoch  gpu.Epoch
	Kernel *gpu.KernelLog // since the record's mark, or since an earlier one; nil if not read
	Scene  compare.Input
	Card   record.Assigned
	MaxAge time.Duration
}

// Trusts reports whether a test's result still holds: nothing has changed since. A skipped test never holds.
func (n SinceTest) Trusts(r record.TestRecord) bool {
	log, age := n.Kernel, n.At-r.Probe.At
	if r.Probe.Result == gpu.ProbeSkipped || !r.Epoch.Same(n.Epoch) || age < 0 || age > n.MaxAge ||
		r.Kernel == (gpu.KernelMark{}) || log == nil || log.Unknown != "" || log.Lost {
		return false
	}
	since := func(x gpu.Xid) bool {
		return x.Seq > r.Kernel.Seq && (x.BusID == "" || x.BusID == n.Card.Device.BusID)
	}
	return !slices.ContainsFunc(log.Xids, since) && Busy(n.Scene, n.Card) == ""
}

// slowly exceeds the time to free an ended process's memory: 0.1 to 0.4 s were measured.
const slowly = time.Second

// AtEnd is what a job's end knows in addition; its Kernel is the log since the job's start.
type AtEnd struct {
	SinceTest
	Start     gpu.Probe // of the GPU, as the job's start knew it
	Job       slurm.ExitStatus
	Messages  int // number of messages about memory in the job's output
	Found     []record.Finding
	AfterJobs int // probe.after_jobs
}

// Outdates reports whether an end must test a GPU again: the start did not trust the last test, or it may be outdated.
func (n AtEnd) Outdates(r record.TestRecord) bool {
	id := n.Card.Device.ID
	trusted := n.Start.Result == gpu.ProbeOK && n.Start.At == r.Probe.At && n.Start.Device == id
	well := n.Job.Known && n.Job.Raw == 0 && n.Job.Derived == 0 && n.Messages == 0 &&
		!slices.ContainsFunc(n.Found, func(f record.Finding) bool { return f.GPU == id })
	return !trusted || !well || r.Jobs+1 >= n.AfterJobs || n.Scene.Now.Curves[id].Settled > slowly || !n.Trusts(r)
}
