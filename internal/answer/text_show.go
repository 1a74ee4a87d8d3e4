package answer

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/settle"
)

// Text writes the runs of a job: both ends, each GPU, each finding with what policy made of it.
func (s Show) Text(w io.Writer) {
	for i, r := range s.Runs {
		if i > 0 {
			fmt.Fprintln(w)
		}
		r.text(w, s.Node)
	}
}

func (r Run) text(w io.Writer, node string) {
	record := r.Record
	fmt.Fprintf(w, "%s on %s, user %s (uid %d), partition %s\n", inkOf(w).in(bold, "job "+r.name()),
		name(node), name(r.User), r.UID, name(r.Partition))
	for _, d := range record.Devices {
		cardText(w, record, d)
	}
	if record.Start == nil {
		fmt.Fprintln(w, "start: no record (no prolog ran, or it could not write)")
	} else {
		r.end(w, "start", *record.Start, true)
	}
	r.recordedText(w)
	if len(record.Ends) == 0 {
		fmt.Fprintln(w, "end: not yet")
	}
	for i, e := range record.Ends {
		title := "end"
		if i > 0 {
			title = fmt.Sprintf("end, epilog run %d", i+1)
		}
		r.end(w, title, e, i == len(record.Ends)-1)
	}
}

// cardText writes one GPU of a job with both ends next to each other.
func cardText(w io.Writer, r ledger.Run, d ledger.Assigned) {
	var last *ledger.End
	if r.Closed() {
		last = &r.Ends[len(r.Ends)-1]
	}
	total := ""
	for _, e := range []*ledger.End{r.Start, last} {
		if reading, ok := read(e, d.Device.ID); ok && total == "" && reading.Memory.Total.Known() {
			total = "  " + Figure(reading.Memory.Total)
		}
	}
	c := assigned(d)
	fmt.Fprintf(w, "  %s  %s%s\n", inkOf(w).in(bold, "GPU "+c.number()), c.identity(), total)
	start, end := column(r.Start, nil, d.Device.ID), column(last, r.Start, d.Device.ID)
	rows := []string{"    \tstart\tend"}
	for i, what := range []string{"used", "free", "largest block", "processes", "watched"} {
		if start[i]+end[i] != "" {
			rows = append(rows, "    "+what+"\t"+start[i]+"\t"+end[i])
		}
	}
	table(w, rows...)
}

// read is a GPU as an end saw it; false where there is no such end, or it did not.
func read(e *ledger.End, id gpu.ID) (gpu.Reading, bool) {
	if e == nil {
		return gpu.Reading{}, false
	}
	return e.Snapshot.Reading(id)
}

// column is one end of a GPU, a text for each row; before is the start of an end.
func column(e, before *ledger.End, id gpu.ID) (out [5]string) {
	reading, ok := read(e, id)
	switch {
	case e == nil:
		out[0] = "no record"
		return out
	case !ok:
		out[0] = "not read"
		return out
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
		out[2] = name(string(t.Result))
	}
	return out
}

// watched words how a GPU settled. Of one that the job got dirty, clean means no more than that.
func watched(c settle.Curve, dirty bool) string {
	looks := count(c.Looks, "look", "s")
	switch {
	case c.State == "":
		return "not judged"
	case c.State == settle.Clean && dirty:
		return fmt.Sprintf("no more than at the start after %.1f s (%s)", c.Settled.Seconds(), looks)
	case c.State == settle.Clean:
		return fmt.Sprintf("clean after %.1f s (%s)", c.Settled.Seconds(), looks)
	}
	return fmt.Sprintf("%s over %.1f s (%s)", name(string(c.State)), c.Span.Seconds(), looks)
}

// end writes one end of a job; tests says to write its test allocations.
func (r Run) end(w io.Writer, title string, e ledger.End, tests bool) {
	at := moment(e.Wall)
	if e.Unseen != "" {
		fmt.Fprintf(w, "%s: %s, not seen: %s\n", title, stamp(at), cut(e.Unseen))
		return
	}
	still := uint64(0)
	if title != "start" {
		still = stillThere(r.Record, e)
	}
	fmt.Fprintf(w, "%s: %s, %s\n", title, stamp(at), inkOf(w).verdict(e.Verdict, outcome(e.Verdict, still)))
	for _, d := range r.Record.Devices {
		t, ok := e.Probe(d.Device.ID)
		if _, seen := e.Snapshot.Reading(d.Device.ID); !ok || !seen || !tests {
			continue
		}
		when := ""
		if tested := e.Clock(t.At); t.Result != gpu.ProbeSkipped && t.At > 0 && tested.Before(e.Wall) {
			when = ", tested at " + stamp(&tested)
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
		parts = append(parts, fmt.Sprintf("%s %d", name(list), e.Rest[list]))
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "  left out of the record, which would be too large: %s\n", strings.Join(parts, ", "))
	}
}

// outcome words a hook's verdict. A GPU that the job got dirty and gave back so is not simply clean.
func outcome(v finding.Verdict, still uint64) string {
	switch {
	case v.Exit != 0:
		return fmt.Sprintf("DRAIN for %s (exit %d)", v.Code, v.Exit)
	case v.Held != "":
		return fmt.Sprintf("would drain for %s, held back: %s", v.Code, cut(v.Held))
	case v.Code != "":
		return fmt.Sprintf("%s (%s)", v.Action, v.Code)
	case still > 0:
		return "clean; still there from before: " + size(&still)
	}
	return "clean"
}

