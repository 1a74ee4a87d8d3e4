package answer

import (
	"fmt"
	"io"
	"strings"

	"bookend/internal/attrib"
)

// mostCandidates is how many processes are listed for one finding; the record has them all.
const mostCandidates = 8

// text writes one finding: what, whose by which evidence, and why it did not drain.
func (f Finding) text(w io.Writer) {
	place := ""
	switch {
	case f.Index != nil:
		place = fmt.Sprintf(" GPU %d", *f.Index)
	case f.UUID != "" && f.Minor != nil:
		place = fmt.Sprintf(" %s (/dev/nvidia%d)", name(f.UUID), *f.Minor)
	case f.UUID != "":
		place = " " + name(f.UUID)
	}
	fmt.Fprintf(w, "  %s%s: %s [%s]\n", inkOf(w).action(f.Action, string(f.Code)), place, f.Title, f.Action)
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(w, "    %-9s %s\n", label+":", cut(text))
		}
	}
	if f.Bytes != nil {
		line("memory", size(f.Bytes))
	}
	candidate := "maybe"
	if f.Process != nil {
		line("process", f.Process.text()+f.Process.kinds())
		candidate = "holder"
	}
	for i, c := range f.Maybe {
		if i == mostCandidates {
			line("maybe", fmt.Sprintf("and %d more", len(f.Maybe)-i))
			break
		}
		line(candidate, c.text()+c.kinds())
	}
	if f.Searched {
		line("search", fmt.Sprintf("every process of the node was looked into; %d may hold it", len(f.Maybe)))
	}
	if f.Owner != nil {
		user := "uid unknown"
		if f.Owner.UID != nil {
			user = fmt.Sprintf("uid %d", *f.Owner.UID)
		}
		line("job", fmt.Sprintf("%s (%s), evidence: %s", f.Owner.Job, user, f.evidence()))
	}
	line("seen", f.Observed)
	line("unknown", f.Undecided)
	line("held", f.Weakened)
}

// evidence words what blames a job; docs/findings.md explains the levels.
func (f Finding) evidence() string {
	level := f.Owner.Level
	why := map[attrib.Level]string{
		attrib.ByCgroup: "it is in the job's cgroup", attrib.BySighting: "an earlier hook saw it in the job's cgroup",
		attrib.ByExclusive:   "it came while the job had the GPU alone",
		attrib.ByEnvironment: "its environment names the job: a hint",
	}[attrib.Level(level)]
	if why == "" {
		return level
	}
	return fmt.Sprintf("%s (%s)", level, why)
}

// text names a process for an admin.
func (p Process) text() string {
	switch {
	case p.Gone:
		return fmt.Sprintf("PID %d, which no longer exists", p.PID)
	case p.UID == nil:
		return fmt.Sprintf("PID %d, unknown: %s", p.PID, p.Unknown["uid"])
	}
	return fmt.Sprintf("PID %d (%s), uid %d, state %s, started %s", p.PID, p.Name, *p.UID, p.State, stamp(p.StartedAt))
}

// kinds adds what kind of holder a process is, where it runs, what it has open, and of a candidate its job.
func (p Process) kinds() string {
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
