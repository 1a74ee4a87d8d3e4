package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
)

// subject is one thing a report has a paragraph about.
type subject struct {
	id   gpu.ID
	name string
}

// words are what differs between the two ends of a job.
type words struct {
	clean   func(Scene) string
	when    string // ends a paragraph's title
	logged  string // the same for what the kernel's log has had since the job's start; empty: as any other
	verb    string // label before what was seen
	closing func(Scene, []finding.Finding) []string
}

var startWords = words{
	clean: func(s Scene) string {
		return s.cleanStart()
	},
	when: "when your job got it",
	verb: "Found",
	closing: func(s Scene, told []finding.Finding) []string {
		means, when := "you have "+s.free(), "if that is too little"
		if len(s.freeFigures()) == 0 {
			means, when = "how much memory is free is unknown", "if your job runs out of memory"
		}
		if unusable(told) {
			means, when = "GPU programs may fail on it", "if yours does"
		}
		return []string{
			"  Means: not caused by this job; " + means,
			fmt.Sprintf("  Do: %s: sbatch --exclude=%s, and tell your admin: bookend show %d on %s", when, s.Node,
				s.Job.ID, s.Node),
		}
	},
}

var endWords = words{
	clean: func(s Scene) string {
		if s.startedDirty() {
			return fmt.Sprintf("%s of %s as your job found %s: nothing more on %s than before", s.gpus(), s.Node,
				s.them(), s.them())
		}
		if len(s.ended()) > 0 {
			return fmt.Sprintf("%s of %s clean now", s.gpus(), s.Node)
		}
		return fmt.Sprintf("%s of %s left clean by your job", s.gpus(), s.Node)
	},
	when:   "after your job",
	logged: "during your job",
	verb:   "Found",
	closing: func(s Scene, told []finding.Finding) []string {
		var out []string
		if blamed(s, told) || len(s.ended()) > 0 {
			out = append(out, doEnd)
		}
		if s.Verdict.Action == config.Drain {
			out = append(out, "  Means: this node takes no new jobs until an admin has looked at it")
		}
		return append(out, fmt.Sprintf("  More: for your admin: bookend show %d on %s", s.Job.ID, s.Node))
	},
}

// doEnd is what the owner of a job can do that leaves processes behind.
const doEnd = "  Do: end background processes before your script ends (wait, or trap 'kill 0' EXIT)"

// quiet is the one line of a report without findings for the user. It says clean only of what was seen clean.
func (s Scene) quiet(w words) string {
	unclean := ""
	for _, c := range s.Cards {
		curve, looked := s.Now.Curves[c.Device.ID]
		switch {
		case !looked || curve.State == settle.Unknown:
			return fmt.Sprintf("GPUs of %s not checked: %s; your job is not affected by this", s.Node, s.obstacle())
		case curve.State != settle.Clean:
			unclean = fmt.Sprintf("%s of %s in use, no action needed; %s", s.gpus(), s.Node, s.free())
		}
	}
	if len(s.Cards) == 0 {
		return fmt.Sprintf("GPUs of %s not checked: %s; your job is not affected by this", s.Node, s.obstacle())
	}
	if unclean != "" {
		return unclean
	}
	return w.clean(s)
}

// obstacle is the first thing that kept Bookend from looking.
func (s Scene) obstacle() string {
	for _, f := range s.Findings {
		if e, ok := code.Lookup(f.Code); ok {
			return e.Title
		}
	}
	return "reason unknown"
}

// gpus names the job's cards with their verb: "GPU 0 is", "GPUs 0,2,3 are".
func (s Scene) gpus() string {
	if len(s.Cards) == 1 {
		return fmt.Sprintf("GPU %d", s.Cards[0].Index)
	}
	list := make([]string, len(s.Cards))
	for i, c := range s.Cards {
		list[i] = fmt.Sprint(c.Index)
	}
	return "GPUs " + strings.Join(list, ",")
}

func (s Scene) them() string {
	if len(s.Cards) == 1 {
		return "it"
	}
	return "them"
}

