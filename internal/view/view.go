// Package view words records and snapshots for a terminal: what an admin sees of "bookend show", "status" and
// "snapshot". Text only; whoever prints it decides where.
package view

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/policy"
	"bookend/internal/report"
	"bookend/internal/settle"
)

const (
	nameWidth = 48 // of names from outside in a line
	timestamp = "2006-01-02 15:04:05"
)

// Job writes one run of a job: both ends, each card, each finding with what policy made of it.
func Job(w io.Writer, r ledger.Run) {
	i := inkOf(w)
	fmt.Fprintf(w, "%s on %s, user %s (uid %d), partition %s\n", i.in(bold, "job "+Name(r)), r.Job.Node,
		report.Clean(r.Job.User, nameWidth), r.Job.UID, report.Clean(r.Job.Partition, nameWidth))
	sides(w, r)
	if r.Start == nil {
		fmt.Fprintln(w, "start: no record (no prolog ran, or it could not write)")
	} else {
		end(w, "start", r, *r.Start, nil)
	}
	if len(r.Ends) == 0 {
		fmt.Fprintln(w, "end: not yet")
	}
	for i, e := range r.Ends {
		title := "end"
		if i > 0 {
			title = fmt.Sprintf("end, epilog run %d", i+1)
		}
		end(w, title, r, e, r.Start)
	}
}

// Name is a job's name as its user knows it, with the id that Slurm's logs have where that is another: "1234_7 (1240)".
func Name(r ledger.Run) string {
	name, id := r.JobName(), fmt.Sprint(r.Job.ID)
	if name == id {
		return id
	}
	return name + " (" + id + ")"
}

// end writes one end of a job; before is the job's start, nil for that itself.
func end(w io.Writer, title string, r ledger.Run, e ledger.End, before *ledger.End) {
	fmt.Fprintf(w, "%s: %s, %s\n", title, e.Wall.Local().Format(timestamp), inkOf(w).verdict(e.Verdict, outcome(r, e, before)))
	if e.Unseen != "" {
		return // nobody looked
	}
	tests(w, r, e)
	conditions(w, r, e)
	for i, f := range e.Findings {
		about(w, f, e.Verdict.Of(i), e)
	}
	why(w, r, e)
	rest(w, e)
}

// rest says what a record leaves out to stay small.
func rest(w io.Writer, e ledger.End) {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(e.Rest)) {
		parts = append(parts, fmt.Sprintf("%s %d", report.Clean(name, nameWidth), e.Rest[name]))
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "  left out of the record, which would be too large: %s\n", strings.Join(parts, ", "))
	}
}

// outcome words a hook's verdict. A card that the job got dirty and gave back so is not simply clean.
func outcome(r ledger.Run, e ledger.End, before *ledger.End) string {
	if e.Unseen != "" {
		return "not seen: " + e.Unseen
	}
	text := Verdict(e.Verdict)
	if e.Verdict.Code != "" || before == nil {
		return text
	}
	var still uint64
	for _, d := range r.Devices {
		if !dirty(before, d.Device.ID) {
			continue
		}
		was, _ := before.Snapshot.Reading(d.Device.ID)
		now, _ := e.Snapshot.Reading(d.Device.ID)
		if was.Memory.Used.Known() && now.Memory.Used.Known() {
			still += min(was.Memory.Used.Bytes, now.Memory.Used.Bytes)
		}
	}
	if still < finding.WorthTelling {
		return text
	}
	return fmt.Sprintf("%s; still there from before: %s", text, Figure(gpu.Bytes(still)))
}

// Verdict words a hook's outcome.
func Verdict(v policy.Verdict) string {
	switch {
	case v.Exit != 0:
		return fmt.Sprintf("DRAIN for %s (exit %d)", v.Code, v.Exit)
	case v.Held != "":
		return fmt.Sprintf("would drain for %s, held back: %s", v.Code, report.Clean(v.Held, 2*nameWidth))
	case v.Code != "":
		return fmt.Sprintf("%s (%s)", v.Action, v.Code)
	}
	return "clean"
}

// dirty reports whether the job got the card with something on it: at its end, clean then means no more than that.
func dirty(before *ledger.End, id gpu.ID) bool {
	return before != nil && before.Curves[id].State.Dirty()
}

func curve(c settle.Curve, gotDirty bool) string {
	looks := count(c.Looks, "look", "s")
	switch {
	case c.State == "":
		return "not judged"
	case c.State == settle.Clean && gotDirty:
		return fmt.Sprintf("no more than at the start after %.1f s (%s)", c.Settled.Seconds(), looks)
	case c.State == settle.Clean:
		return fmt.Sprintf("clean after %.1f s (%s)", c.Settled.Seconds(), looks)
	}
	return fmt.Sprintf("%s over %.1f s (%s)", c.State, c.Span.Seconds(), looks)
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s%s", n, one, more)
}

