package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Show is printed by "bookend show": every recorded run of a job, newest last.
type Show struct {
	Head
	Node string  `json:"node"`
	Job  string  `json:"job"` // as given on the command line
	Runs []Shown `json:"runs"`
}

// Shown is one run of a job with its record.
type Shown struct {
	RunSummary
	Record    RunRecord  `json:"record"`
	Recording *Recording `json:"recording"` // null if nothing was recorded while it ran
}

// NewShow returns the document of a job's runs. recorded is what was recorded so far of those that have not ended.
func NewShow(node, job string, runs, all []record.Run, recorded record.Recordings) Show {
	return Show{head("show"), node, job, each(runs, func(r record.Run) Shown {
		return Shown{newRun(r, all), newRecord(r), newRecording(r, recorded.About(r))}
	})}
}

// Text writes the runs of a job: both ends, each GPU, and each finding with what policy decided.
func (s Show) Text(w io.Writer) {
	for i, r := range s.Runs {
		if i > 0 {
			fmt.Fprintln(w)
		}
		r.text(w, s.Node)
	}
}

func (r Shown) text(w io.Writer, node string) {
	fmt.Fprintf(w, "job %s on %s, user %s (uid %d), partition %s\n", r.name(), node, r.User, r.UID, r.Partition)
	ends := r.Record.Ends
	var last *HookEnd
	if len(ends) > 0 {
		last = &ends[len(ends)-1]
	}
	for _, g := range r.GPUs {
		gpuText(w, g, r.Record.Start, last)
	}
	if r.Record.Start == nil {
		fmt.Fprintln(w, "start: no record (no prolog ran, or it could not write)")
	} else {
		r.endText(w, "start", *r.Record.Start, true)
	}
	if r.Recording != nil {
		r.Recording.text(w)
	}
	if len(ends) == 0 {
		fmt.Fprintln(w, "end: not yet")
	}
	for i, e := range ends {
		title := "end"
		if i > 0 {
			title = fmt.Sprintf("end, epilog run %d", i+1)
		}
		r.endText(w, title, e, i == len(ends)-1)
	}
}

func gpuText(w io.Writer, g GPU, start, end *HookEnd) {
	was, now, total := start.gpu(g.ID), end.gpu(g.ID), ""
	for _, seen := range []*GPUEnd{was, now} {
		if seen != nil && seen.Memory.Total.Known() {
			total = "  " + figure(seen.Memory.Total)
		}
	}
	fmt.Fprintf(w, "  GPU %s  %s%s\n", g.number(), g.identity(), total)
	atStart, atEnd := column(start, was, false), column(end, now, was != nil && was.State.Dirty())
	rows := []string{row("    ", "start", "end")}
	for i, what := range []string{"used", "free", "largest block", "processes", "watched"} {
		if atStart[i]+atEnd[i] != "" {
			rows = append(rows, row("    "+what, atStart[i], atEnd[i]))
		}
	}
	table(w, rows...)
}

// gpu returns what was read of a GPU at an end, nil if it was not read or there is no such end.
func (e *HookEnd) gpu(id gpu.ID) *GPUEnd {
	for i := 0; e != nil && i < len(e.GPUs); i++ {
		if e.GPUs[i].ID == id {
			return &e.GPUs[i]
		}
	}
	return nil
}

// column returns one end's values for a GPU, a text for each row. A GPU is dirty if it was not clean at the start.
func column(e *HookEnd, g *GPUEnd, dirty bool) [5]string {
	switch {
	case e == nil:
		return [5]string{"no record"}
	case g == nil:
		return [5]string{"not read"}
	}
	block, processes := "not tested", "unknown"
	if t := g.Test; t != nil && t.searched() && t.Largest.Known() {
		block = figure(t.Largest)
	} else if t != nil && t.Result != gpu.ProbeSkipped {
		block = string(t.Result)
	}
	if g.Processes != nil {
		processes = fmt.Sprint(*g.Processes)
	}
	return [5]string{figure(g.Memory.Used), figure(g.Memory.Free), block, processes, watched(*g, dirty)}
}

// watched describes how a GPU settled. If it was dirty at the start, clean means no more memory than then.
func watched(g GPUEnd, dirty bool) string {
	state, took := string(g.State)+" over", g.Watched
	switch {
	case g.State == "":
		return "not judged"
	case g.State == record.Clean && dirty:
		state, took = "no more than at the start after", g.Settled
	case g.State == record.Clean:
		state, took = "clean after", g.Settled
	}
	return fmt.Sprintf("%s %.1f s (%s)", state, took, count(g.Looks, "look", "s"))
}