func (s Scene) startedDirty() bool {
	if s.Before == nil {
		return false
	}
	for _, c := range s.Before.Curves {
		if c.State.Dirty() {
			return true
		}
	}
	return false
}

// state is the strongest that findings about one subject prove: that something was on it, that it failed, or
// only that nobody could tell.
func state(about []finding.Finding) string {
	proven := "could not be checked"
	for _, f := range about {
		e := f.Code.Traits()
		switch {
		case f.Holder != nil && !e.Condition, f.Unknown == "" && onCard(f.Code):
			return "was not clean"
		case f.Unknown == "" && e.Milder == "":
			proven = "had a fault"
		case f.Unknown == "" && proven != "had a fault":
			proven = e.Milder
		}
	}
	return proven
}

// onCard reports findings of something that is on a card, as opposed to faults of cards and drivers.
func onCard(c code.Code) bool {
	return c.Traits().Memory != ""
}

// title names a subject, what is the matter with it, and when that was.
func (s Scene) title(w words, sub subject, about []finding.Finding) string {
	when := w.when
	if !slices.ContainsFunc(about, func(f finding.Finding) bool { return w.at(f) == w.when }) {
		when = w.logged
	}
	return fmt.Sprintf("%s of %s %s %s", sub.name, s.Node, state(about), when)
}

// at is when a finding's subject was so. The kernel's log is read from the job's start to where its end begins.
func (w words) at(f finding.Finding) string {
	if w.logged != "" && f.Unknown == "" && (f.Code == code.Xid || f.Code == code.XidFatal) {
		return w.logged
	}
	return w.when
}

// sentence says what one finding saw, and whose it is; when it was, if the paragraph's title says otherwise.
func (s Scene) sentence(w words, f finding.Finding, title string) []string {
	out := []string{fmt.Sprintf("  %s: %s", w.verb, s.seen(f))}
	if when := w.at(f); when != w.when && !strings.HasSuffix(title, when) {
		out[0] += ", " + when
	}
	out = append(out, s.candidates(f)...)
	if who := s.who(f); who != "" {
		out = append(out, "  Who: "+who)
	}
	return out
}

func (s Scene) seen(f finding.Finding) string {
	switch {
	case f.Holder == nil && f.Unknown != "":
		return string(Clean("could not tell: "+f.Unknown, 3*Width))
	case f.Code.Traits().Condition:
		return s.failing(f)
	case f.Code == code.Phantom || f.Holder != nil && f.Holder.Gone:
		return fmt.Sprintf("%s still in use though its process is gone", mib(f.Bytes))
	case f.Holder != nil:
		text := fmt.Sprintf("%s held by %s", mib(f.Bytes), s.process(f.Holder, f.Owner))
		if s.yours(f.Holder, f.Owner) {
			text += condition(*f.Holder)
		}
		return text
	case f.Code == code.Residue || f.Code == code.Dirty:
		return fmt.Sprintf("%s in use that no listed process accounts for", mib(f.Bytes))
	}
	return string(Clean(f.Observed, 3*Width))
}

