package report

import (
	"fmt"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safetext"
)

// reader is the owner of a run's job, who gets its report.
type reader struct {
	run     record.Run
	privacy config.Privacy
}

func (s Scene) reader() reader { return reader{s.Run, s.Privacy} }

func (r reader) inUse(f record.Finding, where string, at moment) string {
	amount := "an unknown amount of memory"
	if f.Bytes.Known() {
		amount = gpu.Size(f.Bytes.Bytes)
	}
	switch {
	case at == atStart:
		return fmt.Sprintf("WARNING: %s already had %s in use %s", where, amount, at)
	case r.blamed(f):
		return fmt.Sprintf("WARNING: your job %sleft %s in use on %s", record.Probably(f.Owner), amount, where)
	}
	return fmt.Sprintf("WARNING: %s had %s in use %s", where, amount, at)
}

func (r reader) held(f record.Finding, at moment) string {
	h, text := f.Holder, "Held by "
	mine := h != nil && r.owns(h, f.Owner)
	switch {
	case h == nil && len(f.Candidates) == 0:
		text = "No process is listed for it"
	case h == nil:
		text = "No process is listed for it; it may be held by " + r.candidates(f)
	case h.Gone && len(f.Candidates) == 0:
		text = "Its process no longer exists"
	case h.Gone:
		text = "Its process no longer exists; the GPU is open in " + r.candidates(f)
	case h.Why != "":
		text += "a process that could not be looked up"
	case mine && r.blamed(f) && at == atEnd:
		return "Process" + strings.TrimPrefix(name(h), "process") + " is still running" + conditionOf(*h)
	case mine:
		text += name(h) + conditionOf(*h)
	case h.UID == r.run.Job.UID && !named(f.Owner): // in a container a UID identifies no user
		text += "a process that is not known to be yours"
	default:
		text += "a process that is not yours"
	}
	if origin := r.origin(f); origin != "" && !r.blamed(f) {
		text += ", " + origin
	}
	return text
}

func name(h *record.Holder) string {
	return fmt.Sprintf("process %d (%s)", h.PID, safetext.Clean(h.Name, 32))
}

func named(o *record.Owner) bool { return o != nil && o.Named() }

const mostCandidates = 3

// candidates names the reader's live processes that may hold unlisted memory, and only mentions those of others.
func (r reader) candidates(f record.Finding) string {
	var own, others []string
	for _, c := range f.Candidates {
		if r.owns(&c, c.Owner) {
			own = append(own, name(&c)+conditionOf(c))
		} else {
			others = []string{"a process that is not yours"}
		}
	}
	if more := len(own) - mostCandidates; more > 0 {
		own = append(own[:mostCandidates], fmt.Sprintf("%d more of yours", more))
	}
	return strings.Join(append(own, others...), ", ")
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

// origin returns the owner in words, with the evidence: only a cgroup or a sighting is certain.
func (r reader) origin(f record.Finding) string {
	o := f.Owner
	switch {
	case o == nil && f.Code == catalog.Orphan:
		return "left by one of several jobs, it cannot be told which"
	case !named(o) && f.Holder != nil && f.Unknown == "" && !f.Holder.Gone:
		return "of no job that this node knows"
	case !named(o):
		return ""
	case f.Unknown != "":
		return "of a job that this node has no record of"
	}
	text := record.Probably(o) + "of "
	if f.Code == catalog.Dirty {
		text = record.Probably(o) + "left by "
	}
	switch {
	case o.Job == r.run.Job.ID:
		return text + "an earlier run of this job"
	case o.UID == r.run.Job.UID && o.Job != 0:
		return fmt.Sprintf("%syour job %d", text, o.Job)
	case r.privacy == config.PrivacyAll && o.Job != 0:
		return fmt.Sprintf("%sjob %d of another user", text, o.Job)
	}
	return text + "another user's job"
}

// blamed reports whether this run left it: with the same job id, Dirty and Stray are of an earlier run.
func (r reader) blamed(f record.Finding) bool {
	own := f.Owner != nil && f.Owner.Job == r.run.Job.ID && f.Unknown == ""
	return own && f.Code != catalog.Dirty && f.Code != catalog.Stray
}

// owns reports whether a process is the reader's: by its UID and, if it is known, by its job. In a container the UID
// alone identifies no user. An owner's UID is 0 if there is no record of its job.
func (r reader) owns(h *record.Holder, owner *record.Owner) bool {
	uid := r.run.Job.UID
	if named(owner) && owner.UID != 0 {
		return h.UID == uid && owner.UID == uid
	}
	return h.UID == uid && !h.Apart()
}
