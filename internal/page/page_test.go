package page

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/test/must"
	"bookend/test/page/inspect"
)

// TestMain shows all times in one time zone, wherever the tests run.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

var made = time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)

// runsOf are a node's records, with a text wherever hooks take over what a user, a process or a backend says.
func runsOf(t testing.TB, text string) (runs []record.Run) {
	t.Helper()
	quoted := must.Have(json.Marshal(text))(t)
	outside := must.Read(t, "testdata/outside.json")
	must.Do(t, json.Unmarshal([]byte(strings.ReplaceAll(outside, "OUTSIDE", string(quoted[1:len(quoted)-1]))), &runs))
	return runs
}

func pageOf(t testing.TB, r Page) inspect.Page {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, r.Write(&b))
	return inspect.Read(b.Bytes())
}

func reportOf(t testing.TB, text string) Page {
	runs := runsOf(t, text)
	c := Lay(runs, Request{Now: made})
	return Page{Node: text, Chart: c, Offenders: []gpu.ID{runs[0].Devices[0].Device.ID},
		Damaged: []string{text + ": " + text}, Made: made, Version: text, Users: true}
}

// hostile texts would end an element, an attribute, a script or a style, or load something.
var hostile = []string{
	`</title></style></script><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'><svg onload=alert(1)>`,
	`javascript:alert(1)`,
	`url(//evil)`, `--></textarea><!--`, `{{.}}`, "\x1b[2J\x00\n\r\u202e\xff", `&lt;b&gt;`, `]]>`,
	`x" href="//evil" y="`,
}

// Whatever stands in a record, it makes no element, no attribute and no link.
func TestHostile(t *testing.T) {
	plain := pageOf(t, reportOf(t, "python3"))
	if len(plain.Problems) > 0 || len(plain.Tags) < 200 || !slices.Contains(plain.Tags, "table") {
		t.Fatalf("%q, %d elements", plain.Problems, len(plain.Tags))
	}
	for _, text := range hostile {
		p := pageOf(t, reportOf(t, text))
		problems := slices.DeleteFunc(p.Problems,
			func(s string) bool { return strings.Contains(s, "aria-label=") || strings.Contains(s, "data:") })
		if len(problems) > 0 {
			t.Errorf("%q: %q", text, problems)
		}
		if !slices.Equal(p.Tags, plain.Tags) {
			t.Errorf("%q: %d elements, want the %d there are with a plain text", text, len(p.Tags), len(plain.Tags))
		}
		if i := strings.IndexFunc(p.Text,
			func(c rune) bool { return c != '\n' && (c < ' ' || c > '~') }); i >= 0 {
			t.Errorf("%q: shown as %q", text, p.Text[max(0, i-20):i+20])
		}
	}
}

func FuzzPage(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	plain := pageOf(f, reportOf(f, "python3"))
	f.Fuzz(func(t *testing.T, text string) {
		if strings.HasPrefix(text, "BKD-") || slices.Contains([]string{"", "GPU-2", "drain", "note", "ignore", "cgroup",
			"sighting", "exclusive", "environment"}, text) {
			return // means something
		}
		p := pageOf(t, reportOf(t, text))
		if !slices.Equal(p.Tags, plain.Tags) {
			t.Errorf("%q: %d elements, want %d", text, len(p.Tags), len(plain.Tags))
		}
	})
}

// Users are named only where that is asked for, wherever their names stand: also of one whose home has the records.
func TestUsersAreNotNamed(t *testing.T) {
	r := reportOf(t, "python3")
	r.People, r.Damaged = []string{"alice.smith", "root", ""}, []string{"/home/alice.smith/n7: cut off"}
	r.Chart.Entries[0].Finding.Observed, r.Chart.Entries[0].User = "/home/alice.smith/x of alice.smithy", "alice.smith"
	r.Chart.Lanes[0].Blocks[0].User = "alice.smith"
	if text := pageOf(t, r).Text; strings.Count(text, "of alice.smith") != 4 {
		t.Errorf("not named in the block, the mark, and the finding's user and text: %q", text)
	}
	r.Users = false
	text := pageOf(t, r).Text
	if strings.Contains(strings.ReplaceAll(text, "of alice.smithy", ""), "alice") ||
		!strings.Contains(text, "/home/(user)/x of alice.smithy") || !strings.Contains(text, "/home/(user)/n7: cut off") {
		t.Errorf("%q", text)
	}
}

