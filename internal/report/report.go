// Package report words findings for the job's owner in plain ASCII, one fact a line, in one line if all is well.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safetext"
)

// Bounds of a report: its lines, and the bytes of each.
const (
	MaxLines = 16
	Width    = 240
)

// Scene is the input of a report.
type Scene struct {
	Run      record.Run // so far: without the end that is reported
	Cards    []record.Assigned
	Now      record.Side
	Before   *record.Side // at the end: what the start saw
	Findings []record.Finding
	Verdict  record.Verdict
	Show     config.Show
	Privacy  config.Privacy
	Help     string            // where the site's users find help; empty if not configured
	Why      *record.Diagnosis // the diagnosis of why the job ran out of memory; nil if it is not wanted
	// Recording is what was seen of the job while it ran, nil for nothing. Ended is its end on CLOCK_BOOTTIME; of a job
	// that still runs, the newest sample.
	Recording *record.Recording
	Ended     time.Duration
	Shared    bool // other jobs have its GPUs too
	// Untested names a GPU whose test allocation was due and not made, and why; empty if there is none.
	Untested  string
	Unread    bool // the job's output was not read
	Cancelled bool // Slurm's own line says that the job was cancelled or met its time limit
}

// Start returns the text for the beginning of the job's log, empty if there is nothing to report.
func Start(s Scene) string {
	found, memory := s.reported(), onNode(s)
	switch {
	case s.Show == config.ShowNone:
		return ""
	case len(found) == 0 && s.Show == config.ShowAll:
		return lines(append([]string{s.quiet(s.clean() + " at the start: " + s.free())}, memory...)...)
	case len(found) == 0:
		return lines(memory...)
	}
	return s.bounded(s.problems(found, atStart), slices.Concat(memory, s.startAdvice(found)))
}

// End returns the text for the end of the job's log, empty if there is none; why the job ran out of memory comes first.
func End(s Scene) string {
	found, ended := s.reported(), s.ended()
	body := slices.Concat(ended, s.problems(found, atEnd))
	switch {
	case s.Show == config.ShowNone, s.Show == config.ShowProblems && s.Clean():
		return ""
	case s.untroubled(found) && len(ended) == 0:
		return lines(append([]string{s.inOneLine()}, onNode(s)...)...)
	case s.asked():
		body = append(s.why(), body...)
	case len(found) == 0:
		body = append(body, s.quiet(leftClean(s)))
	}
	if never := neverUsed(s); never != "" {
		body = append(body, s.Run.Job.Node+never)
	}
	return s.bounded(body, slices.Concat(onNode(s), s.endAdvice(found, len(ended) > 0)))
}

// onNode returns the lines about what was left on the node itself: memory, and processes.
func onNode(s Scene) (out []string) {
	for i, f := range s.Findings {
		if e, _ := catalog.Lookup(f.Code); e.Scope != catalog.Host || !s.Verdict.Tells(i) {
			continue
		}
		separator, how := "; remove: ", "  Remove there: "
		if f.Code == catalog.Survivor {
			separator, how = "; end: ", "  End there: "
		}
		what, command, some := strings.Cut(f.Observed, separator)
		if f.Bytes.Bytes > 0 {
			what += fmt.Sprintf(" (%s of the node's memory)", gpu.Size(f.Bytes.Bytes))
		}
		out = append(out, fmt.Sprintf("WARNING: %s: %s", s.Run.Job.Node, what))
		if some {
			out = append(out, how+command)
		}
		if f.Code == catalog.HostMemory {
			out = append(out, "  Too little is left? sbatch --exclude="+s.Run.Job.Node)
		}
	}
	return out
}

// untroubled reports a job that did not fail, as far as is known, and met nothing but what its start has told of.
func (s Scene) untroubled(found []record.Finding) bool {
	news := func(f record.Finding) bool { return f.Code != catalog.Dirty && !f.Earlier }
	asks := s.Why != nil && s.Why.Reason != "" && s.Why.Reason != record.ByCause
	return !asks && s.Verdict.Action != config.Drain && !slices.ContainsFunc(found, news)
}

// inOneLine returns the line about a job without trouble: on a GPU that was not clean before it, too, and if something
// outside the job was seen that did it no harm.
func (s Scene) inOneLine() string {
	text := s.quiet(leftClean(s))
	if s.asked() && !wasDirty(s) {
		text = string(safetext.Clean(s.Why.Headline, Width))
		for _, c := range s.Why.Causes {
			if c.Explains() {
				text += " (" + evidence(c, len(s.Cards) > 1) + ")"
				break
			}
		}
	}
	return text + strings.Replace(neverUsed(s), " ", "; ", 1)
}

// Clean reports whether there is nothing to report beyond one line.
func (s Scene) Clean() bool {
	return len(s.reported())+len(s.ended())+len(onNode(s)) == 0 && !s.asked()
}

