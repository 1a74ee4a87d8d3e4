package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bookend/test/gpu/runrecord"
)

// scenario is all runs of one, over all records.
type scenario struct {
	Name, Title string
	Runs        []runrecord.Run
	controls    []runrecord.Run
}

// gone are scenarios on record of what Bookend does otherwise by now: its health check looks at the node's other GPUs.
var gone = []string{"trespass", "trespass-unknown"}

// byScenario gathers runs in the order in which scenarios first appear.
func byScenario(files []runrecord.File) (all []*scenario) {
	known := map[string]*scenario{}
	for _, f := range files {
		for _, r := range f.Runs {
			if slices.Contains(gone, r.Scenario) {
				continue
			}
			s := known[r.Scenario]
			if s == nil {
				s = &scenario{Name: r.Scenario}
				known[r.Scenario], all = s, append(all, s)
			}
			s.Title = r.Title // the latest wording
			if r.Control != "" {
				s.controls = append(s.controls, r)
			} else {
				s.Runs = append(s.Runs, r)
			}
		}
	}
	return all
}

// count is how many runs are as they should be, of all.
func count(runs []runrecord.Run) string {
	right := slices.DeleteFunc(slices.Clone(runs), func(r runrecord.Run) bool { return !r.AsItShould() })
	return fmt.Sprintf("%d of %d", len(right), len(runs))
}

// machine is what came of all scenarios on one kind of machine.
type machine struct {
	Kind           string
	Scenarios      int
	Right, Noticed string
}

// Machines are the kinds of machines, in the order of their names.
func (f facts) Machines() (all []machine) {
	byKind := map[string][]runrecord.File{}
	for _, file := range f.Files {
		byKind[file.Machine.Kind()] = append(byKind[file.Machine.Kind()], file)
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		m, total := machine{Kind: kind}, scenario{}
		for _, s := range byScenario(byKind[kind]) {
			if len(s.Runs) > 0 {
				m.Scenarios++
			}
			total.Runs, total.controls = append(total.Runs, s.Runs...), append(total.controls, s.controls...)
		}
		m.Right, m.Noticed = count(total.Runs), total.Noticed()
		all = append(all, m)
	}
	return all
}

// setting is what the records of one kind of machine have in common, and when they were made.
type setting struct{ Kind, System, Records string }

// Played returns the settings of scenarios' runs.
func (f facts) Played() []setting {
	return settings(f.Files, func(file runrecord.File) bool { return len(file.Runs) > 0 }, func(m runrecord.Machine) string {
		return fmt.Sprintf("driver %s, %s, %s, %s, PyTorch %s", m.Driver, m.System, m.Slurm, m.Track, m.Torch)
	})
}

// Timed returns the settings of measured times.
func (f facts) Timed() []setting {
	return settings(f.Files, func(file runrecord.File) bool { return file.Timings != nil }, func(m runrecord.Machine) string {
		return fmt.Sprintf("driver %s, Linux %s, %s", m.Driver, m.Kernel, m.System)
	})
}

func settings(files []runrecord.File, wanted func(runrecord.File) bool, system func(runrecord.Machine) string) (all []setting) {
	for _, file := range files {
		if !wanted(file) {
			continue
		}
		s := setting{Kind: file.Machine.Kind(), System: system(file.Machine)}
		i := slices.IndexFunc(all, func(known setting) bool { return known.Kind == s.Kind && known.System == s.System })
		if i < 0 {
			i, all = len(all), append(all, s)
		} else {
			all[i].Records += "; "
		}
		all[i].Records += made(file)
	}
	return all
}

// made is when a record was made, of which Bookend, and a warning if its times cannot be trusted.
func made(file runrecord.File) string {
	text := fmt.Sprintf("%s of %s", file.Date.Format("2006-01-02 15:04"), file.Machine.Bookend)
	if t := file.Timings; t != nil {
		text += fmt.Sprintf(", %d rounds", t.Rounds)
		if !t.Idle {
			text += ", **the GPUs were not idle afterwards: do not trust these**"
		}
	}
	return text
}

// Right counts the runs that are, and complains of the others.
func (s *scenario) Right() string {
	text := count(s.Runs)
	for _, r := range s.Runs {
		if r.Outcome != runrecord.Right {
			text += "; " + complaint(r)
		}
	}
	return text
}

// Noticed counts the controls that were.
func (s *scenario) Noticed() string {
	if len(s.controls) == 0 {
		return "-"
	}
	return count(s.controls)
}

// Verdicts are those of the runs, each once.
func (s *scenario) Verdicts() string {
	var all []string
	for _, r := range s.Runs {
		if v := verdict(r); !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return strings.Join(all, " *or* ")
}

// plain is a title or truth in today's words: records keep those of their day.
func plain(text string) string {
	return strings.NewReplacer("cards", "GPUs", "card", "GPU", "Nobody else", "No other process", "nobody else",
		"no other process", "nobody's", "no job's", "Nobody", "No one", "nobody", "no one", "somebody", "a process",
		"by itself", "alone", "beside ", "next to ", "beside,", "next to it,").Replace(text)
}

// verdict is what the ends of the run's jobs, or its health checks, were said to be, and what followed.
func verdict(r runrecord.Run) string {
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
func complaint(r runrecord.Run) string {
	for _, c := range r.Checks {
		if !c.Right {
			return fmt.Sprintf("%s: %s: want `%s`, got `%s`", r.Outcome, c.What, oneLine(c.Want), oneLine(c.Got))
		}
	}
	return fmt.Sprintf("%s: %s", r.Outcome, oneLine(r.Problem))
}

// oneLine cuts a text so that it ends neither a code span nor a table's cell.
func oneLine(text string) string {
	text = strings.NewReplacer("`", "'", "|", "¦").Replace(strings.Join(strings.Fields(text), " "))
	if len(text) > 300 {
		text = text[:300] + "..."
	}
	return text
}
