package answer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
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

// On a terminal nothing but this package's colours gets through, and without colour nothing at all.
func TestColoursAlone(t *testing.T) {
	const hostile = "a\x1b[2Jb\x1b]0;title\x07c\x1b[31;5md\x9be"
	for _, colour := range []bool{false, true} {
		var b strings.Builder
		w := On(&b, colour)
		fmt.Fprintf(w, "%s %s\n", inkOf(w).in(red, "wrong"), hostile)
		left := strings.ReplaceAll(strings.ReplaceAll(b.String(), red, ""), normal, "")
		if slices.ContainsFunc([]byte(left), func(c byte) bool { return c != '\n' && (c < ' ' || c > '~') }) {
			t.Errorf("%v: %q", colour, left)
		}
		if colour != strings.Contains(b.String(), red+"wrong"+normal) {
			t.Errorf("%v: %q", colour, b.String())
		}
	}
}

// What is not known is not shown as nothing, and what is unexplained stands out.
func TestCardsOfAStatus(t *testing.T) {
	figure := func(gib float64) *uint64 { n := uint64(gib * (1 << 30)); return &n }
	card := func(index int, used, odd *uint64) CardStatus {
		c := CardStatus{Card: Card{Index: &index}, Unknown: Unknown{"used_bytes": "no rights"}}
		c.TotalBytes, c.UsedBytes, c.UnexplainedBytes = figure(80), used, odd
		return c
	}
	full := card(1, figure(40), figure(20))
	full.Jobs, full.Last = []string{"5"}, &LastLook{Job: "4", Codes: []code.Code{code.Orphan}}
	uid := uint32(7)
	full.Processes = []Process{{PID: 70, Name: "a\x1b", UID: &uid, Bytes: figure(20), Job: "5"}, {PID: 71, Gone: true}}
	var b strings.Builder
	Status{Cards: []CardStatus{card(0, figure(0), figure(0)), full, card(2, nil, nil)}}.cardsText(&b)
	const want = `GPU  USED                STATE     JOB  PROCESS
1    40.0/80.0 GiB       LEFTOVER  5    70 a\x1b (uid 7, job 5, 20.0 GiB)
                                        71 gone
0    0.0/80.0 GiB        free      -    -
2    unknown: no rights  unknown   -    -
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// A GPU's state names what an admin has to look at, and no job that is at work.
func TestStateOfACard(t *testing.T) {
	full, none, user := uint64(20<<30), uint64(0), uint32(7)
	used := func(odd *uint64, p ...Process) CardStatus {
		return CardStatus{Memory: Memory{UsedBytes: &full}, UnexplainedBytes: odd, Processes: p}
	}
	with := func(c CardStatus, job string, last ...code.Code) CardStatus {
		if job != "" {
			c.Jobs = []string{job}
		}
		c.Last = &LastLook{Codes: last}
		return c
	}
	over := Process{PID: 1, UID: &user, Job: "4", JobEnded: &time.Time{}}
	own, login := Process{PID: 2, UID: &user, Job: "5"}, Process{PID: 3, UID: &user}
	service := Process{PID: 4, UID: &user, Service: "dcgm.service"}
	for name, tt := range map[string]struct {
		card CardStatus
		want string
	}{
		"not read":                            {CardStatus{}, stateUnknown},
		"empty":                               {used(&none), stateFree},
		"a job's own":                         {with(used(&none, own), "5"), stateInUse},
		"an ended job's, beside a job's own":  {with(used(&none, own, over), "5"), stateLeftover},
		"an ended job's, and no job":          {used(nil, over), stateLeftover},
		"a dead process":                      {used(&none, Process{PID: 5, Gone: true}), stateLeftover},
		"a dead process while a job is there": {with(used(&none, Process{PID: 5, Gone: true}), "5"), stateInUse},
		"what the last end found":             {with(used(&none, login), "", code.Orphan), stateLeftover},
		"what it found is gone":               {with(used(&none, service), "", code.Orphan), stateInUse},
		"memory without a process":            {with(used(&full), ""), stateUnexplained},
		"the same, found by the last end":     {with(used(&full), "", code.Residue), stateLeftover},
		"a login's process":                   {used(&none, login), stateStray},
		"a job's on a GPU it was not given":   {used(&none, own), stateStray},
	} {
		if got := tt.card.state(); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// An admin in the observe week reads in the list which of the runs would have taken the node out.
func TestDrainsInHistory(t *testing.T) {
	briefs := []Brief{{finding.Finding{Code: "BKD-ORPHAN"}, config.Drain, "end"}}
	for what, tt := range map[string]struct {
		start, end *finding.Verdict
		want       string
	}{
		"held back": {nil, &finding.Verdict{Action: config.Warn, Code: "BKD-ORPHAN", Held: "observe mode"},
			"BKD-ORPHAN; would drain (observe mode)"},
		"drained": {nil, &finding.Verdict{Action: config.Drain, Code: "BKD-ORPHAN", Exit: 10},
			"BKD-ORPHAN; drained (10)"},
		"no drain was due": {nil, &finding.Verdict{Action: config.Warn, Code: "BKD-ORPHAN"}, "BKD-ORPHAN"},
		"at the start": {&finding.Verdict{Held: "restarted 2 times"}, &finding.Verdict{},
			"BKD-ORPHAN; would drain (restarted 2 times)"},
		"text from a record": {nil, &finding.Verdict{Held: "a\x1b[31mb"}, `BKD-ORPHAN; would drain (a\x1b[31mb)`},
	} {
		var out strings.Builder
		History{Node: "n1",
			Runs: []Summary{{RunHead: RunHead{Job: "4", User: "ann", State: Ended},
				Start: tt.start, End: tt.end, Findings: briefs}}}.Text(&out)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if row := lines[len(lines)-1]; !strings.HasSuffix(row, "  "+tt.want) {
			t.Errorf("%s: %q, want %q", what, row, tt.want)
		}
	}
}
