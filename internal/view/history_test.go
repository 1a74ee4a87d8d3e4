package view

import (
	"strings"
	"testing"

	"bookend/internal/answer"
	"bookend/internal/config"
)

// An admin in the observe week reads in the list which of the runs would have taken the node out.
func TestDrainsInHistory(t *testing.T) {
	found := []answer.Brief{{Code: "BKD-ORPHAN", At: "end", Action: config.Drain}}
	for what, tt := range map[string]struct {
		start, end *answer.Verdict
		want       string
	}{
		"held back": {nil, &answer.Verdict{Action: config.Warn, Code: "BKD-ORPHAN", Held: "observe mode"},
			"BKD-ORPHAN; would drain (observe mode)"},
		"drained": {nil, &answer.Verdict{Action: config.Drain, Code: "BKD-ORPHAN", Exit: 10},
			"BKD-ORPHAN; drained (10)"},
		"no drain was due": {nil, &answer.Verdict{Action: config.Warn, Code: "BKD-ORPHAN"}, "BKD-ORPHAN"},
		"at the start": {&answer.Verdict{Held: "restarted 2 times"}, &answer.Verdict{},
			"BKD-ORPHAN; would drain (restarted 2 times)"},
		"text from a record": {nil, &answer.Verdict{Held: "a\x1b[31mb"}, `BKD-ORPHAN; would drain (a\x1b[31mb)`},
	} {
		var out strings.Builder
		History(&out, answer.History{Node: "n1",
			Runs: []answer.Summary{{RunHead: answer.RunHead{Job: "4", User: "ann", State: answer.Ended},
				Start: tt.start, End: tt.end, Findings: found}}})
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if row := lines[len(lines)-1]; !strings.HasSuffix(row, "  "+tt.want) {
			t.Errorf("%s: %q, want %q", what, row, tt.want)
		}
	}
}
