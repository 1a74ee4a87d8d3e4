package answer

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/metrics"
	"bookend/internal/slurm"
)

func clock(hour, minute int) time.Time {
	return time.Date(2026, 11, 21, hour, minute, 0, 0, time.Local)
}

// What status sees itself, and what the last hook met and status does not see to be over, is wrong now.
func TestTroubles(t *testing.T) {
	const (
		last    = "last by the epilog of job 2 at 2026-11-21 09:00:00 (bookend show 2)\n"
		met     = "    met by 14 hooks since 2026-11-21 08:00:00, " + last
		before  = "  seen before: BKD-BK-MISSING, backend is missing: " + last
		do      = "    do: Install it, or correct the key backend.\n"
		title   = "  trouble: BKD-BK-MISSING, backend is missing\n"
		missing = code.BackendMissing
	)
	for name, tt := range map[string]struct {
		see  []string // a dash: looked for, and not there
		met  bool
		runs uint64 // of hooks since, without it
		hour int    // it is: 10 if not said
		want string
	}{
		"none":               {want: ""},
		"met by the last":    {met: true, want: title + "    said: \\x1b\n" + met + do},
		"not by the last":    {met: true, runs: 3, want: before},
		"long ago":           {met: true, runs: 3, hour: 34},
		"seen to be well":    {see: []string{"-"}, met: true, want: before},
		"seen now":           {see: []string{"no \x1b such file"}, want: title + "    no \\x1b such file\n" + do},
		"seen twice and met": {see: []string{"one", "two"}, met: true, runs: 5, want: title + "    one\n    two\n" + met + do},
		"without a code":     {see: []string{":no shards\n"}, want: "  trouble: no shards\\x0a\n"},
	} {
		s := Status{At: clock(cmp.Or(tt.hour, 10), 0)}
		for _, said := range tt.see {
			if of, without := strings.CutPrefix(said, ":"); without {
				s.See("", of)
			} else {
				s.See(missing, strings.TrimPrefix(said, "-"))
			}
		}
		if tt.met {
			s.Meet([]metrics.Trouble{{Code: missing, Since: clock(8, 0), Last: clock(9, 0), Count: 14, Hook: metrics.Epilog,
				Job: 2, Clear: tt.runs, Detail: `said: \x1b`}})
		}
		var b strings.Builder
		if NewStatus(s, nil).troublesText(&b); b.String() != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, b.String(), tt.want)
		}
	}
}

// statusText is what is shown of a node.
func statusText(s Status, runs ...ledger.Run) string {
	var b strings.Builder
	NewStatus(s, runs).Text(&b)
	return b.String()
}