// endText writes one end. Its tests are left out if a later end has newer ones.
func (r Shown) endText(w io.Writer, title string, e HookEnd, tests bool) {
	if e.Unseen != "" {
		fmt.Fprintf(w, "%s: %s, not seen: %s\n", title, stamp(e.At), e.Unseen)
		return
	}
	fmt.Fprintf(w, "%s: %s, %s\n", title, stamp(e.At), outcome(e.Verdict, e.StillBytes))
	for _, g := range e.GPUs {
		if t := g.Test; t != nil && tests {
			when := ""
			if t.Result != gpu.ProbeSkipped && !t.At.IsZero() && t.At.Before(e.At) {
				when = ", tested at " + stamp(t.At)
			}
			fmt.Fprintf(w, "  GPU %d  %s%s\n", g.Index, t.text(), when)
		}
	}
	for _, line := range e.KernelLog {
		fmt.Fprintf(w, "  kernel log: %s\n", line)
	}
	for _, f := range e.Findings {
		f.text(w)
	}
	e.messagesText(w)
	if d := e.Diagnosis; d != nil {
		diagnosisText(w, *d, r.Exit == nil)
	}
	if len(e.LeftOut) > 0 {
		parts := each(slices.Sorted(maps.Keys(e.LeftOut)), func(list string) string {
			return fmt.Sprintf("%s %d", list, e.LeftOut[list])
		})
		fmt.Fprintf(w, "  left out of the record, which would be too large: %s\n", strings.Join(parts, ", "))
	}
}

// searched reports whether the test measured the largest block.
func (t Test) searched() bool { return t.Result == gpu.ProbeOK || t.Result == gpu.ProbeGap }

func (t Test) text() string {
	text := fmt.Sprintf("%s: %s", t.Result, t.Why)
	switch e := t.Error; {
	case t.Result == gpu.ProbeSkipped:
		text = "not made: " + t.Why
	case t.searched():
		text = fmt.Sprintf("%s, largest block %s of %s free (%s, %.0f ms)", t.Result, figure(t.Largest), figure(t.Free),
			count(t.Attempts, "attempt", "s"), t.Took*1000)
	case e != nil:
		text = fmt.Sprintf("%s: %s: %s (%d)%s%s", t.Result, e.Call, e.Name, e.Code, after("; ", e.Meaning),
			after("; ", e.Remedy))
	}
	return "test allocation: " + text + after("; pattern test: ", t.Pattern)
}

// messagesText writes where messages about memory were searched, and the messages.
func (e HookEnd) messagesText(w io.Writer) {
	for _, o := range e.Outputs {
		if e.Diagnosis != nil || len(e.Messages) > 0 {
			fmt.Fprintf(w, "  %s: %s\n", strings.TrimRight(o.Kind.Name()+" "+o.Path, " "), searched(o))
		}
	}
	for _, m := range e.Messages {
		says := cmp.Or(string(m.Program), string(m.Framework), "unnamed")
		if m.Count > 1 {
			says += fmt.Sprintf(", %d times", m.Count)
		}
		fmt.Fprintf(w, "  its output says (%s): %s\n", says, m.Line)
	}
}

func searched(o record.Output) string {
	switch {
	case o.Why != "" && o.Read == 0:
		return "not searched: " + o.Why
	case o.Read < o.Size:
		return fmt.Sprintf("last %d KiB of %d searched", (o.Read+1023)>>10, (o.Size+1023)>>10)
	}
	return "all searched"
}

// diagnosisText writes every cause of running out of memory with its full evidence, PIDs and jobs of other users too.
// Causes are left out if the job is known to have succeeded and nothing indicates a problem.
func diagnosisText(w io.Writer, d record.Diagnosis, exitUnknown bool) {
	if d.Reason != "" || exitUnknown {
		headline := cmp.Or(d.Headline, "Out of memory? How the job ended is not known")
		fmt.Fprintln(w, "  "+strings.Join(given(headline, d.InOrder.Evidence), "\n  "))
		table(w, each(d.Causes, causeRow)...)
	}
	reported := each(d.Reported, func(meaning string) string { return "its output: " + meaning })
	for _, line := range append(reported, each(d.Try, func(what string) string { return "try: " + what })...) {
		fmt.Fprintln(w, "    "+line)
	}
}

func causeRow(c record.Cause) string {
	answer, text := strings.Replace(string(c.Answer), string(record.Yes), "YES", 1), c.Evidence
	if c.Index != nil {
		text = fmt.Sprintf("GPU %d: %s", *c.Index, text)
	}
	return row("    "+answer, c.Name.Title(), text)
}

func (r Recording) text(w io.Writer) {
	fmt.Fprintf(w, "while it ran: %s, one every %v\n", count(r.Samples, "sample", "s"), seconds(r.Every))
	for _, g := range r.Gaps {
		fmt.Fprintf(w, "  not recorded from %s to %s\n", timeOfDay(g.From), timeOfDay(g.To))
	}
	for _, g := range r.GPUs {
		fmt.Fprintf(w, "  GPU %d  %s\n", g.Index, g.peaks())
		for _, f := range g.Faults {
			fmt.Fprintf(w, "    %s  %s\n", timeOfDay(f.Wall), f.Text())
		}
		table(w, g.processes()...)
	}
}

