package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/settle"
	"bookend/internal/state"
)

// Show is printed by "bookend show": every recorded run of a job, newest last.
type Show struct {
	Head
	Node string  `json:"node"`
	Job  string  `json:"job"` // as given on the command line
	Runs []Shown `json:"runs"`
}

// Shown is one run of a job: a summary, and the record of its hooks without the user's reports.
type Shown struct {
	Run
	Record ledger.Run `json:"record"`
	// SoFar is the recording of a run that has not ended. The end's record will contain all of it.
	SoFar *ledger.Recording `json:"recorded_so_far,omitempty"`
}

// NewShow returns the document of a job's runs.
func NewShow(node, job string, runs, all []ledger.Run, recorded state.Recorded) Show {
	s := Show{Head: head(KindShow), Node: node, Job: job, Runs: []Shown{}}
	for _, r := range runs {
		shown := Shown{Run: newRun(r, all), Record: r}
		if r.Epilog() == nil {
			shown.SoFar = recorded.Runs.About(r)
		}
		if r.Start != nil {
			start := *r.Start
			shown.Record.Start, start.Report = &start, ""
		}
		shown.Record.Ends = slices.Clone(r.Ends)
		for i := range shown.Record.Ends {
			shown.Record.Ends[i].Report = ""
		}
		s.Runs = append(s.Runs, shown)
	}
	return cleaned(s)
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
	for _, d := range r.Record.Devices {
		gpuText(w, r.Record, d)
	}
	if r.Record.Start == nil {
		fmt.Fprintln(w, "start: no record (no prolog ran, or it could not write)")
	} else {
		r.end(w, "start", *r.Record.Start, true)
	}
	r.recordedText(w)
	if len(r.Record.Ends) == 0 {
		fmt.Fprintln(w, "end: not yet")
	}
	for i, e := range r.Record.Ends {
		title := "end"
		if i > 0 {
			title = fmt.Sprintf("end, epilog run %d", i+1)
		}
		r.end(w, title, e, i == len(r.Record.Ends)-1)
	}
}

func gpuText(w io.Writer, r ledger.Run, d ledger.Assigned) {
	var last *ledger.End
	if r.Closed() {
		last = &r.Ends[len(r.Ends)-1]
	}
	total := ""
	for _, e := range r.Both() {
		if reading, ok := e.Snapshot.Reading(d.Device.ID); ok && reading.Memory.Total.Known() {
			total = "  " + Figure(reading.Memory.Total)
		}
	}
	c := GPU{&d.Index, d.Device}
	fmt.Fprintf(w, "  GPU %s  %s%s\n", c.number(), c.identity(), total)
	start, end := column(r.Start, nil, d.Device.ID), column(last, r.Start, d.Device.ID)
	rows := []string{row("    ", "start", "end")}
	for i, what := range []string{"used", "free", "largest block", "processes", "watched"} {
		if start[i]+end[i] != "" {
			rows = append(rows, row("    "+what, start[i], end[i]))
		}
	}
	table(w, rows...)
}

// column returns one end's values for a GPU, a text for each row. If e is an end, before is the start.
func column(e, before *ledger.End, id gpu.ID) (out [5]string) {
	if e == nil {
		return [5]string{"no record"}
	}
	reading, ok := e.Snapshot.Reading(id)
	if !ok {
		return [5]string{"not read"}
	}
	dirty := before != nil && before.Curves[id].State.Dirty()
	out = [5]string{Figure(reading.Memory.Used), Figure(reading.Memory.Free), "not tested", "unknown",
		watched(e.Curves[id], dirty)}
	if reading.ProcessesUnknown == "" {
		out[3] = fmt.Sprint(len(reading.Processes))
	}
	if t, ok := e.Probe(id); ok && searched(t) && t.Largest.Known() {
		out[2] = Figure(t.Largest)
	} else if ok && t.Result != gpu.ProbeSkipped {
		out[2] = string(t.Result)
	}
	return out
}

// watched describes how a GPU settled. If it was dirty at the start, clean means no more memory than then.
func watched(c settle.Curve, dirty bool) string {
	state, took := string(c.State)+" over", c.Span
	switch {
	case c.State == "":
		return "not judged"
	case c.State == settle.Clean && dirty:
		state, took = "no more than at the start after", c.Settled
	case c.State == settle.Clean:
		state, took = "clean after", c.Settled
	}
	return fmt.Sprintf("%s %.1f s (%s)", state, took.Seconds(), count(c.Looks, "look", "s"))
}

