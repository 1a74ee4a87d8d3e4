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

func (s Scene) problems(found []record.Finding, at moment) (out []string) {
	for _, g := range s.groups(found, at) {
		if g.finding.Code == catalog.Trespass {
			continue
		}
		for i, line := range s.problem(*g, at) {
			if i == 0 || !slices.Contains(out, line) { // advice on several errors stands once
				out = append(out, line)
			}
		}
	}
	return append(out, trespasses(s, found)...)
}

// trespasses returns the lines about the GPUs that the job used and was not given.
func trespasses(s Scene, found []record.Finding) []string {
	var names []string
	for _, f := range found {
		name := "a GPU"
		if f.Index != nil {
			name = fmt.Sprintf("GPU %d", *f.Index)
		}
		if f.Code == catalog.Trespass && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("WARNING: your job used %s of %s, which it was not given", strings.Join(names, ", "),
		s.Run.Job.Node), "  It may use " + s.place() + " alone: leave CUDA_VISIBLE_DEVICES as Slurm sets it"}
}

func (s Scene) problem(g group, at moment) []string {
	f, where := g.finding, s.Run.Job.Node+" "+g.place("GPU driver")
	traits := f.Code.Traits()
	if f.OnlyRecorded() {
		at = meanwhile
	}
	switch {
	case f.Unknown != "" && f.Holder == nil:
		return []string{fmt.Sprintf("WARNING: %s could not be checked %s: %s", where, at,
			safetext.Clean(f.Unknown, Width))}
	case aboutMemory(f):
		return []string{s.reader().inUse(f, where, at), "  " + s.reader().held(g, at)}
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

// aboutMemory reports a finding about memory in use, or about a process that uses some.
func aboutMemory(f record.Finding) bool {
	traits := f.Code.Traits()
	return (f.Unknown == "" || f.Holder != nil) && (f.Holder != nil && !traits.Condition || traits.Memory != "")
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
	case catalog.Bits:
		text = "a test read other bits from its memory than it had written"
	case catalog.Broken:
		text, _, _ = strings.Cut(text, ";")
		text = "a test of CUDA failed: " + text
	}
	return safetext.Clean(text, Width)
}

func (s Scene) startAdvice(found []record.Finding) []string {
	text := "How much is free is unknown. Not enough? "
	if free, known := leastFree(s); known > 0 {
		text = fmt.Sprintf("%s is free. Not enough? ", gpu.Size(free))
	}
	if slices.ContainsFunc(found, func(f record.Finding) bool { return f.Code.Traits().Unusable && f.Unknown == "" }) {
		text = "GPU programs may fail on it. If yours does: "
	}
	return []string{fmt.Sprintf("  %ssbatch --exclude=%s", text, s.Run.Job.Node), s.details()}
}

// details returns the last line of a report of a problem: where the rest is, and where to get help.
func (s Scene) details() string {
	text := fmt.Sprintf("  For your admin: bookend show %d (on %s)", s.Run.Job.ID, s.Run.Job.Node)
	if s.Help != "" {
		text += "; help: " + s.Help
	}
	return text
}

// endAdvice returns what the owner of a job that leaves processes behind can do, and where to get help with the rest.
func (s Scene) endAdvice(found []record.Finding, ended bool) []string {
	var fixes []string
	if ended {
		fixes = []string{s.reader().fix(nil, true)}
	}
	details := s.asked() || s.Verdict.Action == config.Drain
	for _, f := range found {
		// Ending processes would not have prevented memory without a process or candidate.
		left := s.reader().blamed(f) && f.Code != catalog.Trespass && (f.Holder != nil || len(f.Candidates) > 0) &&
			!f.Code.Traits().Condition
		text, perhaps := s.reader().fix(f.Holder, left), !left && s.reader().begunInContainer(f)
		if perhaps {
			text = "if you started the container, " + text
		}
		if (left || perhaps) && !slices.Contains(fixes, text) {
			fixes = append(fixes, text)
		}
		details = details || !left
	}
	var out []string
	for _, text := range fixes {
		out = append(out, "  Fix: "+text)
	}
	if s.Verdict.Action == config.Drain {
		out = append(out, "  The node takes no new jobs until an admin clears it")
	}
	if details || s.Help != "" && len(fixes) > 0 {
		out = append(out, s.details())
	}
	return out
}

// ended returns a line for each process that clean-up ended, for its owner. What stayed is another finding.
func (s Scene) ended() []string {
	var ended []record.Finding
	for i, f := range s.Findings {
		ignored := s.Verdict.Of(i).Action == config.Ignore
		its := f.Code == catalog.Ended && f.Holder != nil && f.Holder.UID == s.Run.Job.UID
		if its && f.Ended.Signal() != "" && !ignored {
			ended = append(ended, f)
		}
	}
	var out []string
	for _, g := range s.grouped(ended, func(f record.Finding) string {
		return fmt.Sprint(f.Ended, f.Index == nil, f.Holder.Name)
	}) {
		was, f := g.of("was", "were"), g.finding
		where := was + " still on " + g.place("a GPU")
		if f.Index == nil {
			where = "outlived it"
		}
		const words = "WARNING: %s of your job %s and %s ended (%s)"
		out = append(out, fmt.Sprintf(words, g.name(), where, was, f.Ended.Signal()))
	}
	return out
}
