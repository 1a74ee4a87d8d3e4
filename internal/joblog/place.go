package joblog

import (
	"cmp"
	"fmt"
	"slices"

	"bookend/internal/record"
	"bookend/internal/slurm"
)

// Place is what is known of where a job's output goes: from Slurm, and from what the job's task hooks left, which is
// the user's claim.
type Place struct {
	Job  slurm.Job
	Drop Drop
	Left bool // the task hooks left a valid drop
}

// PlaceOf returns the place of a job's output by its drop, as read; nil if it was not.
func PlaceOf(job slurm.Job, drop []byte) Place {
	p := Place{Job: job}
	if d, err := ParseDrop(drop); err == nil {
		p.Drop, p.Left = d, true
	}
	return p
}

// Target returns the file for the end report: the one that the TaskEpilog recorded, to which its stderr went. If the
// job has its errors in another file, or there was no TaskEpilog, it is what SLURM_JOB_STDOUT expands to.
func (p Place) Target() Target {
	recorded := p.Drop.Target
	if recorded.Path != "" && p.Job.Stderr == "" {
		return recorded
	}
	if out := p.expanded(record.ScriptOutput, p.pattern()); out.Path != "" {
		return out.Target
	}
	return recorded
}

// Stream is one of a job's outputs, and its path: the user's claim. One whose path is not known has a Why.
type Stream struct {
	record.Output
	Target Target
}

// Why the path of an output is not known.
const (
	ofSrun      = "goes to srun's own terminal, a pipe, or files that cannot be told from here"
	onFirstNode = "is on the job's first node: srun -w %s bookend why %d"
	unnamed     = "its name cannot be told from here: "
)

// Streams returns a job's outputs, as far as they are known: its script's output, and errors if these are apart, and
// what its steps write to. A task hook's own errors went to the file that it recorded.
func (p Place) Streams() (all []Stream) {
	drop, recorded := p.Drop, p.Drop.Target.Path != ""
	switch {
	case recorded && p.Job.Stderr == "":
		all = append(all, at(record.ScriptOutput, drop.Target))
	case p.Job.Batch || p.Job.Stdout != "" || recorded:
		all = append(all, p.expanded(record.ScriptOutput, p.pattern()))
		if recorded {
			all = add(all, at(record.ScriptErrors, drop.Target))
		} else if p.Job.Stderr != "" {
			all = add(all, p.expanded(record.ScriptErrors, p.Job.Stderr))
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
		return unplaced(kind, unnamed+pattern[:min(len(pattern), most)])
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
