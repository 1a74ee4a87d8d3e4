package answer

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
)

// Text writes runs, a line each, the newest first.
func (h History) Text(w io.Writer) {
	if len(h.Runs) == 0 {
		fmt.Fprintf(w, "node %s has no matching runs\n", name(h.Node))
		return
	}
	rows := []string{"LAST SEEN\tJOB\tUSER\tGPU\tRAN\tPEAK\tBUSY\tFOUND"}
	for _, r := range h.Runs {
		seen := r.EndedAt
		if seen == nil {
			seen = r.BeganAt
		}
		rows = append(rows, strings.Join([]string{stamp(seen), name(r.Job), owner(r.User, r.UID), indexes(r.Cards),
			r.ran(), r.peak(), r.busy(), r.found(inkOf(w))}, "\t"))
	}
	table(w, rows...)
	if h.More > 0 {
		fmt.Fprintf(w, "older runs not shown: %d (--limit 0 shows all)\n", h.More)
	}
}

func indexes(cards []Card) string {
	list := make([]string, len(cards))
	for i, c := range cards {
		list[i] = c.number()
	}
	if len(list) == 0 {
		return "?"
	}
	return strings.Join(list, ",")
}

// name is a job's name as its user knows it, with the id that Slurm's logs have where that is another: "1234_7 (1240)".
func (h RunHead) name() string {
	if id := fmt.Sprint(h.JobID); h.Job != id {
		return name(h.Job) + " (" + id + ")"
	}
	return h.Job
}

// owner is a user by name, else by number.
func owner(user string, uid uint32) string {
	if user != "" {
		return name(user)
	}
	return fmt.Sprintf("uid %d", uid)
}

func (h RunHead) ran() string {
	switch {
	case h.State == Running:
		return "runs"
	case h.Seconds == nil:
		return "?"
	}
	return (time.Duration(*h.Seconds) * time.Second).String()
}

// peak and busy are what was recorded, with - for nothing.
func (s Summary) peak() string {
	if s.PeakBytes == nil {
		return "-"
	}
	return size(s.PeakBytes)
}

func (s Summary) busy() string {
	if s.BusyPercent == nil {
		return "-"
	}
	return fmt.Sprintf("%d %%", *s.BusyPercent)
}

// found words what both ends of a run found, and how the job itself ended where it failed.
func (s Summary) found(i ink) string {
	var parts []string
	for _, at := range []struct {
		name    string
		verdict *finding.Verdict
	}{{"end", s.End}, {"start", s.Start}} {
		if codes := s.codesAt(i, at.name); codes != "" {
			parts = append(parts, map[string]string{"start": "at start "}[at.name]+codes)
		}
		switch v := at.verdict; {
		case v == nil:
		case v.Exit != 0:
			parts = append(parts, i.in(red, fmt.Sprintf("drained (%d)", v.Exit)))
		case v.Held != "":
			parts = append(parts, i.in(yellow, fmt.Sprintf("would drain (%s)", cut(v.Held))))
		}
	}
	switch {
	case s.State == Lost:
		parts = append(parts, "no end on record")
	case len(parts) == 0 && s.State == Ended:
		parts = append(parts, i.in(green, "clean"))
	}
	switch {
	case s.Signal != nil && *s.Signal != 0:
		parts = append(parts, fmt.Sprintf("job failed (signal %d)", *s.Signal))
	case s.Exit != nil && *s.Exit != 0:
		parts = append(parts, fmt.Sprintf("job failed (exit %d)", *s.Exit))
	}
	return strings.Join(parts, "; ")
}

// codesAt are the findings of one end, each code once, without those that policy ignores or only notes.
func (s Summary) codesAt(i ink, end string) string {
	var words []string
	var said []code.Code
	for _, f := range s.Findings {
		if f.At != end || f.Action == config.Ignore || f.Action == config.Note || slices.Contains(said, f.Code) {
			continue
		}
		said = append(said, f.Code)
		word := i.action(f.Action, name(string(f.Code)))
		if f.Bytes.Known() && f.Bytes.Bytes > 0 {
			word += " " + Figure(f.Bytes)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// Text writes the GPUs on which the same was found again and again.
func (l Offenders) Text(w io.Writer) {
	if len(l.Cards) == 0 {
		fmt.Fprintf(w, "on no GPU of node %s was the same found in two "+
			"of %s\n", name(l.Node), count(l.Runs, "run", "s"))
		return
	}
	i := inkOf(w)
	for _, c := range l.Cards {
		fmt.Fprintf(w, "%s  %s\n", i.in(bold, "GPU "+c.number()), c.identity())
		for _, r := range c.Codes {
			fmt.Fprintf(w, "  %s: %s\n", i.in(yellow, string(r.Code)), name(r.Title))
			fmt.Fprintf(w, "    in %d of its %s, %s of %s, %s to %s\n", r.Runs, count(c.Runs, "run", "s"),
				count(r.Jobs, "job", "s"), count(r.Users, "user", "s"), stamp(r.FirstAt), stamp(r.LastAt))
			fmt.Fprintf(w, "    %s\n", suspects[r.Suspect])
		}
	}
}

// suspects say where to look first.
var suspects = map[Suspect]string{
	SuspectCard: "several users met it: look at the GPU and the node (nvidia-smi -q, dcgmi diag, the kernel's log)",
	SuspectUser: "always the same user: look at what they run before you doubt the GPU",
	SuspectNode: "no job's process: look at what else runs on the node",
}
