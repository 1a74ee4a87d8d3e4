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

func (r reader) held(g group, at moment) string {
	f, text := g.finding, "Held by "
	h, many := f.Holder, fmt.Sprintf("%d processes", len(g.pids))
	mine := h != nil && r.owns(h, f.Owner)
	switch {
	case h == nil && len(f.Candidates) == 0:
		text = "No process is listed for it"
	case h == nil:
		text = "No process is listed for it; it may be held by " + r.candidates(f)
	case h.Gone && len(f.Candidates) == 0:
		text = g.of("Its process no longer exists", "Its processes no longer exist")
	case h.Gone:
		text = g.of("Its process no longer exists", "Its processes no longer exist")
		text += "; the GPU is open in " + r.candidates(f)
	case h.Why != "":
		text += g.of("a process", many) + " that could not be looked up"
	case mine && r.blamed(f) && at == atEnd:
		return sentence(g.name()) + g.of(" is", " are") + " still running" + conditionOf(*h)
	case mine:
		text += g.name() + conditionOf(*h)
	case at != atStart && r.begunInContainer(f):
		return text + g.of("a container", many+" in containers") + " started during your job"
	case h.UID == r.run.Job.UID && !named(f.Owner): // in a container a UID identifies no user
		text += g.of("a process that is", many+" that are") + " not known to be yours"
	default:
		text += g.of("a process that is", many+" that are") + " not yours"
	}
	if origin := r.origin(f); origin != "" && !r.blamed(f) {
		text += ", " + origin
	}
	return text
}

func sentence(text string) string {
	return strings.ToUpper(text[:min(1, len(text))]) + text[min(1, len(text)):]
}

func named(o *record.Owner) bool { return o != nil && o.Named() }

const mostCandidates = 3

// candidates names the reader's live processes that may hold unlisted memory, and only mentions those of others.
func (r reader) candidates(f record.Finding) string {
	var mine []record.Finding
	var own, others []string
	for _, c := range f.Candidates {
		if r.owns(&c, c.Owner) {
			mine = append(mine, record.Finding{Holder: &c})
		} else {
			others = []string{"a process that is not yours"}
		}
	}
	for _, g := range (Scene{}).grouped(mine, func(f record.Finding) string {
		return conditionOf(*f.Holder) + " " + f.Holder.Name
	}) {
		own = append(own, g.name()+conditionOf(*g.finding.Holder))
	}
	if more := len(own) - mostCandidates; more > 0 {
		own = append(own[:mostCandidates], fmt.Sprintf("%d more of yours", more))
	}
	return strings.Join(append(own, others...), ", ")
}

// conditionOf returns what is unusual about a process, if its owner can do something about it.
func conditionOf(h record.Holder) string {
	text := ""
	words := map[record.Class]string{record.Stopped: " (stopped: kill -9 ends it)", record.Dying: " (stuck or ending)"}
	for _, c := range h.Classes {
		text += words[c]
	}
	if k, is := catalog.HolderKindOf(kindOf(h)); is {
		text += " (" + k.Shown + ")"
	}
	return text
}

// kindOf returns the kind of a holder, by which the catalogue says what ends it; empty if it has none. A process
// chooses its name and its environment: they only select advice for its own user.
func kindOf(h record.Holder) string {
	engine, _, boxed := strings.Cut(h.Container, ":")
	_, known := catalog.HolderKindOf(engine)
	switch {
	case boxed && known:
		return engine
	case h.Apart(), slices.Contains(h.Classes, record.Container):
		return "container"
	case slices.Contains(h.Classes, record.MPS):
		return "mps"
	case strings.HasPrefix(h.Name, "ray::"), h.Name == "raylet":
		return "ray"
	case h.Notebook:
		return "notebook"
	case h.Cgroup.Step == "extern":
		return "ssh"
	}
	return ""
}

// fix returns what keeps a process or memory from staying after its job. It has the id of the reader's own container.
func (r reader) fix(of *record.Holder, own bool) string {
	first, h := r.run.Job.FirstHost(), cmp.Or(of, &record.Holder{})
	kind := kindOf(*h)
	if kind == "" && first != "" && first != r.run.Job.Node {
		kind = "rank"
	}
	k, known := catalog.HolderKindOf(kind)
	if !known {
		return "stop background work before the script ends (wait, or " + Trap + ")"
	}
	_, id, _ := strings.Cut(h.Container, ":")
	if !own || id == "" {
		id = "NAME"
	}
	return strings.NewReplacer("ID", id, "HOST", first).Replace(k.Fix)
}

// begunInContainer reports a process in a container that began during the job and is of no job that is known: a daemon
// starts containers outside the job's cgroup, and in one a UID does not identify the user.
func (r reader) begunInContainer(f record.Finding) bool {
	start := r.run.Start
	return f.Holder != nil && f.Holder.Apart() && !named(f.Owner) && start != nil && f.Holder.Start > start.At
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
	case o.Job == r.run.Job.ID && o.UID == r.run.Job.UID: // ids come around
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
