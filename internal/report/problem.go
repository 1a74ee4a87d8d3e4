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
	var out []string
	for _, f := range told {
		if f.Code != catalog.Trespass {
			out = append(out, s.problem(f, at)...)
		}
	}
	return append(out, s.trespasses(told)...)
}

// trespasses returns one warning: which GPUs the job used without being given them, and which it may use.
func (s Scene) trespasses(told []record.Finding) []string {
	var used []string
	for _, f := range told {
		if name := "a GPU"; f.Code == catalog.Trespass {
			if f.Index != nil {
				name = fmt.Sprintf("GPU %d", *f.Index)
			}
			if !slices.Contains(used, name) {
				used = append(used, name)
			}
		}
	}
	if len(used) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("WARNING: your job used %s of %s, which it was not given",
		strings.Join(used, ", "), s.Node),
		fmt.Sprintf("  It may use %s alone: leave CUDA_VISIBLE_DEVICES as Slurm sets it", s.place())}
}

func (s Scene) problem(f record.Finding, at moment) []string {
	where := s.Node + " GPU driver"
	if i := s.rank(f.GPU); i < len(s.Cards) {
		where = fmt.Sprintf("%s GPU %d", s.Node, s.Cards[i].Index)
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
		return []string{s.inUse(f, where, at), "  " + s.held(f, at)}
	case at == atEnd && (f.Code == catalog.Xid || f.Code == catalog.XidFatal):
		at = "during your job" // the kernel log is read from the job's start to where its end begins
	}
	state := cmp.Or(traits.Milder, "had a fault")
	return []string{fmt.Sprintf("WARNING: %s %s %s: %s", where, state, at, failing(f))}
}

func (s Scene) inUse(f record.Finding, where string, at moment) string {
	amount := "an unknown amount of memory"
	if f.Bytes.Known() {
		amount = gpu.Size(f.Bytes.Bytes)
	}
	switch {
	case at == atStart:
		return fmt.Sprintf("WARNING: %s already had %s in use %s", where, amount, at)
	case s.blamed(f):
		return fmt.Sprintf("WARNING: your job %sleft %s in use on %s", record.Probably(f.Owner), amount, where)
	}
	return fmt.Sprintf("WARNING: %s had %s in use %s", where, amount, at)
}

func (s Scene) held(f record.Finding, at moment) string {
	h, text := f.Holder, "Held by "
	mine := h != nil && s.yours(h, f.Owner)
	switch {
	case h == nil && len(f.Candidates) == 0:
		text = "No process is listed for it"
	case h == nil:
		text = "No process is listed for it; it may be held by " + s.candidates(f)
	case h.Gone && len(f.Candidates) == 0:
		text = "Its process no longer exists"
	case h.Gone:
		text = "Its process no longer exists; the GPU is open in " + s.candidates(f)
	case h.Why != "":
		text += "a process that could not be looked up"
	case mine && s.blamed(f) && at == atEnd:
		return "Process" + strings.TrimPrefix(name(h), "process") + " is still running" + conditionOf(*h)
	case !mine && h.UID == s.Job.UID && (f.Owner == nil || !f.Owner.Named()): // in a container a UID identifies no user
		text += "a process that is not known to be yours"
	case mine:
		text += name(h) + conditionOf(*h)
	default:
		text += "a process that is not yours"
	}
	if who := s.who(f); who != "" && !s.blamed(f) {
		text += ", " + who
	}
	return text
}

func name(h *record.Holder) string {
	return fmt.Sprintf("process %d (%s)", h.PID, safetext.Clean(h.Name, 32))
}

const mostCandidates = 3

// candidates names the reader's live processes that may hold unlisted memory, and only mentions those of others.
func (s Scene) candidates(f record.Finding) string {
	var own []string
	others := ""
	for _, c := range f.Candidates {
		if s.yours(&c, c.Owner) {
			own = append(own, name(&c)+conditionOf(c))
		} else {
			others = "a process that is not yours"
		}
	}
	if more := len(own) - mostCandidates; more > 0 {
		own = append(own[:mostCandidates], fmt.Sprintf("%d more of yours", more))
	}
	if others != "" {
		own = append(own, others)
	}
	return strings.Join(own, ", ")
}

// conditionOf returns what is unusual about a process, if its owner can do something about it.
func conditionOf(h record.Holder) string {
	words := map[record.Class]string{record.Stopped: "stopped: kill -9 ends it", record.Dying: "stuck or ending",
		record.MPS: "of CUDA MPS", record.Container: "in a container"}
	text := ""
	for _, c := range h.Classes {
		if words[c] != "" {
			text += " (" + words[c] + ")"
		}
	}
	return text
}