func (r Shown) end(w io.Writer, title string, e ledger.End, tests bool) {
	if e.Unseen != "" {
		fmt.Fprintf(w, "%s: %s, not seen: %s\n", title, stamp(e.Wall), e.Unseen)
		return
	}
	still := uint64(0)
	if title != "start" {
		still = stillThere(r.Record, e)
	}
	fmt.Fprintf(w, "%s: %s, %s\n", title, stamp(e.Wall), outcome(e.Verdict, still))
	for _, d := range r.Record.Devices {
		t, ok := e.Probe(d.Device.ID)
		if _, seen := e.Snapshot.Reading(d.Device.ID); !ok || !seen || !tests {
			continue
		}
		when := ""
		if tested := e.Clock(t.At); t.Result != gpu.ProbeSkipped && t.At > 0 && tested.Before(e.Wall) {
			when = ", tested at " + stamp(tested)
		}
		fmt.Fprintf(w, "  GPU %d  %s%s\n", d.Index, testText(t), when)
	}
	if e.Kernel != nil {
		kernelText(w, *e.Kernel)
	}
	for i, f := range e.Findings {
		findingText(w, f, e.Verdict.Of(i), e)
	}
	r.why(w, e)
	var parts []string
	for _, list := range slices.Sorted(maps.Keys(e.Rest)) {
		parts = append(parts, fmt.Sprintf("%s %d", list, e.Rest[list]))
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "  left out of the record, which would be too large: %s\n", strings.Join(parts, ", "))
	}
}

func searched(t gpu.Probe) bool { return t.Result == gpu.ProbeOK || t.Result == gpu.ProbeGap }

func testText(t gpu.Probe) string {
	text := fmt.Sprintf("%s: %s", t.Result, t.Why)
	switch e := t.Error; {
	case t.Result == gpu.ProbeSkipped:
		text = "not made: " + t.Why
	case searched(t):
		took := t.Times.Init + t.Times.Search + t.Times.Release
		text = fmt.Sprintf("%s, largest block %s of %s free (%s, %.0f ms)", t.Result, Figure(t.Largest), Figure(t.Free),
			count(t.Attempts, "attempt", "s"), took.Seconds()*1000)
	case e != nil:
		text = fmt.Sprintf("%s: %s: %s (%d)", t.Result, e.Call, e.Name, e.Code)
		for _, more := range []string{e.Meaning, e.Remedy} {
			if more != "" {
				text += "; " + more
			}
		}
	}
	return "test allocation: " + text
}

// why writes the memory messages of the job's output and every cause of running out of memory with its full evidence,
// whether or not the user got a report. Causes are omitted if the job is known to have succeeded and nothing indicates
// a problem. It is for admins: it contains PIDs and jobs of other users.
func (r Shown) why(w io.Writer, e ledger.End) {
	if e.Diagnosis != nil || len(e.Messages) > 0 {
		for _, o := range e.Outputs {
			outputText(w, o)
		}
	}
	for _, m := range e.Messages {
		says := cmp.Or(string(m.Framework), "unnamed")
		if m.Count > 1 {
			says += fmt.Sprintf(", %d times", m.Count)
		}
		fmt.Fprintf(w, "  its output says (%s): %s\n", says, m.Line)
	}
	d := e.Diagnosis
	if d == nil {
		return
	}
	if d.Reason != "" || r.Exit == nil {
		fmt.Fprintf(w, "  %s\n", cmp.Or(d.Headline, "Out of memory? How the job ended is not known"))
		table(w, each(d.Causes, causeRow)...)
	}
	for _, p := range d.Peaks {
		began := ""
		if !p.Began.IsZero() {
			began = ", began " + stamp(p.Began)
		}
		fmt.Fprintf(w, "    peak: PID %d had %s at most%s\n", p.PID, Figure(p.Peak), began)
	}
	for _, t := range d.Try {
		fmt.Fprintf(w, "    try: %s\n", t)
	}
}

func causeRow(c diagnosis.Cause) string {
	answer, text := string(c.Answer), c.Evidence
	if c.Answer == diagnosis.Yes {
		answer = "YES"
	}
	if c.Index != nil {
		text = fmt.Sprintf("GPU %d: %s", *c.Index, text)
	}
	return row("    "+answer, c.Name.Title(), text)
}

func outputText(w io.Writer, o ledger.Output) {
	text := "all searched"
	switch {
	case o.Why != "" && o.Read == 0:
		text = "not searched: " + o.Why
	case o.Read < o.Size:
		text = fmt.Sprintf("last %d KiB of %d searched", (o.Read+1023)>>10, (o.Size+1023)>>10)
	}
	fmt.Fprintf(w, "  %s: %s\n", strings.TrimRight(o.Kind.Name()+" "+o.Path, " "), text)
}