// condition says what is unusual about a process that its owner can do something about.
func condition(h finding.Holder) string {
	var all []string
	for _, c := range h.Classes {
		switch {
		case c == attrib.Stopped:
			all = append(all, fmt.Sprintf("stopped; kill -9 %d ends it", h.PID))
		case conditions[c] != "":
			all = append(all, conditions[c])
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "; " + strings.Join(all, ", ")
}

var conditions = map[attrib.Class]string{
	attrib.Dying:     "about to end",
	attrib.MPS:       "of CUDA MPS",
	attrib.Container: "in a container",
}

// mostCandidates is how many processes a report lists for one finding.
const mostCandidates = 3

// candidates name the live processes that hold what a dead one is listed for, or that may hold what nobody is listed
// for. Of other users' only their number is said.
func (s Scene) candidates(f finding.Finding) []string {
	label, verb := "Maybe", "has the driver open"
	if f.Holder != nil {
		label, verb = "Holder", "has the card open"
	}
	var out []string
	own, others := 0, 0
	for _, c := range f.Candidates {
		if !s.yours(&c, c.Owner) {
			others++
			continue
		}
		if own++; own <= mostCandidates {
			out = append(out, fmt.Sprintf("  %s: %s %s%s", label, s.process(&c, c.Owner), verb, condition(c)))
		}
	}
	if own > mostCandidates {
		out = append(out, fmt.Sprintf("  %s: and %d more processes of yours", label, own-mostCandidates))
	}
	if others > 0 {
		out = append(out, fmt.Sprintf("  %s: %s not yours", label, processes(others)))
	}
	return out
}

// ended tells of the job's processes that clean-up ended, though nothing is wrong any more: their owner must know why
// they are gone. One that could not be ended is a finding of its own.
func (s Scene) ended() []string {
	var out []string
	more := 0
	for i, f := range s.Findings {
		signal := f.Ended.Signal()
		ignored := s.Verdict.Of(i).Action == config.Ignore
		if f.Code != code.Ended || f.Holder == nil || signal == "" || f.Holder.UID != s.Job.UID || ignored {
			continue
		}
		where := "outlived it"
		if f.Index != nil {
			where = fmt.Sprintf("was still on GPU %d", *f.Index)
		}
		if len(out) == mostCandidates {
			more++
			continue
		}
		out = append(out, fmt.Sprintf("process %d (%s) of your job %s and was ended (%s)", f.Holder.PID,
			Clean(f.Holder.Name, 32), where, signal))
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more processes of your job were ended", more))
	}
	return out
}

func processes(n int) string {
	if n == 1 {
		return "a process that is"
	}
	return fmt.Sprintf("%d processes that are", n)
}

func (s Scene) clockTime(boot time.Duration) string {
	if boot == 0 {
		return "at an unknown time"
	}
	return s.WallNow.Add(boot - s.BootNow).Format("15:04:05")
}

// who words the owner with its evidence: only a cgroup or a sighting is certain.
func (s Scene) who(f finding.Finding) string {
	if f.Owner == nil {
		if f.Code == code.Orphan {
			return "one of several jobs, it cannot be told which"
		}
		if f.Holder != nil && f.Unknown == "" && !f.Holder.Gone && !f.Code.Traits().Condition {
			return "no job that this node knows of"
		}
		return ""
	}
	if f.Unknown != "" {
		return "a job that this node has no record of"
	}
	sure := "probably "
	if f.Owner.Level == "cgroup" || f.Owner.Level == "sighting" {
		sure = ""
	}
	switch {
	case f.Owner.Job == s.Job.ID && f.Code == code.Dirty:
		return sure + "an earlier run of this job"
	case f.Owner.Job == s.Job.ID:
		return sure + "this job"
	case f.Owner.UID == s.Job.UID && f.Owner.Job != 0:
		return fmt.Sprintf("%syour job %d", sure, f.Owner.Job)
	case s.Privacy == config.PrivacyAll && f.Owner.Job != 0:
		return fmt.Sprintf("%sjob %d of another user", sure, f.Owner.Job)
	}
	return sure + "another user's job"
}

// blamed reports whether the job left a process behind, as far as its owner can tell: memory that nobody is named for,
// not even as a candidate, is none that ending processes would have spared.
func blamed(s Scene, told []finding.Finding) bool {
	for _, f := range told {
		somebody := f.Holder != nil || len(f.Candidates) > 0
		if somebody && !f.Code.Traits().Condition && f.Owner != nil && f.Owner.Job == s.Job.ID && f.Code != code.Dirty {
			return true
		}
	}
	return false
}

// privateToAdmin reports findings about Bookend itself, or about cards that are not the job's: a user can do nothing
// with them.
func privateToAdmin(f finding.Finding) bool {
	e, ok := code.Lookup(f.Code)
	return f.Code == code.Trespass || ok && e.Scope == code.Own
}

func mib(f gpu.Figure) string {
	if !f.Known() {
		return "an unknown amount of memory"
	}
	return fmt.Sprintf("%d MiB", f.Bytes>>20)
}
