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
	if s.Why == nil {
		return false
	}
	switch s.Why.Reason {
	case "":
		return false
	case record.ByCause:
		return len(s.reported()) == 0
	}
	return true
}

// why returns the answer first, then its evidence, what to try, and what was ruled out; bookend show has every cause.
func (s Scene) why() []string {
	out := []string{s.headline()}
	for _, c := range s.Why.Causes {
		if c.Explains() {
			out = append(out, "  "+s.evidence(c))
		}
	}
	if len(s.Why.Try) > 0 {
		out = append(out, "  Try: "+string(safetext.Clean(strings.Join(s.Why.Try, "; "), Width)))
	}
	if s.Why.Reason != record.ByMessage {
		return out
	}
	if no := s.answered(record.No); no != "" {
		out = append(out, "  Ruled out: "+no)
	}
	if open := s.answered(record.CannotTell); open != "" {
		out = append(out, "  Cannot tell: "+open)
	}
	return out
}

func (s Scene) headline() string {
	on := s.Node
	for _, c := range s.Why.Causes {
		if c.Explains() && c.Index != nil {
			on = fmt.Sprintf("%s GPU %d", s.Node, *c.Index)
			break
		}
	}
	if on == s.Node && len(s.Cards) == 1 {
		on = s.place()
	}
	if s.Why.Reason != record.ByMessage {
		return string(safetext.Clean(s.Why.Headline, Width))
	}
	return strings.NewReplacer("Why out of memory", "OUT OF MEMORY on "+on,
		"Why CUDA did not start", "CUDA DID NOT START on "+on,
		"It ran out of memory, but ended", "OUT OF MEMORY on "+on+", but your job ended",
	).Replace(string(safetext.Clean(s.Why.Headline, Width)))
}

func (s Scene) evidence(c record.Cause) string {
	text := string(safetext.Clean(c.Evidence, Width))
	if !strings.HasPrefix(text, "ulimit") {
		text = strings.ToUpper(text[:min(1, len(text))]) + text[min(1, len(text)):]
	}
	if c.Index != nil && len(s.Cards) > 1 {
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

// answered names the kinds that are ruled out (No), or of which a cause is unknown and none is certain (Unknown).
func (s Scene) answered(a record.Answer) string {
	var names []string
	for _, k := range kinds {
		if s.strongest(k.of) == a {
			names = append(names, k.name)
		}
	}
	return strings.Join(names, ", ")
}

func (s Scene) strongest(of []record.CauseName) (answer record.Answer) {
	for _, c := range s.Why.Causes {
		switch {
		case !slices.Contains(of, c.Name) || answer == record.Yes:
		case c.Answer == record.Yes || answer != record.CannotTell:
			answer = c.Answer
		}
	}
	return answer
}