// kernelText writes the kernel log's entries since the job's start. What they caused is among the findings.
func kernelText(w io.Writer, k gpu.KernelLog) {
	line := func(format string, args ...any) { fmt.Fprintf(w, "  kernel log: "+format+"\n", args...) }
	if k.Unknown != "" {
		line("not read: %s", k.Unknown)
	}
	if k.Lost {
		line("part of it was overwritten before it was read")
	}
	for _, x := range k.Xids {
		text := ""
		if row, known := health.XidRow(x.Code); known {
			text += ": " + row.Meaning
		}
		if x.PID != 0 {
			text += fmt.Sprintf(", PID %d (%s)", x.PID, x.Name)
		}
		if x.More > 0 {
			text += fmt.Sprintf(", and %d like it before", x.More)
		}
		line("%s on %s%s: %s", gpu.Error(x.Code), x.BusID, text, x.Text)
	}
	for _, kill := range k.Kills {
		line("host memory ran out: PID %d (%s) was ended", kill.PID, kill.Name)
	}
	if k.Mismatch != "" {
		line("%s", k.Mismatch)
	}
}

func (r Shown) recordedText(w io.Writer) {
	recording, start := r.SoFar, r.Record.First()
	if e := r.Record.Epilog(); e != nil {
		recording = e.Recording
	}
	if recording == nil || recording.Samples == 0 {
		return
	}
	until := recording.To
	if e := r.Record.Epilog(); e != nil {
		until = e.Over()
	}
	clock := func(at time.Duration) string { return start.Clock(at).Local().Format(time.TimeOnly) }
	fmt.Fprintf(w, "while it ran: %s, one every %v\n", count(recording.Samples, "sample", "s"), recording.Every)
	for _, g := range recording.Gaps(start.At, until) {
		fmt.Fprintf(w, "  not recorded from %s to %s\n", clock(g.From), clock(g.To))
	}
	for _, d := range r.Record.Devices {
		for _, g := range recording.GPUs {
			if g.ID == d.Device.ID {
				fmt.Fprintf(w, "  GPU %d  %s\n", d.Index, peaks(g, clock))
				table(w, r.seen(g, clock)...)
			}
		}
	}
}

func peaks(g ledger.Recorded, clock func(time.Duration) string) string {
	most := func(what string, m ledger.Most) string {
		return fmt.Sprintf("%s %s at %s", what, diagnosis.Size(m.Bytes), clock(m.At))
	}
	parts := []string{"peak 0 MiB"}
	switch {
	case g.Peak.At > 0:
		parts[0] = most("peak", g.Peak)
	case g.Unread > 0:
		parts[0] = "memory could not be read"
	}
	switch {
	case g.Unused():
		parts = append(parts, "no process")
	case g.Together == 0:
		parts = append(parts, "no process that is known to be the job's")
	case g.Own.Bytes < g.Peak.Bytes/10*9 || len(g.Processes) > 1:
		parts = append(parts, most("the job's own", g.Own), count(g.Together, "process", "es")+" at once")
	}
	if g.Unlisted.Bytes > 0 {
		parts = append(parts, most("without a process", g.Unlisted))
	}
	if percent, known := g.Busy.Mean(); known {
		parts = append(parts, fmt.Sprintf("busy %d %%, idle for %v", percent, g.Busy.Idle.Round(time.Second)))
	}
	if g.Unread > 0 {
		parts = append(parts, count(g.Unread, "sample", "s")+" not read")
	}
	return strings.Join(parts, "; ")
}

// seen lists the processes recorded on a GPU, unless there was only one and it was the job's.
func (r Shown) seen(g ledger.Recorded, clock func(time.Duration) string) []string {
	if len(g.Processes) == 1 && g.Together == 1 {
		return nil
	}
	const most = 8
	rows := each(g.Processes[:min(len(g.Processes), most)], func(p ledger.RecordedProcess) string {
		whose := fmt.Sprintf("uid %d", p.UID)
		if p.Owner.Found() {
			whose = "job " + p.Owner.Name()
		}
		if r.Record.Owns(p.Owner) {
			whose = "the job's"
		}
		return row(fmt.Sprintf("    PID %d", p.PID), whose, diagnosis.Size(p.Most)+" at most",
			clock(p.First)+" to "+clock(p.Last))
	})
	if more := len(g.Processes) + g.More - len(rows); more > 0 {
		rows = append(rows, fmt.Sprintf("    and %d more", more))
	}
	return rows
}
