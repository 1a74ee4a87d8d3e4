package view

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/answer"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/metrics"
	"bookend/internal/slurm"
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
	recorded := ledger.Run{Job: slurm.Job{ID: 3}, Ends: []ledger.End{{
		Wall: clock(9, 30), Findings: []finding.Finding{{Code: missing}},
		Verdict: finding.Verdict{Judged: []finding.Judged{{Action: config.Warn}}},
	}}}
	for name, tt := range map[string]struct {
		node answer.Node
		want string
	}{
		"none": {answer.Node{}, ""},
		"met by the last": {answer.Node{Met: []metrics.Trouble{metBy(missing, clock(9, 0), 0)}}, title +
			"    said: \\x1b\n" + met + do},
		"not by the last": {answer.Node{Met: []metrics.Trouble{metBy(missing, clock(9, 0), 3)}}, before +
			"not by the 3 hooks since\n"},
		"nor by the last": {answer.Node{Met: []metrics.Trouble{metBy(missing, clock(9, 0), 1)}}, before +
			"not by the 1 hook since\n"},
		"long ago": {answer.Node{Met: []metrics.Trouble{metBy(missing, clock(9, 0).Add(-25*time.Hour), 1)}},
			""},
		"seen to be well": {answer.Node{Met: []metrics.Trouble{metBy(missing, clock(9, 0), 0)},
			Well: map[code.Code]bool{missing: true}}, before + "not now\n"},
		"seen now": {answer.Node{Now: []answer.Symptom{{Code: missing, Text: "no \x1b such file"}}}, title +
			"    no \\x1b such file\n" + do},
		"seen twice and met": {answer.Node{Now: []answer.Symptom{{Code: missing, Text: "one"},
			{Code: missing, Text: "two"}}, Met: []metrics.Trouble{metBy(missing, clock(9, 0), 5)}}, title +
			"    one\n    two\n" + met + do},
		"without a code": {answer.Node{Now: []answer.Symptom{{Code: "", Text: "no shards\n"}}},
			"  trouble: no shards\\x0a\n"},
		"on record alone": {answer.Node{Runs: []ledger.Run{recorded}},
			"  trouble on record: BKD-BK-MISSING, backend is missing: job 3 at 2026-11-21 09:30:00 (bookend show 3)\n"},
		"on record and later": {answer.Node{Runs: []ledger.Run{recorded},
			Met: []metrics.Trouble{metBy(missing, clock(9, 0), 1)}},
			"  trouble on record: BKD-BK-MISSING, backend is missing: job 3 at 2026-11-21 09:30:00 (bookend show 3)\n"},
		"on record and counted": {answer.Node{Runs: []ledger.Run{recorded},
			Met: []metrics.Trouble{metBy(missing, clock(9, 30), 2)}},
			strings.Replace(before, "09:00", "09:30", 1) + "not by the 2 hooks since\n"},
		"on record and well": {answer.Node{Runs: []ledger.Run{recorded}, Well: map[code.Code]bool{missing: true}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tt.node.At = clock(10, 0)
			var b strings.Builder
			troubles(&b, tt.node.Status())
			if b.String() != tt.want {
				t.Errorf("got\n%s\nwant\n%s", b.String(), tt.want)
			}
		})
	}
}

// statusText is what is shown of a node.
func statusText(n answer.Node) string {
	var b strings.Builder
	Status(&b, n.Status())
	return b.String()
}

// Of records only the newest are searched for troubles, and only for those of the driver and of Bookend itself.
func TestTroublesOnRecord(t *testing.T) {
	run := func(id slurm.JobID, minute int, actions map[code.Code]config.Action) ledger.Run {
		e := ledger.End{Wall: clock(8, minute)}
		for c, a := range actions {
			e.Findings = append(e.Findings, finding.Finding{Code: c})
			e.Verdict.Judged = append(e.Verdict.Judged, finding.Judged{Action: a})
		}
		return ledger.Run{Job: slurm.Job{ID: id}, Ends: []ledger.End{e}}
	}
	noDriver := map[code.Code]config.Action{code.NoDriver: config.Warn}
	runs := []ledger.Run{
		run(1, 10, noDriver), run(2, 20, noDriver),
		run(3, 15, map[code.Code]config.Action{code.NoRecord: config.Note}),
		run(4, 16, map[code.Code]config.Action{code.Orphan: config.Drain}),
	}
	has(t, statusText(answer.Node{Now: []answer.Symptom{{Text: "the backend is not there"}}, Runs: runs}), []string{
		"  trouble: the backend is not there\n" +
			"  trouble on record: BKD-NODRIVER, no GPU driver: job 2 at 2026-11-21 08:20:00 (bookend show 2)\njobs with GPUs now: 0\n"})
	for i := range 5 {
		runs = append(runs, run(slurm.JobID(10+i), 30+i, nil))
	}
	has(t, statusText(answer.Node{Runs: runs}), nil, "trouble")
}

// A node with which all is well has one short screen.
func TestCleanNodeIsShort(t *testing.T) {
	got := statusText(answer.Node{Name: "n1", Mode: config.Observe, At: clock(10, 0), Last: map[metrics.Hook]time.Time{
		metrics.Prolog: clock(9, 0), metrics.HealthCheck: clock(9, 40), metrics.Epilog: clock(9, 30)}})
	const want = "node n1: mode observe\nlast hooks: prolog 2026-11-21 09:00:00, epilog 2026-11-21 09:30:00, health check 2026-11-21 09:40:00\n" +
		"jobs with GPUs now: 0\nended jobs on record: 0\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
