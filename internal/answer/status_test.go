package answer

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/metrics"
)

func clock(hour, minute int) time.Time {
	return time.Date(2026, 11, 21, hour, minute, 0, 0, time.Local)
}

// metBy is a trouble that hooks have met from 8:00 on; clear hooks ran without it since.
func metBy(c code.Code, last time.Time, clear uint64) metrics.Trouble {
	return metrics.Trouble{Code: c, Since: clock(8, 0), Last: last, Count: 14, Hook: metrics.Epilog, Job: 2,
		Clear: clear, Detail: `said: \x1b`}
}

func TestTroubles(t *testing.T) {
	const (
		met    = "    met by 14 hooks since 2026-11-21 08:00:00, last by the epilog of job 2 at 2026-11-21 09:00:00 (bookend show 2)\n"
		do     = "    do: Install it, or correct the key backend.\n"
		title  = "  trouble: BKD-BK-MISSING, backend is missing\n"
		before = "  seen before: BKD-BK-MISSING, backend is missing: last by the epilog of job 2 at 2026-11-21 09:00:00 (bookend show 2), "
	)
	const missing = code.BackendMissing
	for name, tt := range map[string]struct {
		node Node
		want string
	}{
		"none": {Node{}, ""},
		"met by the last": {Node{Met: []metrics.Trouble{metBy(missing, clock(9, 0), 0)}}, title +
			"    said: \\x1b\n" + met + do},
		"not by the last": {Node{Met: []metrics.Trouble{metBy(missing, clock(9, 0), 3)}}, before +
			"not by the 3 hooks since\n"},
		"nor by the last": {Node{Met: []metrics.Trouble{metBy(missing, clock(9, 0), 1)}}, before +
			"not by the 1 hook since\n"},
		"long ago": {Node{Met: []metrics.Trouble{metBy(missing, clock(9, 0).Add(-25*time.Hour), 1)}},
			""},
		"seen to be well": {Node{Met: []metrics.Trouble{metBy(missing, clock(9, 0), 0)},
			Well: map[code.Code]bool{missing: true}}, before + "not now\n"},
		"seen now": {Node{Now: []Symptom{{Code: missing, Text: "no \x1b such file"}}}, title +
			"    no \\x1b such file\n" + do},
		"seen twice and met": {Node{Now: []Symptom{{Code: missing, Text: "one"},
			{Code: missing, Text: "two"}}, Met: []metrics.Trouble{metBy(missing, clock(9, 0), 5)}}, title +
			"    one\n    two\n" + met + do},
		"without a code": {Node{Now: []Symptom{{Code: "", Text: "no shards\n"}}},
			"  trouble: no shards\\x0a\n"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.node.At = clock(10, 0)
			var b strings.Builder
			tt.node.Status().troublesText(&b)
			if b.String() != tt.want {
				t.Errorf("got\n%s\nwant\n%s", b.String(), tt.want)
			}
		})
	}
}

// statusText is what is shown of a node.
func statusText(n Node) string {
	var b strings.Builder
	n.Status().Text(&b)
	return b.String()
}

// A node with which all is well has one short screen.
func TestCleanNodeIsShort(t *testing.T) {
	got := statusText(Node{Name: "n1", Mode: config.Observe, At: clock(10, 0), Last: map[metrics.Hook]time.Time{
		metrics.Prolog: clock(9, 0), metrics.HealthCheck: clock(9, 40), metrics.Epilog: clock(9, 30)}})
	const want = "n1  observe  no problems\nlast hooks: prolog 09:00:00, epilog 09:30:00, health check 09:40:00\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
