package joblog

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"bookend/internal/record"
	"bookend/internal/slurm"
)

// Place is what is known of where a job's output goes: from Slurm, from what the job's task hooks left, and from what
// the recorder saw. The last two are the user's claims.
type Place struct {
	Job  slurm.Job
	Drop Drop
	Left bool // the task hooks left a valid drop
	Seen slurm.OutputFiles
}

// PlaceOf returns the place of a job's output by its drop, as read, nil if it was not; and by what the recorder saw.
func PlaceOf(job slurm.Job, drop []byte, seen slurm.OutputFiles) Place {
	p := Place{Job: job, Seen: seen}
	if d, err := ParseDrop(drop); err == nil {
		p.Drop, p.Left = d, true
	}
	return p
}

// Target returns the file for the end report: the one to which the TaskEpilog's stderr went, or Slurm's own messages in
// the job. If the job has its errors in another file, or neither is known, it is the file of the script's output.
func (p Place) Target() Target {
	errors := p.errors()
	if errors.Path != "" && p.Job.Stderr == "" {
		return errors
	}
	if out := p.output(); out.Path != "" {
		return out.Target
	}
	return errors
}

// UnknownFile is what became of the report of a job that is Unnamed, in the log.
const UnknownFile = "unknown-file"

// Unnamed reports whether a batch job's file is not known on the node that writes to it, and so gets no report.
func (p Place) Unnamed() bool {
	return p.Job.Batch && p.Job.FirstHost() == p.Job.Node && p.Target().Path == ""
}

// errors returns the file of the script's errors, or of all its output; zero if it was not seen.
func (p Place) errors() Target {
	if p.Drop.Target.Path != "" {
		return p.Drop.Target
	}
	return Target(p.Seen.Errors)
}

// output returns the file of the script's output: what SLURM_JOB_STDOUT expands to or, without it, what was seen.
func (p Place) output() Stream {
	out := p.expanded(record.ScriptOutput, p.pattern())
	if seen := Target(p.Seen.Output); seen.Path != "" && (out.Path == "" || p.Job.Stdout == "") {
		return at(record.ScriptOutput, seen)
	}
	return out
}

// Stream is one of a job's outputs, and its path: the user's claim. One whose path is not known has a Why.
type Stream struct {
	record.Output
	Target Target
}

// Why the path of an output is not known.
const (
	ofSrun      = "goes to srun's own terminal, a pipe, or files that cannot be told from here"
	ofArray     = "is also that of other tasks of its array: -o with %a names one for each"
	onFirstNode = "is on the job's first node: srun -w %s bookend why %d"
)

// namesTask matches a pattern that names another file for each task of an array.
var namesTask = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`%[0-9]*[ajJS]`) })

// Streams returns a job's known outputs: its script's, the script's errors if these are apart, and what steps write to.
func (p Place) Streams() (all []Stream) {
	drop, errors := p.Drop, p.errors()
	switch {
	case errors.Path != "" && p.Job.Stderr == "":
		all = append(all, at(record.ScriptOutput, errors))
	case p.Job.Batch || p.Job.Stdout != "" || errors.Path != "":
		all = append(all, p.output())
		if errors.Path != "" {
			all = add(all, at(record.ScriptErrors, errors))
		} else if p.Job.Stderr != "" {
			all = add(all, p.expanded(record.ScriptErrors, p.Job.Stderr))
		}
	}
	patterns := map[record.OutputKind]string{record.ScriptOutput: p.pattern(), record.ScriptErrors: p.Job.Stderr}
	for i, s := range all {
		if s.Path != "" && drop.Array.Master != 0 && !namesTask().MatchString(patterns[s.Kind]) {
			all[i] = unplaced(s.Kind, ofArray)
		}
	}
	for _, t := range drop.Steps {
		all = add(all, at(record.StepOutput, t))
	}
	if drop.Elsewhere || len(all) == 0 {
		all = append(all, unplaced(record.StepOutput, ofSrun))
	}
	return all
}

// maxShown is the longest path of an output that is kept, in bytes.
const maxShown = 200

func at(kind record.OutputKind, t Target) Stream {
	const cut = "..."
	path := t.Path
	if len(path) > maxShown {
		path = cut + path[len(path)-maxShown+len(cut):]
	}
	return Stream{record.Output{Kind: kind, Path: path}, t}
}

func unplaced(kind record.OutputKind, why string) Stream {
	return Stream{Output: record.Output{Kind: kind, Why: why}}
}

func add(all []Stream, w Stream) []Stream {
	if w.Path != "" && slices.ContainsFunc(all, func(o Stream) bool { return o.Target.Path == w.Target.Path }) {
		return all
	}
	return append(all, w)
}

func (p Place) expanded(kind record.OutputKind, pattern string) Stream {
	if first := p.Job.FirstHost(); first != p.Job.Node {
		return unplaced(kind, fmt.Sprintf(onFirstNode, cmp.Or(first, "NODE"), p.Job.ID))
	}
	path, err := p.expand(pattern)
	if err != nil {
		const most = 60 // bytes of a pattern that are shown
		return unplaced(kind, slurm.UnknownName+pattern[:min(len(pattern), most)])
	}
	return at(kind, Target{Path: path})
}

// pattern returns the pattern of the job's output file. Slurm may not give it for sbatch's default (slurm.TellsRun).
func (p Place) pattern() string {
	switch {
	case p.Job.Stdout != "" || !p.Job.Batch:
		return p.Job.Stdout
	case p.Drop.Array.Master != 0:
		return "slurm-%A_%a.out"
	}
	return "slurm-%j.out"
}

// Unlogged says how many runs on record ended with a report that is in no file, because its name was not known.
func Unlogged(runs []record.Run) string {
	hasFile := func(o record.Output) bool { return o.Path != "" && o.Kind != record.StepOutput }
	count := 0
	for _, r := range runs {
		end := r.Epilog()
		if end != nil && end.Report != "" && len(end.Outputs) > 0 && !slices.ContainsFunc(end.Outputs, hasFile) &&
			strings.HasPrefix(end.Outputs[0].Why, slurm.UnknownName) {
			count++
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("reports in no file (BKD-OUTPUT): %d", count)
}