func (g RecordedGPU) peaks() string {
	most := func(what string, m Most) string {
		return fmt.Sprintf("%s %s at %s", what, gpu.Size(m.Bytes), timeOfDay(m.At))
	}
	parts := []string{"peak 0 MiB"}
	switch {
	case !g.Peak.At.IsZero():
		parts[0] = most("peak", g.Peak)
	case g.Unread > 0:
		parts[0] = "memory could not be read"
	}
	switch {
	case g.Unused:
		parts = append(parts, "no process")
	case g.Together == 0:
		parts = append(parts, "no process that is known to be the job's")
	case g.Own.Bytes < g.Peak.Bytes/10*9 || len(g.Processes) > 1:
		parts = append(parts, most("the job's own", g.Own), count(g.Together, "process", "es")+" at once")
	}
	if g.Unlisted.Bytes > 0 {
		parts = append(parts, most("without a process", g.Unlisted))
	}
	if g.Busy != nil {
		parts = append(parts, fmt.Sprintf("busy %d %%, idle for %v", *g.Busy, seconds(g.Idle).Round(time.Second)))
	}
	if g.Unread > 0 {
		parts = append(parts, count(g.Unread, "sample", "s")+" not read")
	}
	return strings.Join(parts, "; ")
}

// processes lists the processes recorded on a GPU, unless there was only one and it was the job's.
func (g RecordedGPU) processes() []string {
	if len(g.Processes) == 1 && g.Together == 1 {
		return nil
	}
	rows := each(g.Processes[:min(len(g.Processes), 8)], func(p RecordedProcess) string {
		owner := owner(after("job ", p.Job), p.UID)
		if p.Own {
			owner = "the job's"
		}
		return row(fmt.Sprintf("    PID %d", p.PID), owner, gpu.Size(p.Most)+" at most",
			timeOfDay(p.FirstAt)+" to "+timeOfDay(p.LastAt))
	})
	if more := len(g.Processes) + g.More - len(rows); more > 0 {
		rows = append(rows, fmt.Sprintf("    and %d more", more))
	}
	return rows
}

func timeOfDay(t time.Time) string { return t.Local().Format(time.TimeOnly) }

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// text writes what was found, the owner with the evidence, and why it did not drain.
func (f Finding) text(w io.Writer) {
	place := after(" ", string(f.GPU))
	if f.Index != nil {
		place = fmt.Sprintf(" GPU %d", *f.Index)
	}
	entry, _ := catalog.Lookup(f.Code)
	fmt.Fprintf(w, "  %s%s: %s [%s]\n", f.Code, place, entry.Title, f.Action)
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(w, "    %-9s %s\n", label+":", text)
		}
	}
	line("memory", amount(f.Bytes))
	candidate := "maybe"
	if f.Holder != nil {
		line("process", holderText(*f.Holder))
		candidate = "holder"
	}
	for _, holder := range some(f.Candidates, 8, "and %d more", holderText) {
		line(candidate, holder)
	}
	if f.Searched {
		line("search", fmt.Sprintf("every process of the node was looked into; %d may hold it", len(f.Candidates)))
	}
	if o := f.Owner; o != nil {
		user := fmt.Sprintf("uid %d", o.UID)
		if f.Unknown != "" && o.Named() { // its job has no record here
			user = "uid unknown"
		}
		line("job", fmt.Sprintf("%s (%s), evidence: %s%s", o.JobName(), user, o.Level, evidence[o.Level]))
	}
	line("seen", f.Observed)
	line("unknown", f.Unknown)
	line("doubt", f.Why)
}

// evidence describes each level of attribution; docs/holders.md explains them.
var evidence = map[record.Level]string{
	record.ByCgroup:      " (it is in the job's cgroup)",
	record.BySighting:    " (an earlier hook saw it in the job's cgroup)",
	record.ByRecorder:    " (the recorder saw it while the job ran)",
	record.ByExclusive:   " (it came while the job had the GPU alone)",
	record.ByEnvironment: " (its environment names the job: a hint)",
}

func processText(p Process) string {
	switch {
	case p.Reused:
		return fmt.Sprintf("PID %d, which another process has by now", p.PID)
	case p.Gone:
		return fmt.Sprintf("PID %d, which no longer exists", p.PID)
	case p.Why != "":
		return fmt.Sprintf("PID %d, unknown: %s", p.PID, p.Why)
	}
	return fmt.Sprintf("PID %d (%s), uid %d, state %s, started %s", p.PID, p.Name, p.UID, p.State, stamp(p.BeganAt))
}

// holderText describes a process that an end found: its class, where it runs, its open files, and a candidate's job.
func holderText(p Process) string {
	job := ""
	if p.Owner != nil {
		job = fmt.Sprintf("job %s by %s", p.Owner.JobName(), p.Owner.Level)
	}
	return strings.Join(given(processText(p), join(p.Classes, " "), after("in ", p.Service), after("in ", p.Container),
		after("has open ", strings.Join(p.Open, " ")), job), ", ")
}
