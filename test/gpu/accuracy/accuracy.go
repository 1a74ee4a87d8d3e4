package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"bookend/test/gpu/record"
)

//go:embed heads.md
var heads string

// head is the text above a page or a table: in heads.md, under "=== NAME".
func head(name string) string {
	_, after, found := strings.Cut(heads, "=== "+name+"\n")
	if !found {
		panic(fmt.Sprintf("heads.md has no %q", name))
	}
	text, _, _ := strings.Cut(after, "=== ")
	return text
}

// under puts rows below their head, and is empty without rows.
func under(name, rows string) string {
	if rows == "" {
		return ""
	}
	return head(name) + rows
}

// scenario is all runs of one, over all records.
type scenario struct {
	title, truth   string
	runs, controls []record.Run
}

// accuracy renders the page of scenarios, and of what programs say.
func accuracy(files []record.File, said string) string {
	files = slices.DeleteFunc(slices.Clone(files), func(f record.File) bool { return len(f.Runs) == 0 })
	var results, holes, machines strings.Builder
	for _, s := range byScenario(files) {
		results.WriteString(s.row())
		for _, r := range s.runs {
			holes.WriteString(holesIn(r))
		}
	}
	for _, f := range files {
		m := f.Machine
		fmt.Fprintf(&machines, "| %s | %d × %s | %s | %s | %s, %s | %s | %s |\n", f.Date.Format("2006-01-02 15:04"),
			m.GPUs, m.GPU, m.Driver, m.System, m.Slurm, m.Track, m.Torch, m.Bookend)
	}
	return head("accuracy") + under("result", results.String()) + said + under("holes", holes.String()) +
		under("machines", machines.String())
}

// gone are scenarios on record of what Bookend does otherwise by now: its health check looks at the node's other GPUs.
var gone = []string{"trespass", "trespass-unknown"}

// byScenario gathers runs in the order in which scenarios first appear.
func byScenario(files []record.File) (all []*scenario) {
	known := map[string]*scenario{}
	for _, f := range files {
		for _, r := range f.Runs {
			if slices.Contains(gone, r.Scenario) {
				continue
			}
			s := known[r.Scenario]
			if s == nil {
				s = &scenario{}
				known[r.Scenario], all = s, append(all, s)
			}
			s.title, s.truth = r.Title, r.Truth // the latest wording
			if r.Control != "" {
				s.controls = append(s.controls, r)
			} else {
				s.runs = append(s.runs, r)
			}
		}
	}
	return all
}

func (s *scenario) row() string {
	if len(s.runs) == 0 {
		return ""
	}
	var verdicts, wrong []string
	right, caught := 0, 0
	for _, r := range s.runs {
		if r.Outcome == record.Right {
			right++
		} else {
			wrong = append(wrong, complaint(r))
		}
		if v := verdict(r); !slices.Contains(verdicts, v) {
			verdicts = append(verdicts, v)
		}
	}
	for _, c := range s.controls {
		if c.AsItShould() {
			caught++
		}
	}
	noticed := "-"
	if len(s.controls) > 0 {
		noticed = fmt.Sprintf("%d of %d", caught, len(s.controls))
	}
	count := strings.Join(append([]string{fmt.Sprintf("%d of %d", right, len(s.runs))}, wrong...), "; ")
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", plain(s.title), plain(s.truth), count, noticed,
		strings.Join(verdicts, " *or* "))
}

// plain is a title or truth in today's words: records keep those of their day.
func plain(text string) string {
	return strings.NewReplacer("cards", "GPUs", "card", "GPU", "Nobody else", "No other process", "nobody else",
		"no other process", "nobody's", "no job's", "Nobody", "No one", "nobody", "no one", "somebody", "a process",
		"by itself", "alone", "beside ", "next to ", "beside,", "next to it,").Replace(text)
}

// verdict is what the ends of the run's jobs, or its health checks, were said to be, and what followed.
func verdict(r record.Run) string {
	var starts, ends []string
	for _, j := range r.Jobs {
		starts = append(starts, endOf("start", read[ending](j.Start), false))
		ends = append(ends, endOf("end", read[ending](j.End), j.State == "FAILED"))
	}
	for _, c := range r.HealthChecks {
		ends = append(ends, endOf("health check", ending{Findings: read[[]found](c.Findings)}, false))
	}
	all := slices.Compact(slices.DeleteFunc(append(starts, ends...), func(text string) bool { return text == "" }))
	return cmp.Or(strings.Join(all, "; "), "clean")
}

// ending is what the page has of one end of a job. Older records have the exit code of its verdict in a field of its own.
type ending struct {
	Findings  []found
	Exit      int
	Verdict   struct{ Exit int }
	Diagnosis struct {
		Causes []struct{ Name, Answer string }
	}
}

type found struct{ Code, Unknown string }

// read reads what it knows of a part of a record, nothing where that is missing.
func read[T any](part json.RawMessage) (value T) {
	_ = json.Unmarshal(part, &value) // the file was read as JSON before
	return value
}

// endOf names the codes of one end, each once, with the causes of a failed job's shortage and the exit code of a drain.
func endOf(name string, e ending, failed bool) string {
	var codes []string
	for _, f := range e.Findings {
		code := f.Code
		if f.Unknown != "" {
			code += " (unknown)"
		}
		codes = append(codes, code)
	}
	for _, c := range e.Diagnosis.Causes {
		if failed && c.Answer == "yes" {
			codes = append(codes, "cause: "+c.Name)
		}
	}
	slices.Sort(codes)
	if codes = slices.Compact(codes); len(codes) == 0 {
		return ""
	}
	text := name + ": " + strings.Join(codes, ", ")
	if exit := cmp.Or(e.Exit, e.Verdict.Exit); exit != 0 {
		text += fmt.Sprintf(", drain, exit %d", exit)
	}
	return text
}

// complaint is the first thing about a run that was not right.
func complaint(r record.Run) string {
	for _, c := range r.Checks {
		if !c.Right {
			return fmt.Sprintf("%s: %s: want `%s`, got `%s`", r.Outcome, c.What, oneLine(c.Want), oneLine(c.Got))
		}
	}
	return fmt.Sprintf("%s: %s", r.Outcome, oneLine(r.Problem))
}

// holesIn are the rows of what was measured of another process's holes.
func holesIn(r record.Run) string {
	var b strings.Builder
	for _, t := range r.Tests {
		if t.Chunk > 0 {
			probe := read[struct{ Free, Largest uint64 }](t.Probe)
			fmt.Fprintf(&b, "| %d KiB | %d MiB | %d MiB | %d MiB |\n", t.Chunk>>10, t.Kept>>20, probe.Free>>20,
				probe.Largest>>20)
		}
	}
	return b.String()
}

// oneLine cuts a text so that it ends neither a code span nor a table's cell.
func oneLine(text string) string {
	text = strings.NewReplacer("`", "'", "|", "¦").Replace(strings.Join(strings.Fields(text), " "))
	if len(text) > 300 {
		text = text[:300] + "..."
	}
	return text
}
