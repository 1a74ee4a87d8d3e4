package view

import (
	"fmt"
	"io"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
)

// findingText writes one finding of an end: what was found, the owner with the evidence, and why it did not drain.
func findingText(w io.Writer, f finding.Finding, judged finding.Judged, e ledger.End) {
	place := ""
	switch {
	case f.Index != nil:
		place = fmt.Sprintf(" GPU %d", *f.Index)
	case f.GPU != "":
		place = " " + string(f.GPU)
	}
	entry, _ := code.Lookup(f.Code)
	fmt.Fprintf(w, "  %s%s: %s [%s]\n", f.Code, place, entry.Title, judged.Action)
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(w, "    %-9s %s\n", label+":", text)
		}
	}
	if f.Bytes.Known() && f.Bytes.Bytes > 0 {
		line("memory", Figure(f.Bytes))
	}
	candidate := "maybe"
	if f.Holder != nil {
		line("process", holderText(*f.Holder, e))
		candidate = "holder"
	}
	text := func(h finding.Holder) string { return holderText(h, e) }
	for _, holder := range some(f.Candidates, 8, "and %d more", text) {
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
	line("doubt", judged.Why)
}

// evidence describes each level of attribution; docs/holders.md explains them.
var evidence = map[finding.Level]string{
	finding.ByCgroup:      " (it is in the job's cgroup)",
	finding.BySighting:    " (an earlier hook saw it in the job's cgroup)",
	finding.Recorded:      " (the recorder saw it while the job ran)",
	finding.ByExclusive:   " (it came while the job had the GPU alone)",
	finding.ByEnvironment: " (its environment names the job: a hint)",
}

func processText(p finding.Process, began time.Time) string {
	switch {
	case p.Reused:
		return fmt.Sprintf("PID %d, which another process has by now", p.PID)
	case p.Gone:
		return fmt.Sprintf("PID %d, which no longer exists", p.PID)
	case p.Why != "":
		return fmt.Sprintf("PID %d, unknown: %s", p.PID, p.Why)
	}
	return fmt.Sprintf("PID %d (%s), uid %d, state %s, started %s", p.PID, p.Name, p.UID, p.State, stamp(began))
}

// holderText describes a process that an end found: its class, where it runs, its open files, and a candidate's job.
func holderText(h finding.Holder, e ledger.End) string {
	began := time.Time{}
	if h.Start > 0 {
		began = e.Clock(h.Start)
	}
	text := processText(h.Process, began)
	if len(h.Classes) > 0 {
		text += ", " + strings.Join(each(h.Classes, func(c finding.Class) string { return string(c) }), " ")
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
