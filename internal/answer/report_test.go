package answer

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/policy"
	"bookend/internal/settle"
	"bookend/internal/state"
	"bookend/internal/timeline"
)

// leftBy is a day of alice's job 7, whose process stays with 20 GiB, and of bob's job 8, which finds it. Claims are
// words of Bookend's own in a record, text is what it was told.
func leftBy(text, claim string) []ledger.Run {
	left, next := job(7, 1001, 1, 0), job(8, 1002, 3, 0)
	left.Job.User, next.Job.User = "alice", "bob"
	holder := finding.Holder{Process: attrib.Process{PID: 4711, UID: 1001, Name: text, Start: time.Second}, Memory: gpu.Bytes(20 << 30)}
	by := finding.Owner{Job: 7, UID: 1001, Level: attrib.Level(claim)}
	found := func(c code.Code) finding.Finding {
		return finding.Finding{Code: c, GPU: "GPU-0", Bytes: gpu.Bytes(20 << 30), Holder: &holder, Owner: &by, Observed: text,
			Candidates: []finding.Holder{{Process: attrib.Process{PID: 5, UID: 1002, Name: text}, Memory: gpu.Unknown(text), Owner: &by, Open: []string{text}}}}
	}
	spoil := func(e *ledger.End, f ...finding.Finding) {
		e.Snapshot.Readings[0].Memory.Used, e.Findings = gpu.Bytes(20<<30), f
		e.Curves = map[gpu.ID]settle.Curve{"GPU-0": {State: settle.Flat}}
		e.Verdict.Judged = []policy.Judged{{Action: config.Drain, Why: text}, {Action: config.Action(claim)}}
	}
	left.Start.Curves, left.Start.Snapshot = map[gpu.ID]settle.Curve{"GPU-0": {State: settle.Clean}}, left.Ends[0].Snapshot
	left.Start.Snapshot.Readings = slices.Clone(left.Start.Snapshot.Readings)
	left.Start.Snapshot.Readings[0].Memory.Used = gpu.Bytes(0)
	next.Start.Snapshot = next.Ends[0].Snapshot
	spoil(&left.Ends[0], found(code.Orphan), finding.Finding{Code: code.Code(claim), Unknown: text})
	left.Ends[0].Verdict.Action, left.Ends[0].Verdict.Exit, left.Ends[0].Verdict.Code = config.Drain, 10, code.Orphan
	spoil(next.Start, found(code.Dirty))
	spoil(&next.Ends[0])
	return []ledger.Run{next, left}
}

func reported(t *testing.T, text, claim string, users bool) (Report, string) {
	t.Helper()
	runs := leftBy(text, claim)
	r := NewReport(Telling{
		Node: "n1", Release: "1.2", Made: morning.Add(9 * time.Hour), Users: users, People: []string{"alice", "bob"}, Lemons: []gpu.ID{"GPU-0"},
		Damaged: []state.Damage{{Path: "/home/alice/7-w.json", Why: text}}, Chart: timeline.Lay(runs, timeline.Request{Now: morning.Add(9 * time.Hour)}),
	})
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(data)
}

// The document has what the page draws: jobs, what stayed and until when, findings with their outcome.
func TestReport(t *testing.T) {
	r, _ := reported(t, "train", "sighting", true)
	lane := r.Cards[0]
	if r.Jobs != 2 || r.Drains != 1 || len(r.Cards) != 1 || !lane.Lemon || lane.LeftBytes != 20<<30 || lane.LeftSeconds <= 0 || len(lane.Stays) != 2 || len(r.Findings) != 3 || len(r.Codes) != 3 {
		t.Fatalf("%+v", r)
	}
	if s := lane.Stays[0]; s.Job != "7" || s.Jobs != 1 || s.User != "alice" || !s.From.Equal(morning.Add(time.Hour)) || !s.To.Equal(morning.Add(2*time.Hour)) || !s.StartSeen || !s.EndSeen || s.Findings != 1 {
		t.Errorf("%+v", s)
	}
	if l := lane.Left[0]; *l.Bytes != 20<<30 || l.By != "a hook of job 7" || !l.From.Equal(morning.Add(2*time.Hour)) {
		t.Errorf("%+v", l)
	}
	first := r.Findings[len(r.Findings)-2]
	if first.Phase != "end" || first.Job != "7" || first.User != "alice" || !first.Drained || first.Code != code.Orphan || *first.Process.UID != 1001 || *first.Owner.UID != 1001 ||
		!first.Process.StartedAt.Equal(first.At.Add(time.Second-leftBy("", "")[1].Ends[0].At)) {
		t.Errorf("%+v", first)
	}
}

// Users are named only where that is asked for: neither by name, wherever it stands, nor by number.
func TestReportNamesNobody(t *testing.T) {
	_, text := reported(t, "/home/alice/train.bob", "BKD-NEW", false)
	for _, secret := range []string{"alice", "bob", "1001", "1002"} {
		if strings.Contains(text, secret) {
			t.Errorf("names %s: %s", secret, text)
		}
	}
	if !strings.Contains(text, "/home/(user)/train.(user)") || !strings.Contains(text, "users are not named") {
		t.Errorf("%s", text)
	}
	if _, named := reported(t, "/home/alice/train.bob", "BKD-NEW", true); !strings.Contains(named, "/home/alice/train.bob") || !strings.Contains(named, `"uid":1001`) {
		t.Errorf("not named: %s", named)
	}
}

// A copy of records is somebody's claim: nothing in it is for a terminal to act on.
func TestReportOfHostileRecords(t *testing.T) {
	_, text := reported(t, "\x1b[2J\u202e\x7f\n", "\x1b[2J\u202e\x7f\n", true)
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) || strings.Contains(text, `\u`) || strings.Contains(text, `\n`) || !strings.Contains(text, `\\x1b[2J\\xe2\\x80\\xae\\x7f\\x0a`) {
		t.Errorf("%q", text)
	}
}
