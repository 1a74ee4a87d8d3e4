package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safetext"
)

// Trap is a batch script's line that ends what it started and keeps its exit status: the inner trap spares the shell.
const Trap = `trap 'trap "" TERM; kill 0' EXIT`

type moment string

const (
	atStart moment = "before your job started"
	atEnd   moment = "after your job"
	// meanwhile is before the job's end: the recorder saw it.
	meanwhile moment = "while your job ran"
)

func (s Scene) problems(told []record.Finding, at moment) []string {
	var out, trespassed []string
	for _, f := range told {
		if f.Code != catalog.Trespass {
			for i, line := range s.problem(f, at) {
				if i == 0 || !slices.Contains(out, line) { // advice on several errors stands once
					out = append(out, line)
				}
			}
			continue
		}
		name := "a GPU"
		if f.Index != nil {
			name = fmt.Sprintf("GPU %d", *f.Index)
		}
		if !slices.Contains(trespassed, name) {
			trespassed = append(trespassed, name)
		}
	}
	if len(trespassed) > 0 {
		out = append(out, fmt.Sprintf("WARNING: your job used %s of %s, which it was not given",
			strings.Join(trespassed, ", "), s.Run.Job.Node),
			fmt.Sprintf("  It may use %s alone: leave CUDA_VISIBLE_DEVICES as Slurm sets it", s.place()))
	}
	return out
}

func (s Scene) problem(f record.Finding, at moment) []string {
	where := s.Run.Job.Node + " GPU driver"
	if i := s.rank(f.GPU); i < len(s.Cards) {
		where = fmt.Sprintf("%s GPU %d", s.Run.Job.Node, s.Cards[i].Index)
	}
	traits := f.Code.Traits()
	if f.OnlyRecorded() {
		at = meanwhile
	}
	switch {
	case f.Unknown != "" && f.Holder == nil:
		return []string{fmt.Sprintf("WARNING: %s could not be checked %s: %s", where, at,
			safetext.Clean(f.Unknown, Width))}
	case f.Holder != nil && !traits.Condition, traits.Memory != "":
		return []string{s.reader().inUse(f, where, at), "  " + s.reader().held(f, at)}
	case f.Earlier:
		at = atStart
	case at == atEnd && (f.Code == catalog.Xid || f.Code == catalog.XidFatal || f.Code == catalog.KernelLog):
		at = during(s, f)
	}
	state := cmp.Or(traits.Milder, "had a fault")
	if broke(f) && f.Code == catalog.XidFatal {
		state = "failed"
	}
	lines := []string{fmt.Sprintf("WARNING: %s %s %s: %s", where, state, at, failing(f))}
	if at == atStart {
		return lines
	}
	return append(lines, s.fault(f)...)
}

// failing words a finding about a GPU's condition for users: no PIDs, which may be others', and no advice for admins.
func failing(f record.Finding) safetext.Safe {
	text := f.Observed
	switch f.Code {
	case catalog.Xid, catalog.XidFatal, catalog.KernelLog:
		text = errorOf(f)
		if f.Xid == 0 {
			text = "the driver reported an error (Xid)"
		}
	case catalog.Gap:
		text, _, _ = strings.Cut(text, ", after ")
	case catalog.Blocked:
		mode, _, byMode := strings.Cut(text, "; nvidia-smi")
		if text = mode; !byMode {
			text = "a test could not get any of its free memory"
		}
	case catalog.NoAnswer:
		text = "it does not answer the driver"
	case catalog.Broken:
		text, _, _ = strings.Cut(text, ";")
		text = "a test of CUDA failed: " + text
	}
	return safetext.Clean(text, Width)
}

func (s Scene) startAdvice(told []record.Finding) []string {
	text := "How much is free is unknown. Not enough? "
	if free, known := s.leastFree(); known > 0 {
		text = fmt.Sprintf("%s is free. Not enough? ", gpu.Size(free))
	}
	if slices.ContainsFunc(told, func(f record.Finding) bool { return f.Code.Traits().Unusable && f.Unknown == "" }) {
		text = "GPU programs may fail on it. If yours does: "
	}
	return []string{fmt.Sprintf("  %ssbatch --exclude=%s", text, s.Run.Job.Node), s.details()}
}

// details returns the last line of a report of a problem: where the rest is, and where to get help.
func (s Scene) details() string {
	text := fmt.Sprintf("  Details: bookend show %d on %s", s.Run.Job.ID, s.Run.Job.Node)
	if s.Help != "" {
		text += "; help: " + s.Help
	}
	return text
}

// endAdvice returns what the owner of a job that leaves processes behind can do, and where to get help with the rest.
func (s Scene) endAdvice(told []record.Finding, ended bool) []string {
	fix, details := ended, s.asked() || s.Verdict.Action == config.Drain
	for _, f := range told {
		// Ending processes would not have prevented memory without a process or candidate.
		left := s.reader().blamed(f) && f.Code != catalog.Trespass && (f.Holder != nil || len(f.Candidates) > 0) &&
			!f.Code.Traits().Condition
		fix, details = fix || left, details || !left
	}
	var out []string
	if fix {
		out = append(out, "  Fix: stop background work before the script ends (wait, or "+Trap+")")
	}
	if s.Verdict.Action == config.Drain {
		out = append(out, "  The node takes no new jobs until an admin clears it")
	}
	if details || s.Help != "" && fix {
		out = append(out, s.details())
	}
	return out
}

// ended returns a line for each process that clean-up ended, for its owner. What stayed is another finding.
func (s Scene) ended() []string {
	var out []string
	for i, f := range s.Findings {
		signal := f.Ended.Signal()
		ignored := s.Verdict.Of(i).Action == config.Ignore
		if f.Code != catalog.Ended || f.Holder == nil || signal == "" || f.Holder.UID != s.Run.Job.UID || ignored {
			continue
		}
		where := "outlived it"
		if f.Index != nil {
			where = fmt.Sprintf("was still on GPU %d", *f.Index)
		}
		out = append(out, fmt.Sprintf("WARNING: %s of your job %s and was ended (%s)", name(f.Holder), where, signal))
	}
	return out
}