// who returns the owner in words, with the evidence: only a cgroup or a sighting is certain.
func (s Scene) who(f record.Finding) string {
	o := f.Owner
	switch {
	case o == nil && f.Code == catalog.Orphan:
		return "left by one of several jobs, it cannot be told which"
	case (o == nil || !o.Named()) && f.Holder != nil && f.Unknown == "" && !f.Holder.Gone:
		return "of no job that this node knows"
	case o == nil || !o.Named():
		return ""
	case f.Unknown != "":
		return "of a job that this node has no record of"
	}
	text := record.Probably(o) + "of "
	if f.Code == catalog.Dirty {
		text = record.Probably(o) + "left by "
	}
	switch {
	case o.Job == s.Job.ID:
		return text + "an earlier run of this job"
	case o.UID == s.Job.UID && o.Job != 0:
		return fmt.Sprintf("%syour job %d", text, o.Job)
	case s.Privacy == config.PrivacyAll && o.Job != 0:
		return fmt.Sprintf("%sjob %d of another user", text, o.Job)
	}
	return text + "another user's job"
}

// blamed reports whether this run left it: with the same job id, Dirty and Stray are of an earlier run.
func (s Scene) blamed(f record.Finding) bool {
	own := f.Owner != nil && f.Owner.Job == s.Job.ID && f.Unknown == ""
	return own && f.Code != catalog.Dirty && f.Code != catalog.Stray
}

// yours reports whether a process is the reader's: by its UID and, if it is known, by its job. In a container the UID
// alone identifies no user. An owner's UID is 0 if there is no record of its job.
func (s Scene) yours(h *record.Holder, owner *record.Owner) bool {
	switch {
	case h.UID != s.Job.UID:
		return false
	case owner != nil && owner.Named() && owner.UID != 0:
		return owner.UID == s.Job.UID
	}
	return !h.Apart()
}

// failing words a finding about a GPU's condition for users: no PIDs, which may be others', and no advice for admins.
func failing(f record.Finding) safetext.Safe {
	text := f.Observed
	switch f.Code {
	case catalog.Xid, catalog.XidFatal:
		row, known := catalog.LookupXid(f.Xid)
		switch {
		case f.Xid == 0:
			text = "the driver reported an error (Xid)"
		case known:
			text = fmt.Sprintf("the driver's error %s: %s", gpu.Error(f.Xid), row.Meaning)
		default:
			text = fmt.Sprintf("the driver's error %s: of an unknown kind", gpu.Error(f.Xid))
		}
	case catalog.Gap:
		text, _, _ = strings.Cut(text, ", after ")
	case catalog.Blocked:
		text = "a test could not get any of its free memory"
	case catalog.Broken:
		text, _, _ = strings.Cut(text, ";")
		text = "a test of CUDA failed: " + text
	}
	return safetext.Clean(text, Width)
}

func (s Scene) startAdvice(told []record.Finding) []string {
	free, known := s.leastFree()
	text := fmt.Sprintf("%s is free. Not enough? ", gpu.Size(free))
	if known == 0 {
		text = "How much is free is unknown. Not enough? "
	}
	if slices.ContainsFunc(told, func(f record.Finding) bool { return f.Code.Traits().Unusable && f.Unknown == "" }) {
		text = "GPU programs may fail on it. If yours does: "
	}
	return append([]string{fmt.Sprintf("  %ssbatch --exclude=%s", text, s.Node)}, s.details())
}

// details returns the last line of a report of a problem: where the rest is, and where to get help.
func (s Scene) details() string {
	text := fmt.Sprintf("  Details: bookend show %d on %s", s.Job.ID, s.Node)
	if s.Help != "" {
		text += "; help: " + s.Help
	}
	return text
}

// endAdvice returns what the owner of a job that leaves processes behind can do, and where to get help with the rest.
func (s Scene) endAdvice(told []record.Finding, ended bool) []string {
	var out []string
	fix, others := ended, false
	for _, f := range told {
		// Ending processes would not have prevented memory without a process or candidate.
		if s.blamed(f) && f.Code != catalog.Trespass && (f.Holder != nil || len(f.Candidates) > 0) &&
			!f.Code.Traits().Condition {
			fix = true
		} else {
			others = true
		}
	}
	if fix {
		out = append(out, "  Fix: stop background work before the script ends (wait, or "+Trap+")")
	}
	if s.Verdict.Action == config.Drain {
		out = append(out, "  The node takes no new jobs until an admin clears it")
	}
	if others || s.Verdict.Action == config.Drain || s.asked() || s.Help != "" && fix {
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
		if f.Code != catalog.Ended || f.Holder == nil || signal == "" || f.Holder.UID != s.Job.UID || ignored {
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
