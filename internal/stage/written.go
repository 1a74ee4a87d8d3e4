package stage

import (
	"os"
	"slices"
	"strings"

	"bookend/internal/joblog"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// written is one of the outputs of a job, and where it lies: the user's claim. One whose place is not known has a Why.
type written struct {
	ledger.Output
	target joblog.Target
}

// Why it is not known where an output lies.
const (
	ofSrun      = "goes to srun's own terminal, a pipe, or files that cannot be told from here"
	onFirstNode = "is written on the job's first node"
	unnamed     = "its name cannot be told from here: "
)

// writtenBy are the outputs of a job, as far as they are known: its script's output, and errors where it keeps them apart, and
// what its steps write to. Drop is nil where no task hook left a record.
func writtenBy(job slurm.Job, drop *joblog.Drop) []written {
	facts := factsOf(job, drop)
	if drop == nil {
		drop = new(joblog.Drop)
	}
	var all []written
	if job.Batch || job.Stdout != "" || drop.Target.Path != "" {
		all = ofScript(*drop, facts)
	}
	for _, t := range drop.Steps {
		all = add(all, at(ledger.StepOutput, t))
	}
	if drop.Elsewhere || len(all) == 0 {
		all = append(all, written{Output: ledger.Output{Kind: ledger.StepOutput, Why: ofSrun}})
	}
	if drop.More > 0 {
		all = append(all, written{Output: ledger.Output{Kind: ledger.StepOutput, Why: "more files than a record holds"}})
	}
	return all
}

// ofScript are the output and the errors of a batch script. A task hook's own errors went to the file that it recorded.
func ofScript(drop joblog.Drop, facts joblog.Facts) []written {
	recorded := drop.Target.Path != ""
	if facts.Job.Stderr == "" && recorded {
		return []written{at(ledger.ScriptOutput, drop.Target)}
	}
	all := []written{expanded(ledger.ScriptOutput, outputPattern(facts.Job, drop.Array), facts)}
	switch {
	case facts.Job.Stderr == "":
		return all
	case recorded:
		return add(all, at(ledger.ScriptErrors, drop.Target))
	}
	return add(all, expanded(ledger.ScriptErrors, facts.Job.Stderr, facts))
}

func at(kind ledger.OutputKind, t joblog.Target) written {
	return written{ledger.NewOutput(kind, t.Path), t}
}

// add adds an output unless its file is known already.
func add(all []written, w written) []written {
	if w.Path != "" && slices.ContainsFunc(all, func(o written) bool { return o.target.Path == w.target.Path }) {
		return all
	}
	return append(all, w)
}

// expanded is the output that a pattern of the batch script's names.
func expanded(kind ledger.OutputKind, pattern string, facts joblog.Facts) written {
	if slurm.FirstHost(facts.Job.NodeList) != facts.Job.Node {
		return written{Output: ledger.Output{Kind: kind, Why: onFirstNode}}
	}
	path, err := joblog.Expand(pattern, facts)
	if err != nil {
		return written{Output: ledger.Output{Kind: kind, Why: unnamed + pattern[:min(len(pattern), maxPattern)]}}
	}
	return at(kind, joblog.Target{Path: path})
}

// maxPattern is how much of a pattern is shown that cannot be expanded, in bytes.
const maxPattern = 60

// factsOf are what a job's patterns are expanded with; drop is nil where no task hook left a record.
func factsOf(job slurm.Job, drop *joblog.Drop) joblog.Facts {
	f := joblog.Facts{Job: job}
	if name, err := os.Hostname(); err == nil {
		f.Host, _, _ = strings.Cut(name, ".")
	}
	if drop != nil {
		f.Told, f.Array, f.Name = true, drop.Array, drop.Name
	}
	return f
}

// outputPattern is what the job's output is named by. Up to 25.05 Slurm does not say it for sbatch's default.
func outputPattern(job slurm.Job, array slurm.ArrayTask) string {
	switch {
	case job.Stdout != "" || !job.Batch:
		return job.Stdout
	case array.Master != 0:
		return "slurm-%A_%a.out"
	}
	return "slurm-%j.out"
}