// reported returns the findings for the owner: about the job's GPUs or the driver, neither ignored nor noted.
func (s Scene) reported() []record.Finding {
	var out []record.Finding
	for i, f := range s.Findings {
		private := f.Code == catalog.Trespass && !f.OnlyRecorded() || f.Code == catalog.Ended
		if e, known := catalog.Lookup(f.Code); known && (e.Scope == catalog.Own || e.Scope == catalog.Host) {
			private = true
		}
		if s.Verdict.Tells(i) && !private && !isConsequence(s, f) {
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b record.Finding) int { return s.rank(a.GPU) - s.rank(b.GPU) })
	return out
}

func (s Scene) rank(id gpu.ID) int {
	i := slices.IndexFunc(s.Cards, func(c record.Assigned) bool { return c.Device.ID == id })
	if i < 0 {
		return len(s.Cards)
	}
	return i
}

// bounded limits a text to MaxLines. The advice, at its end, is never cut off.
func (s Scene) bounded(body, advice []string) string {
	if room := MaxLines - len(advice); len(body) > room {
		job := s.Run.Job
		rest := fmt.Sprintf("  and %d more lines, for your admin: bookend show %d (on %s)", len(body)-room+1, job.ID,
			job.Node)
		body = append(body[:room-1:room-1], rest)
	}
	return lines(append(body, advice...)...)
}

func lines(text ...string) string {
	var b strings.Builder
	for _, t := range text {
		b.WriteString(string(safetext.Keep("bookend: "+t, Width)) + "\n")
	}
	return b.String()
}

// quiet returns the one line of a report without findings for the user. It says clean only of GPUs seen clean. If they
// were not checked, the first finding is the reason.
func (s Scene) quiet(clean string) string {
	all, inUse := checked(s)
	switch {
	case !all:
		return fmt.Sprintf("GPUs of %s not checked: %s; your job is not affected by this", s.Run.Job.Node, unchecked(s))
	case inUse && besideOf(s) != "":
		return fmt.Sprintf("%s in use: %s; %s", s.place(), s.free(), besideOf(s))
	case inUse:
		return fmt.Sprintf("%s in use, no action needed: %s", s.place(), s.free())
	}
	return clean
}

// checked reports whether each GPU was seen, and whether one was not clean.
func checked(s Scene) (all, inUse bool) {
	all = len(s.Cards) > 0
	for _, c := range s.Cards {
		curve, looked := s.Now.Curves[c.Device.ID]
		all = all && looked && curve.State != record.Unreadable
		inUse = inUse || curve.State != record.Clean
	}
	return all, inUse
}

// unchecked returns why GPUs were not checked.
func unchecked(s Scene) string {
	if len(s.Findings) == 0 {
		return "reason unknown"
	}
	e, _ := catalog.Lookup(s.Findings[0].Code)
	return cmp.Or(e.Title, "reason unknown")
}

// leftClean returns the one line of a clean end, with the job's peak if that is known.
func leftClean(s Scene) string {
	if wasDirty(s) {
		return fmt.Sprintf("%s as your job found it: %s", s.place(), strings.Join(given(s.free(), s.peak()), ", "))
	}
	return s.clean() + ": " + cmp.Or(s.peak(), s.free())
}

func given(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// wasDirty reports whether a GPU was not clean at the job's start, or had an error that stands.
func wasDirty(s Scene) bool {
	dirty := len(s.reported()) > 0
	for _, c := range cmp.Or(s.Before, &record.Side{}).Curves {
		dirty = dirty || c.State.Dirty()
	}
	return dirty
}

// clean says that nothing is left on the job's GPUs, and clean only if no test that was due is missing.
func (s Scene) clean() string {
	if s.Untested != "" {
		return s.place() + " empty, " + s.Untested
	}
	return s.place() + " clean"
}

func (s Scene) place() string {
	list := make([]string, len(s.Cards))
	for i, c := range s.Cards {
		list[i] = fmt.Sprint(c.Index)
	}
	if len(list) == 1 {
		return s.Run.Job.Node + " GPU " + list[0]
	}
	return s.Run.Job.Node + " GPUs " + strings.Join(list, ",")
}

func (s Scene) free() string {
	least, all := leastFree(s)
	switch {
	case all < len(s.Cards):
		return "free memory unknown"
	case len(s.Cards) == 1:
		return s.of(least) + " free"
	}
	return fmt.Sprintf("at least %s free on each GPU", gpu.Size(least))
}

// leastFree returns the least free memory of the job's GPUs, and on how many of them it is known.
func leastFree(s Scene) (least uint64, known int) {
	for _, c := range s.Cards {
		r, read := s.Now.Snapshot.Reading(c.Device.ID)
		if !read || !r.Memory.Free.Known() {
			continue
		}
		if known++; known == 1 || r.Memory.Free.Bytes < least {
			least = r.Memory.Free.Bytes
		}
	}
	return least, known
}

// of returns an amount with the total memory of the job's first GPU, without what the driver reserves.
func (s Scene) of(bytes uint64) string {
	r, _ := s.Now.Snapshot.Reading(s.Cards[0].Device.ID)
	if !r.Memory.Total.Known() {
		return gpu.Size(bytes)
	}
	total := r.Memory.Total.Bytes - min(r.Memory.Total.Bytes, r.Memory.Reserved.Bytes)
	return fmt.Sprintf("%s of %s", strings.TrimSuffix(gpu.Size(bytes), " GiB"), gpu.Size(total))
}