// A node with which all is well has one short screen, which says whether a recorder runs.
func TestCleanNodeIsShort(t *testing.T) {
	s := Status{Node: "n1", Mode: config.Observe, At: clock(10, 0), Hooks: map[metrics.Hook]time.Time{
		metrics.Prolog: clock(9, 0), metrics.HealthCheck: clock(9, 40), metrics.Epilog: clock(9, 30)}}
	const want = "n1  observe  no problems\nlast hooks: prolog 09:00:00, epilog 09:30:00, health check 09:40:00"
	if got := statusText(s); got != want+"\n" {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	live := heir()
	live.Ends = nil
	has(t, statusText(s, live), []string{", no recorder\n"})
	s.Recorder = &Recorder{At: clock(9, 59), Jobs: 2}
	has(t, statusText(s), []string{want + ", recorder 09:59:00 (2 jobs)\n"})
	s.Recorder.Problem = "BKD-HANG\n"
	has(t, statusText(s), []string{"recorder sees nothing: BKD-HANG\\x0a\n"})
}

func TestJobsOfAStatus(t *testing.T) {
	s := Status{Node: "n1", At: clock(9, 0)}
	has(t, statusText(s, heir()), []string{"\n3    0    uid 0  ended 07:35:20  clean; still there from before: 20.0 GiB; " +
		"at its start: warn (BKD-DIRTY)\n"})
	lost := heir()
	lost.Start, lost.Ends[0].Unseen = nil, "the node has booted since"
	has(t, statusText(s, lost), []string{"\n3    0    uid 0  began unknown  not seen: the node has booted since\n"})
}

func TestTerminal(t *testing.T) {
	var b strings.Builder
	if n, err := fmt.Fprint(Terminal(&b), "a\x1b[31mb\x07c\x9bd\n\ne"); n != 14 || err != nil ||
		b.String() != "a\\x1b[31mb\\x07c\\x9bd\n\ne" {
		t.Errorf("%d, %v: %q", n, err, b.String())
	}
}

// What is not known is not shown as nothing, and what is unexplained stands out.
func TestCardsOfAStatus(t *testing.T) {
	figure := func(gib int) gpu.Figure { return gpu.Bytes(uint64(gib) << 30) }
	card := func(index int, used, odd gpu.Figure) CardStatus {
		return CardStatus{Card: Card{Index: &index}, Memory: gpu.Memory{Total: figure(80), Used: used}, Unexplained: odd}
	}
	full := card(1, figure(40), figure(20))
	full.Jobs, full.Last = []string{"5"}, &LastLook{Job: "4", Codes: []code.Code{code.Orphan}}
	full.Processes = []Process{{Memory: figure(20), Process: attrib.Process{PID: 70, Name: "a\x1b", UID: 7,
		Cgroup: slurm.Owner{ID: 5}}}, {Process: attrib.Process{PID: 71, Gone: true}, Memory: gpu.Unknown("")}}
	unread := gpu.Unknown("no rights")
	s := Status{Cards: []CardStatus{card(0, figure(0), figure(0)), full, card(2, unread, unread)}}
	has(t, statusText(s), []string{`GPU  USED                STATE     JOB  PROCESS
1    40.0/80.0 GiB       LEFTOVER  5    70 a\x1b (uid 7, job 5, 20.0 GiB)
                                        71 gone
0    0.0/80.0 GiB        free      -    -
2    unknown: no rights  unknown   -    -
`})
}

// A GPU's state names what an admin has to look at, and no job that is at work.
func TestStateOfACard(t *testing.T) {
	full, none := gpu.Bytes(20<<30), gpu.Bytes(0)
	used := func(odd gpu.Figure, p ...Process) CardStatus {
		return CardStatus{Memory: gpu.Memory{Used: full}, Unexplained: odd, Processes: p}
	}
	with := func(c CardStatus, job string, last ...code.Code) CardStatus {
		if job != "" {
			c.Jobs = []string{job}
		}
		c.Last = &LastLook{Codes: last}
		return c
	}
	of := func(p attrib.Process) Process { p.UID = 7; return Process{Process: p} }
	over := of(attrib.Process{PID: 1, Cgroup: slurm.Owner{ID: 4}})
	over.JobEnded = clock(9, 0)
	own, login := of(attrib.Process{PID: 2, Cgroup: slurm.Owner{ID: 5}}), of(attrib.Process{PID: 3})
	service, gone := of(attrib.Process{PID: 4, Service: "dcgm.service"}), of(attrib.Process{PID: 5, Gone: true})
	for name, tt := range map[string]struct {
		card CardStatus
		want string
	}{
		"not read":                            {CardStatus{Memory: gpu.Memory{Used: gpu.Unknown("")}}, stateUnknown},
		"empty":                               {used(none), stateFree},
		"a job's own":                         {with(used(none, own), "5"), stateInUse},
		"an ended job's, beside a job's own":  {with(used(none, own, over), "5"), stateLeftover},
		"an ended job's, and no job":          {used(gpu.Unknown(""), over), stateLeftover},
		"a dead process":                      {used(none, gone), stateLeftover},
		"a dead process while a job is there": {with(used(none, gone), "5"), stateInUse},
		"what the last end found":             {with(used(none, login), "", code.Orphan), stateLeftover},
		"what it found is gone":               {with(used(none, service), "", code.Orphan), stateInUse},
		"memory without a process":            {with(used(full), ""), stateUnexplained},
		"the same, found by the last end":     {with(used(full), "", code.Residue), stateLeftover},
		"a login's process":                   {used(none, login), stateStray},
		"a job's on a GPU it was not given":   {used(none, own), stateStray},
	} {
		if got := tt.card.state(); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// An admin in the observe week reads in the list which of the runs would have taken the node out.
func TestDrainsInHistory(t *testing.T) {
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
	} {
		run := Run{State: Ended, Start: tt.start, End: tt.end,
			Findings: []Brief{{finding.Finding{Code: "BKD-ORPHAN"}, config.Drain, "end"}}}
		if got := run.found(); got != tt.want {
			t.Errorf("%s: %q, want %q", what, got, tt.want)
		}
	}
}