// searched reports whether a test has come to a largest block.
func searched(t gpu.Probe) bool { return t.Result == gpu.ProbeOK || t.Result == gpu.ProbeGap }

// testText words one test allocation.
func testText(t gpu.Probe) string {
	text := fmt.Sprintf("test allocation: %s: %s", t.Result, t.Why)
	switch e := t.Error; {
	case t.Result == gpu.ProbeSkipped:
		text = "test allocation: not made: " + t.Why
	case searched(t):
		took := t.Times.Init + t.Times.Search + t.Times.Release
		text = fmt.Sprintf("test allocation: %s, largest block %s of %s free (%s, %.0f ms)", t.Result,
			Figure(t.Largest), Figure(t.Free), count(t.Attempts, "attempt", "s"), took.Seconds()*1000)
	case e != nil:
		text = fmt.Sprintf("test allocation: %s: %s: %s (%d)", t.Result, e.Call, e.Name, e.Code)
		for _, more := range []string{e.Meaning, e.Remedy} {
			if more != "" {
				text += "; " + more
			}
		}
	}
	return cut(text)
}

// why writes the messages about memory that the job's output had, and each cause of running out of it with the whole
// evidence, whether or not the user was told, unless the job is known to have ended well and nothing speaks of it. PIDs
// and jobs of others are in it: it is for admins.
func (r Run) why(w io.Writer, e ledger.End) {
	if e.Diagnosis != nil || len(e.Messages) > 0 {
		for _, o := range e.Outputs {
			outputText(w, o)
		}
	}
	for _, m := range e.Messages {
		times := ""
		if m.Count > 1 {
			times = fmt.Sprintf(", %d times", m.Count)
		}
		says := name(cmp.Or(string(m.Framework), "unnamed"))
		fmt.Fprintf(w, "  its output says (%s%s): %s\n", says, times, cut(m.Line))
	}
	d := e.Diagnosis
	if d == nil {
		return
	}
	if d.Reason != "" || r.Exit == nil {
		fmt.Fprintf(w, "  %s\n", cut(cmp.Or(d.Headline, "Out of memory? How the job ended is not known")))
		var rows []string
		for _, c := range d.Causes {
			rows = append(rows, causeRow(c))
		}
		table(w, rows...)
	}
	for _, p := range d.Peaks {
		began := ""
		if !p.Began.IsZero() {
			began = ", began " + stamp(&p.Began)
		}
		fmt.Fprintf(w, "    peak: PID %d had %s at most%s\n", p.PID, Figure(p.Peak), began)
	}
	for _, t := range d.Try {
		if !strings.HasPrefix(t, diagnosis.TellAdmin) { // who reads this is the admin
			fmt.Fprintf(w, "    try: %s\n", cut(t))
		}
	}
}

// causeRow is one cause judged, a yes such that it stands out.
func causeRow(c diagnosis.Cause) string {
	answer, text := name(string(c.Answer)), c.Evidence
	if c.Answer == diagnosis.Yes {
		answer = "YES"
	}
	if c.Index != nil {
		text = fmt.Sprintf("GPU %d: %s", *c.Index, text)
	}
	if c.Detail != "" {
		text += " [" + c.Detail + "]"
	}
	return "    " + answer + "\t" + c.Name.Title() + "\t" + cut(text)
}

// outputText writes what was looked through of one of the job's outputs.
func outputText(w io.Writer, o ledger.Output) {
	what, text := o.Kind.Name(), "all searched"
	switch {
	case o.Why != "" && o.Read == 0:
		text = "not searched: " + o.Why
	case o.Read < o.Size:
		text = fmt.Sprintf("last %s of %s searched", diagnosis.Size(uint64(o.Read)), diagnosis.Size(uint64(o.Size)))
	}
	if o.Path != "" {
		what += " " + o.Path
	}
	fmt.Fprintf(w, "  %s: %s\n", cut(what), cut(text))
}

// kernelText writes what the kernel's log had since the job's start. Its own findings are among the findings.
func kernelText(w io.Writer, k gpu.KernelLog) {
	line := func(text string) { fmt.Fprintf(w, "  kernel log: %s\n", cut(text)) }
	if k.Unknown != "" {
		line("not read: " + k.Unknown)
	}
	if k.Lost {
		line("part of it was overwritten before it was read")
	}
	for _, x := range k.Xids {
		text := fmt.Sprintf("%s on %s", gpu.Error(x.Code), x.BusID)
		if row, known := health.XidRow(x.Code); known {
			text += ": " + row.Meaning
		}
		if x.PID != 0 {
			text += fmt.Sprintf(", PID %d (%s)", x.PID, x.Name)
		}
		if x.More > 0 {
			text += fmt.Sprintf(", and %d like it before", x.More)
		}
		line(text + ": " + x.Text)
	}
	for _, kill := range k.Kills {
		line(fmt.Sprintf("host memory ran out: PID %d (%s) was ended", kill.PID, kill.Name))
	}
	if k.Mismatch != "" {
		line(k.Mismatch)
	}
}
