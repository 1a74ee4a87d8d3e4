package report

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/record"
	"bookend/internal/safetext"
)

// asked reports whether the text says why the job may have run out of memory: after a good end only without findings.
func (s Scene) asked() bool {
	return s.Why != nil && s.Why.Reason != "" && (s.Why.Reason != record.ByCause || len(s.reported()) == 0)
}

// why returns the answer first, then its evidence, what to try, and what was ruled out; bookend show has every cause.
func (s Scene) why() []string {
	out := []string{headlineOf(s)}
	for _, c := range s.Why.Causes {
		if c.Explains() {
			out = append(out, "  "+evidence(c, len(s.Cards) > 1))
		}
	}
	if s.Why.InOrder.Answer == record.Yes && s.Why.Reason == record.ByFailure {
		out = append(out, "  "+string(safetext.Clean(s.Why.InOrder.Evidence, Width)))
	}
	for _, meaning := range s.Why.Reported {
		out = append(out, "  "+string(safetext.Clean(meaning, Width)))
	}
	out = append(out, tries(s.Why.Try)...)
	unread := s.Unread && s.Why.Reason == record.ByFailure // then memory may have been the reason
	if seen := given(s.peak(), busy(s)); unread && len(seen) > 0 {
		out = append(out, "  Seen: "+strings.Join(seen, "; "))
	}
	if s.Why.Reason != record.ByMessage && !unread || ofLimitsAlone(s) {
		return out
	}
	kinds := byAnswer(s.Why.Causes)
	if no := kinds[record.No]; len(no) > 0 {
		out = append(out, "  Ruled out: "+strings.Join(no, ", "))
	}
	if open := kinds[record.CannotTell]; len(open) > 0 {
		out = append(out, "  Cannot tell: "+strings.Join(open, ", "))
	}
	return out
}

// ofLimitsAlone reports whether only a limit of the job or host memory explains the failure: its GPUs do not matter.
func ofLimitsAlone(s Scene) bool {
	limits := func(c record.Cause) bool { return c.Name == record.CauseLimits && c.Explains() }
	others := func(c record.Cause) bool { return c.Name != record.CauseLimits && c.Explains() }
	return slices.ContainsFunc(s.Why.Causes, limits) && !slices.ContainsFunc(s.Why.Causes, others)
}

// tries returns what the job's owner can do: in one line if that is short, else a line for each, to be copied.
func tries(all []string) (out []string) {
	const short, lead = 100, "  Try: "
	if text := strings.Join(all, "; "); len(all) > 0 && len(text) <= short {
		all = []string{text}
	}
	for i, text := range all {
		out = append(out, lead+string(safetext.Clean(text, Width)))
		if i > 0 {
			out[i] = strings.Repeat(" ", len(lead)) + strings.TrimPrefix(out[i], lead)
		}
	}
	return out
}

func headlineOf(s Scene) string {
	headline, on := string(safetext.Clean(s.Why.Headline, Width)), s.Run.Job.Node
	if s.Why.Reason != record.ByMessage {
		return headline
	}
	first := slices.IndexFunc(s.Why.Causes, func(c record.Cause) bool { return c.Explains() && c.Index != nil })
	switch {
	case len(s.Cards) > 1 && s.Why.Where != "" && !ofLimitsAlone(s):
		on += string(safetext.Clean(s.Why.Where, Width))
	case first >= 0:
		on = fmt.Sprintf("%s GPU %d", on, *s.Why.Causes[first].Index)
	case len(s.Cards) == 1 && !ofLimitsAlone(s):
		on = s.place()
	}
	return strings.NewReplacer("Why out of memory", "OUT OF MEMORY on "+on,
		"Why CUDA did not start", "CUDA DID NOT START on "+on,
		"It ran out of memory, but ended", "OUT OF MEMORY on "+on+", but your job ended",
	).Replace(headline)
}

func evidence(c record.Cause, several bool) string {
	text := string(safetext.Clean(c.Evidence, Width))
	if !strings.HasPrefix(text, "ulimit") {
		text = sentence(text)
	}
	if c.Index != nil && several {
		return fmt.Sprintf("GPU %d: %s", *c.Index, text)
	}
	return text
}

// kinds groups causes in a user's words. The others are for admins: bookend show has them.
var kinds = []struct {
	name string
	of   []record.CauseName
}{
	{"other users", []record.CauseName{record.CauseOthers}},
	{"leftovers", []record.CauseName{record.CauseLeftover, record.CauseUnlisted}},
	{"GPU fault", []record.CauseName{record.CauseFault}},
	{"fragmentation", []record.CauseName{record.CausePieces, record.CausePool}},
	{"your job's own use", []record.CauseName{record.CauseOwn}},
	{"several processes of your job", []record.CauseName{record.CauseProcesses}},
	{"limits", []record.CauseName{record.CauseLimits}},
}

func byAnswer(causes []record.Cause) map[record.Answer][]string {
	names := map[record.Answer][]string{}
	for _, k := range kinds {
		var strongest record.Answer
		for _, c := range causes {
			if slices.Contains(k.of, c.Name) && c.Answer.Outweighs(strongest) {
				strongest = c.Answer
			}
		}
		names[strongest] = append(names[strongest], k.name)
	}
	return names
}
