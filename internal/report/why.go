package report

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/diagnosis"
)

// asked reports whether the text says why the job may have run out of memory: after a good end only without findings.
func (s Scene) asked() bool {
	if s.Why == nil {
		return false
	}
	switch s.Why.Reason {
	case "":
		return false
	case diagnosis.ByCause:
		return len(s.told()) == 0
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
		out = append(out, "  Try: "+string(Clean(strings.Join(s.Why.Try, "; "), Width)))
	}
	if s.Why.Reason != diagnosis.ByMessage {
		return out
	}
	if no := s.answered(diagnosis.No); no != "" {
		out = append(out, "  Ruled out: "+no)
	}
	if open := s.answered(diagnosis.Unknown); open != "" {
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
	if s.Why.Reason != diagnosis.ByMessage {
		return string(Clean(s.Why.Headline, Width))
	}
	return strings.NewReplacer("Why out of memory", "OUT OF MEMORY on "+on,
		"Why CUDA did not start", "CUDA DID NOT START on "+on,
		"It ran out of memory, but ended", "OUT OF MEMORY on "+on+", but your job ended",
	).Replace(string(Clean(s.Why.Headline, Width)))
}

func (s Scene) evidence(c diagnosis.Cause) string {
	text := string(Clean(c.Evidence, Width))
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
	of   []diagnosis.Name
}{
	{"other users", []diagnosis.Name{diagnosis.Others}},
	{"leftovers", []diagnosis.Name{diagnosis.Leftover, diagnosis.Unlisted}},
	{"GPU fault", []diagnosis.Name{diagnosis.Fault}},
	{"fragmentation", []diagnosis.Name{diagnosis.Pieces, diagnosis.Pool}},
	{"your job's own use", []diagnosis.Name{diagnosis.Own}},
	{"several processes of your job", []diagnosis.Name{diagnosis.Processes}},
	{"limits", []diagnosis.Name{diagnosis.Limits}},
}

// answered names the kinds that are ruled out (No), or of which a cause is unknown and none is certain (Unknown).
func (s Scene) answered(a diagnosis.Answer) string {
	var names []string
	for _, k := range kinds {
		if s.strongest(k.of) == a {
			names = append(names, k.name)
		}
	}
	return strings.Join(names, ", ")
}

func (s Scene) strongest(of []diagnosis.Name) (answer diagnosis.Answer) {
	for _, c := range s.Why.Causes {
		switch {
		case !slices.Contains(of, c.Name) || answer == diagnosis.Yes:
		case c.Answer == diagnosis.Yes || answer != diagnosis.Unknown:
			answer = c.Answer
		}
	}
	return answer
}
