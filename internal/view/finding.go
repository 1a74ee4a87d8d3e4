package view

import (
	"fmt"
	"io"
	"strings"

	"bookend/internal/answer"
	"bookend/internal/attrib"
	"bookend/internal/report"
)

// about writes one finding: what, whose by which evidence, and why it did not drain.
func about(w io.Writer, f answer.Finding) {
	code := inkOf(w).action(f.Action, string(f.Code))
	fmt.Fprintf(w, "  %s%s: %s [%s]\n", code, place(f), f.Title, f.Action)
	for _, line := range details(f) {
		fmt.Fprintf(w, "    %-9s %s\n", line.label+":", report.Keep(line.text, textWidth))
	}
}

// place is the card of a finding: by Slurm's number where it is the job's, else by its id and device node.
func place(f answer.Finding) string {
	switch {
	case f.Index != nil:
		return fmt.Sprintf(" GPU %d", *f.Index)
	case f.UUID == "":
		return ""
	}
	text := " " + string(report.Keep(f.UUID, nameWidth))
	if f.Minor != nil {
		text += fmt.Sprintf(" (/dev/nvidia%d)", *f.Minor)
	}
	return text
}

// labelled is one line of a finding.
type labelled struct{ label, text string }

func details(f answer.Finding) (out []labelled) {
	add := func(label, text string) {
		if text != "" {
			out = append(out, labelled{label, text})
		}
	}
	if f.Bytes != nil {
		add("memory", mib(f.Bytes))
	}
	candidate := "maybe"
	if f.Process != nil {
		add("process", process(*f.Process)+kinds(*f.Process))
		candidate = "holder"
	}
	for i, c := range f.Maybe {
		if i == mostCandidates {
			add("maybe", fmt.Sprintf("and %d more", len(f.Maybe)-i))
			break
		}
		add(candidate, process(c)+kinds(c))
	}
	if f.Searched {
		add("search", fmt.Sprintf("every process of the node was looked into; %d may hold it", len(f.Maybe)))
	}
	if f.Owner != nil {
		add("job", fmt.Sprintf("%s (%s), evidence: %s", f.Owner.Job, user(f), evidence(f)))
	}
	add("seen", f.Observed)
	add("unknown", f.Undecided)
	add("held", f.Weakened)
	return out
}

// mostCandidates is how many processes are listed for one finding; the record has them all.
const mostCandidates = 8

// user says whose the job is. Of one without a record nobody knows; its process's user is the next best.
func user(f answer.Finding) string {
	switch {
	case f.Owner.UID != nil:
		return fmt.Sprintf("uid %d", *f.Owner.UID)
	case f.Process == nil || f.Process.UID == nil:
		return "uid unknown"
	}
	return fmt.Sprintf("uid unknown, its process runs as uid %d", *f.Process.UID)
}

// kinds adds what kind of holder a process is, where it runs, what it has open, and of a candidate its job.
func kinds(p answer.Process) string {
	text := ""
	if len(p.Classes) > 0 {
		text += ", " + strings.Join(p.Classes, " ")
	}
	for _, place := range []string{p.Service, p.Container} {
		if place != "" {
			text += ", in " + place
		}
	}
	if len(p.Open) > 0 {
		text += ", has open " + strings.Join(p.Open, " ")
	}
	if p.Owner != nil {
		text += fmt.Sprintf(", job %s by %s", p.Owner.Job, p.Owner.Level)
	}
	return text
}

// levels word what blames a job; docs/findings.md explains them.
var levels = map[attrib.Level]string{
	attrib.ByCgroup:      "it is in the job's cgroup",
	attrib.BySighting:    "an earlier hook saw it in the job's cgroup",
	attrib.ByExclusive:   "it started while the job had the card alone",
	attrib.ByEnvironment: "its environment names the job: a hint",
}

func evidence(f answer.Finding) string {
	level := attrib.Level(f.Owner.Level)
	why := levels[level]
	if level == attrib.ByExclusive && (f.Process == nil || f.Process.Gone) {
		why = "it came while the job had the card alone"
	}
	if why == "" {
		return f.Owner.Level
	}
	return fmt.Sprintf("%s (%s)", level, why)
}

// process names a process for an admin.
func process(p answer.Process) string {
	switch {
	case p.Gone:
		return fmt.Sprintf("PID %d, which no longer exists", p.PID)
	case p.UID == nil:
		return fmt.Sprintf("PID %d, unknown: %s", p.PID, p.Unknown["uid"])
	}
	started := "at an unknown time"
	if p.StartedAt != nil {
		started = p.StartedAt.Local().Format(timestamp)
	}
	return fmt.Sprintf("PID %d (%s), uid %d, state %s, started %s", p.PID, p.Name, *p.UID, p.State, started)
}