func TestOutcome(t *testing.T) {
	for want, e := range map[string]Entry{
		"warned":              {Judged: record.Judged{Action: config.Warn}},
		"warned, not drained": {Judged: record.Judged{Action: config.Warn, Why: "another job could own it"}},
		"noted":               {Judged: record.Judged{Action: config.Note}},
		"would drain":         {Judged: record.Judged{Action: config.Drain}},
		"drained the node":    {Judged: record.Judged{Action: config.Drain}, Drained: true},
	} {
		if got := outcome(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What there is nothing of is said, and no page is half a page.
func TestEmpty(t *testing.T) {
	runs := runsOf(t, "python3")
	quiet := runsOf(t, "python3")
	quiet[0].Ends[0].Findings = nil
	for name, tt := range map[string]struct {
		runs []record.Run
		ask  Request
		want string
		not  string
	}{
		"no records": {nil, Request{}, "No records yet", "000"},
		"none in this time": {runs, Request{Now: made, Since: made.Add(-time.Hour)}, "left on the GPU",
			"No records yet"},
		"nothing was found":               {quiet, Request{Now: made}, "No hook found anything", "What they mean"},
		"a job by its user's name for it": {runs, Request{Now: made}, "Job 6_1", "Job 7"},
		"GPUs, but no jobs": {quiet, Request{Now: made, Since: made.Add(-time.Hour)},
			"Nothing on record in this time", "What they mean"},
	} {
		p := pageOf(t, Page{Node: "n1", Chart: Lay(tt.runs, tt.ask), Made: made, Version: "v1"})
		if len(p.Problems) > 0 || !strings.Contains(p.Text, tt.want) || strings.Contains(p.Text, tt.not) {
			t.Errorf("%s: %q, want %q and no %q in\n%s", name, p.Problems, tt.want, tt.not, p.Text)
		}
	}
}

// Of more findings than a table can have the latest are in it, and it is said. Every mark leads somewhere.
func TestManyFindings(t *testing.T) {
	run := runsOf(t, "python3")[0]
	run.Ends[0].Findings = slices.Repeat(run.Ends[0].Findings, 300)
	p := pageOf(t, Page{Node: "n1", Chart: Lay([]record.Run{run}, Request{Now: made}), Made: made, Version: "v1"})
	rows := len(slices.DeleteFunc(p.Tags, func(tag string) bool { return tag != "tr" }))
	if len(p.Problems) > 0 || !strings.Contains(p.Text, "The latest 500 of 1200 findings") || rows != 500+1 {
		t.Errorf("%q, %d rows", p.Problems, rows)
	}
}

func TestHide(t *testing.T) {
	for _, tt := range []struct {
		text, want string
		names      []string
	}{
		{"alice alice", "(user) (user)", []string{"alice"}},
		{"malice alices alice2 Alice", "malice alices alice2 Alice", []string{"alice"}},
		{"/home/alice/bob.out", "/home/(user)/(user).out", []string{"alice", "bob"}},
		{"user", "(user)", []string{"user"}},
		{"/home/ann-lee/ann", "/home/(user)/(user)", []string{"ann-lee", "ann"}},
		{"root (user)", "root ((user))", []string{"root", "user"}},
		{"", "", []string{"", "alice"}},
	} {
		if got := (sheet{people: namesOf(tt.names)}).Text(tt.text); string(got) != tt.want {
			t.Errorf("%q without %q: %q, want %q", tt.text, tt.names, got, tt.want)
		}
	}
}