// about writes one finding: what, whose by which evidence, and why it did not drain.
func about(w io.Writer, f finding.Finding, j policy.Judged, e ledger.End) {
	entry, _ := code.Lookup(f.Code)
	i := inkOf(w)
	fmt.Fprintf(w, "  %s%s: %s [%s]\n", i.action(j.Action, string(f.Code)), place(f, e), entry.Title, j.Action)
	for _, line := range details(f, j, e.Clock) {
		fmt.Fprintf(w, "    %s\n", line)
	}
}

// place is the card of a finding: by Slurm's number where it is the job's, else by its id and device node.
func place(f finding.Finding, e ledger.End) string {
	switch {
	case f.Index != nil:
		return fmt.Sprintf(" GPU %d", *f.Index)
	case f.GPU == "":
		return ""
	}
	text := " " + string(report.Clean(string(f.GPU), nameWidth))
	if e.Neighbours == nil {
		return text
	}
	if r, ok := e.Neighbours.Reading(f.GPU); ok && r.Device.Minor != nil {
		text += fmt.Sprintf(" (/dev/nvidia%d)", *r.Device.Minor)
	}
	return text
}

func details(f finding.Finding, j policy.Judged, at func(time.Duration) time.Time) []string {
	var out []string
	add := func(label, text string) {
		if text != "" {
			out = append(out, fmt.Sprintf("%-9s %s", label+":", report.Clean(text, 400)))
		}
	}
	if f.Bytes.Known() && f.Bytes.Bytes > 0 {
		add("memory", Figure(f.Bytes))
	}
	if f.Holder != nil {
		add("process", process(f.Holder.Process, at)+kinds(*f.Holder))
	}
	for i, c := range f.Candidates {
		if i == mostCandidates {
			add("maybe", fmt.Sprintf("and %d more", len(f.Candidates)-i))
			break
		}
		label := "maybe"
		if f.Holder != nil {
			label = "holder"
		}
		add(label, process(c.Process, at)+kinds(c))
	}
	if f.Searched {
		add("search", fmt.Sprintf("every process of the node was looked into; %d may hold it", len(f.Candidates)))
	}
	if f.Owner != nil {
		add("job", fmt.Sprintf("%s (%s), evidence: %s", f.Owner.JobName(), user(f), evidence(f)))
	}
	add("seen", f.Observed)
	add("unknown", f.Unknown)
	add("held", j.Why)
	return out
}

// mostCandidates is how many processes are listed for one finding; the record has them all.
const mostCandidates = 8

// user says whose the job is. Of one without a record nobody knows; its process's user is the next best.
func user(f finding.Finding) string {
	switch {
	case f.Unknown == "":
		return fmt.Sprintf("uid %d", f.Owner.UID)
	case f.Holder == nil || f.Holder.Gone || f.Holder.Why != "":
		return "uid unknown"
	}
	return fmt.Sprintf("uid unknown, its process runs as uid %d", f.Holder.UID)
}

// kinds adds what kind of holder a process is, where it runs, what it has open, and of a candidate its job.
func kinds(h finding.Holder) string {
	text := ""
	if len(h.Classes) > 0 {
		words := make([]string, len(h.Classes))
		for i, c := range h.Classes {
			words[i] = string(c)
		}
		text += ", " + strings.Join(words, " ")
	}
	for _, place := range []string{h.Service, h.Container} {
		if place != "" {
			text += ", in " + place
		}
	}
	if len(h.Open) > 0 {
		text += ", has open " + strings.Join(h.Open, " ")
	}
	if h.Owner != nil {
		text += fmt.Sprintf(", job %s by %s", h.Owner.JobName(), h.Owner.Level)
	}
	return text
}

// evidence words what blames a job; docs/findings.md explains the levels.
func evidence(f finding.Finding) string {
	why := map[attrib.Level]string{
		attrib.ByCgroup:      "it is in the job's cgroup",
		attrib.BySighting:    "an earlier hook saw it in the job's cgroup",
		attrib.ByExclusive:   "it started while the job had the card alone",
		attrib.ByEnvironment: "its environment names the job: a hint",
	}[f.Owner.Level]
	if f.Owner.Level == attrib.ByExclusive && (f.Holder == nil || f.Holder.Gone) {
		why = "it came while the job had the card alone"
	}
	if why == "" {
		return string(f.Owner.Level)
	}
	return fmt.Sprintf("%s (%s)", f.Owner.Level, why)
}

// process names a process for an admin; at turns time since boot into that of a clock.
func process(p attrib.Process, at func(time.Duration) time.Time) string {
	switch {
	case p.Gone:
		return fmt.Sprintf("PID %d, which no longer exists", p.PID)
	case p.Why != "":
		return fmt.Sprintf("PID %d, unknown: %s", p.PID, p.Why)
	}
	started := "at an unknown time"
	if p.Start > 0 {
		started = at(p.Start).Local().Format(timestamp)
	}
	return fmt.Sprintf("PID %d (%s), uid %d, state %s, started %s", p.PID, p.Name, p.UID, p.State, started)
}

// Figure words bytes in MiB, or says that they are unknown.
func Figure(f gpu.Figure) string {
	if !f.Known() {
		return "unknown"
	}
	return fmt.Sprintf("%d MiB", f.Bytes>>20)
}
