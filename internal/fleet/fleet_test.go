package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"bookend/internal/page"
	"bookend/internal/safetext"
	"bookend/test/must"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// doc is a status as "bookend status --json" prints it, on one line.
func doc(node, fields string) string {
	return fmt.Sprintf(`{"version": 2, "kind": "status", "node": %q, "at": "2026-11-21T11:00:00Z", %s "mode": "enforce"}`, node, fields)
}

const (
	dirty = `"gpus": [{"state": "LEFTOVER", "memory": {"used": {"bytes": 22011707392}}, "jobs": [], "last": {"job": "4", "at": "2026-11-21T09:00:00Z"},
		"processes": [{"pid": 9351, "name": "train", "user": "alice", "job": "4", "job_ended_at": "2026-11-21T08:59:00Z", "memory": {"bytes": 21474836480}}]},
		{"state": "in use", "memory": {"used": {"bytes": 9000000000}}, "jobs": ["5"], "processes": [{"pid": 7, "memory": {"bytes": 9000000000}}]}],`
	shared = `"gpus": [{"state": "LEFTOVER", "memory": {"used": {"bytes": 90000000000}}, "unexplained": {"bytes": 1073741824}, "jobs": ["6"],
		"processes": [{"pid": 8, "uid": 7, "job_ended_at": "2026-11-21T08:59:00Z", "memory": {"bytes": 1073741824}}, {"pid": 9, "memory": {"bytes": 80000000000}}]}],`
	drained = `"slurm": {"drain": true, "reason": "BKD-ORPHAN gpu=0", "reason_since": "2026-11-21T09:00:00Z"},`
	silent  = `"driver": {"answers": false, "problem": "no answer within 3 s"}, ` + drained
	struck  = `"gpu_faults": [{"repeat_offender": true, "faults": [{}, {}]}, {"faults": [{}]}],`
	trouble = `"troubles": [{"code": "BKD-CONFIG", "title": "configuration is not valid", "said": ["x"], "met": {"since": "2026-11-20T09:00:00Z"}}],`
)

func TestRows(t *testing.T) {
	t.Setenv("TZ", "UTC")
	for name, c := range map[string]struct{ in, want string }{
		"nothing":                          {"", "no answer nothing came from it"},
		"fine":                             {doc("n1", ""), "ok"},
		"leftover of a job that has ended": {doc("n1", dirty), "leftover 20.5 GiB 9351 train (alice) job=4 2026-11-21T08:59:00Z"},
		"leftover under a running job":     {doc("n1", shared), "leftover 2.0 GiB 8 ? (uid 7) 2026-11-21T08:59:00Z"},
		"drained, dirty":                   {doc("n1", drained+dirty), "drained 20.5 GiB 9351 train (alice) job=4 2026-11-21T09:00:00Z BKD-ORPHAN gpu=0"},
		"driver":                           {doc("n1", silent), "no driver no answer within 3 s"},
		"struck":                           {doc("n1", struck), "faulty strikes=3 repeat offenders: 1; bookend rma"},
		"trouble":                          {doc("n1", trouble), "trouble 2026-11-20T09:00:00Z BKD-CONFIG configuration is not valid"},
		"quarantine": {doc("n1", `"troubles": [{"said": ["GPU 3 is in quarantine since x, held by job 9: ticket 17"]}],`),
			"trouble GPU 3 is in quarantine since x, held by job 9: ticket 17"},
		"damaged":              {doc("n1", `"damaged": ["a"],`), "trouble damaged records: 1"},
		"of an older release":  {doc("n1", `"gpus": [{"memory": {"used": {"bytes": 9}}}],`), "ok"},
		"with its prefix":      {"n1: " + doc("n1", drained), "drained 2026-11-21T09:00:00Z BKD-ORPHAN gpu=0"},
		"domain in its prefix": {"n1.example.org: " + doc("n1", ""), "ok"},
		"indented, prefixed":   {"n1: {\nn1:   \"version\": 2, \"kind\": \"status\",\nn1:   \"node\": \"n1\"\nn1: }", "ok"},
		"another node's":       {"n1: " + doc("n2", ""), `no answer answers as node "n2"`},
		"text of a shell":      {"n1: bash: line 1: bookend: command not found", `no answer not a document of bookend status: "bash: line 1: bookend: command not found"`},
		"text before it":       {"n1: Welcome to n1\nn1: " + doc("n1", drained), "drained 2026-11-21T09:00:00Z BKD-ORPHAN gpu=0"},
		"text after it":        {"n1: " + doc("n1", "") + "\nn1: oops", "ok"},
		"cut":                  {"n1: " + doc("n1", "")[:60], "no answer not a document"},
		"later version":        {`{"version": 3, "kind": "status", "node": "n1"}`, "no answer document of version 3, this program reads 2"},
		"another kind":         {`{"version": 2, "kind": "show", "node": "n1"}`, `no answer a document of kind "show", want bookend status --json`},
		"no object":            {"n1: [1]", "no answer not a document"},
		"a name that would forge a row": {doc("n1", strings.ReplaceAll(dirty, "train", `a\nn2 ok\t`)),
			`leftover 20.5 GiB 9351 a\x0an2 ok\x09 (alice) job=4 2026-11-21T08:59:00Z`},
		"old before new": {doc("n1", drained) + strings.Replace(doc("n1", ""), "T11", "T12", 1), "ok"},
		"new before old": {strings.Replace(doc("n1", ""), "T11", "T12", 1) + doc("n1", drained), "ok"},
		"history alone":  {`{"version": 2, "kind": "history", "node": "n1", "runs": []}`, "no answer its history came, not its status"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Read(strings.NewReader(c.in), []string{"n1"}, noon, true)
			must.Do(t, err)
			n := safetext.KeepAll(f.Nodes[0], 400)
			got := string(n.Verdict)
			for _, part := range []string{strings.Trim(n.leftText(), "-"), n.Holder, after("job=", n.Job), after("strikes=", fmt.Sprint(n.Strikes)), stamp(n.Since), n.Reason} {
				if part != "" && part != "strikes=0" {
					got += " " + part
				}
			}
			if len(f.Nodes) != 1 || n.Node != "n1" || !strings.HasPrefix(got, c.want) || f.Sound() != (n.Verdict == OK) {
				t.Errorf("%d nodes, %s: %s\nwant %s", len(f.Nodes), n.Node, got, c.want)
			}
		})
	}
}

func after(name, text string) string {
	if text == "" {
		return ""
	}
	return name + text
}

func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// The lines of several nodes are mixed, as those of a command that asks many at once.
func TestText(t *testing.T) {
	t.Setenv("TZ", "UTC")
	in := "n2: {\nn10: {\nn2: \"version\": 2, \"kind\": \"status\", \"node\": \"n2\"}\n" +
		"n10: \"version\": 2, \"kind\": \"status\", \"node\": \"n10\"}\n" + doc("n1", drained) + "\n" + doc("n3", dirty)
	f, err := Read(strings.NewReader(in), []string{"n1", "n7", ""}, noon, false)
	must.Do(t, err)
	var b bytes.Buffer
	f.Text(&b)
	const want = `NODE  STATE      SINCE        LEFTOVER  HOLDER              JOB  STRIKES  REASON
n7    no answer  -            -         -                   -    -        nothing came from it
n1    drained    11-21 09:00  -         -                   -    -        BKD-ORPHAN gpu=0
n3    leftover   11-21 08:59  20.5 GiB  9351 train (alice)  4    -        -
nodes: 5: 1 no answer, 1 drained, 1 leftover, 2 ok
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

// An empty line ends a round. A node that has answered has a row in each later round, and what is new is marked.
func TestRounds(t *testing.T) {
	t.Setenv("TZ", "UTC")
	const head = "NODE  STATE"
	for name, c := range map[string]struct{ in, want string }{
		"nothing":                  {"", "12:01:00\nnodes: 0: nothing came from bookend status --json\n"},
		"nothing in a round":       {"\n" + doc("n1", ""), "12:01:00\nnodes: 0: nothing came from bookend status --json\n12:02:00\nnodes: 1: 1 ok\n"},
		"no end":                   {"\r\n\n" + doc("n1", "") + "\n", "12:01:00\nnodes: 0: nothing came from bookend status --json\n12:02:00\nnodes: 0: nothing came from bookend status --json\n12:03:00\nnodes: 1: 1 ok\n"},
		"sound":                    {"n1: " + doc("n1", "") + "\n\nn1: " + doc("n1", "") + "\n\n", "12:01:00\nnodes: 1: 1 ok\n12:02:00\nnodes: 1: 1 ok\n"},
		"a prefix alone ends none": {"n1: \nn1: " + doc("n1", "") + "\nn2:\n \nn2: " + doc("n2", "") + "\n\n", "12:01:00\nnodes: 2: 2 ok\n"},
		"a problem comes and goes": {doc("n1", "") + "\n\n" + doc("n1", drained) + "\n\n" + doc("n1", drained) + "\n\n" + doc("n1", "") + "\n\n" + doc("n1", ""),
			"12:01:00\nnodes: 1: 1 ok\n" +
				"12:02:00\n" + head + "            SINCE        LEFTOVER  HOLDER  JOB  STRIKES  REASON\nn1    drained, was ok  11-21 09:00  -         -       -    -        BKD-ORPHAN gpu=0\nnodes: 1: 1 drained\n" +
				"12:03:00\n" + head + "    SINCE        LEFTOVER  HOLDER  JOB  STRIKES  REASON\nn1    drained  11-21 09:00  -         -       -    -        BKD-ORPHAN gpu=0\nnodes: 1: 1 drained\n" +
				"12:04:00\n" + head + "            SINCE  LEFTOVER  HOLDER  JOB  STRIKES  REASON\nn1    ok, was drained  -      -         -       -    -        -\nnodes: 1: 1 ok\n" +
				"12:05:00\nnodes: 1: 1 ok\n"},
		"falls silent, with words of no node's": {doc("n1", "") + "\noops: no\n\n\n",
			"12:01:00\n" + head + "      SINCE  LEFTOVER  HOLDER  JOB  STRIKES  REASON\noops  no answer  -      -         -       -    -        not a document of bookend status: \"no\"\nnodes: 2: 1 no answer, 1 ok\n" +
				"12:02:00\n" + head + "              SINCE  LEFTOVER  HOLDER  JOB  STRIKES  REASON\nn1    no answer, was ok  -      -         -       -    -        nothing came from it\nnodes: 1: 1 no answer\n"},
		"twice in a round": {doc("n1", drained) + "\n" + strings.Replace(doc("n1", ""), "T11", "T12", 1) + "\n\n", "12:01:00\nnodes: 1: 1 ok\n"},
	} {
		at := noon
		clock := func() time.Time { at = at.Add(time.Minute); return at }
		rounds, text := NewRounds(strings.NewReader(c.in), nil, clock, false), ""
		for {
			f, more, err := rounds.Next()
			must.Do(t, err)
			if !more {
				break
			}
			var b bytes.Buffer
			f.Text(&b)
			text += strings.TrimPrefix(b.String(), "2026-11-21 ")
		}
		must.Be(t, name, text, c.want)
	}
	rounds := NewRounds(strings.NewReader("\n"), []string{"n7"}, noonAlways, false)
	f, more, err := rounds.Next()
	must.Not(t, err != nil || !more || f.Sound() || len(f.Nodes) != 1 || f.Nodes[0].Was != "", "%v, %v: %+v", more, err, f)
	failing := io.MultiReader(strings.NewReader("\n"+doc("n1", "")+"\n"), iotest.ErrReader(errors.New("gone")))
	rounds = NewRounds(failing, nil, noonAlways, false)
	_, more, err = rounds.Next()
	must.Not(t, err != nil || !more, "%v, %v", more, err)
	_, more, err = rounds.Next() // a part of a round is not shown as if it were whole
	must.Not(t, err == nil || more, "%v, %v", more, err)
}

// What one node prints hides no other node.
func TestOddNode(t *testing.T) {
	for name, in := range map[string]string{
		"a line too long":  "n2: {" + strings.Repeat("x", 3*mostLine) + "}\n" + doc("n1", ""),
		"long, no names":   "{" + strings.Repeat("x", 3*mostLine) + "}\n" + doc("n1", ""),
		"words, no names":  "bash: oops\n" + doc("n1", ""),
		"cut, no names":    doc("n2", "")[:60] + "\n" + doc("n1", ""),
		"the last is long": doc("n1", "") + "\nn2: " + strings.Repeat("x", 3*mostLine),
	} {
		f, err := Read(strings.NewReader(in), nil, noon, true)
		must.Do(t, err)
		if len(f.Nodes) != 2 || f.Nodes[0].Verdict != NoAnswer || f.Nodes[1].Node != "n1" || f.Nodes[1].Verdict != OK {
			t.Errorf("%s: %.300v", name, f.Nodes)
		}
	}
}

func TestHTML(t *testing.T) {
	history := `{"version": 2, "kind": "history", "node": "n1", "runs": [{"ended_at": "2026-11-21T01:00:00Z", "end": {"action": "warn"},
		"start": {"action": "drain"}}, {"ended_at": "2026-11-15T01:00:00Z", "end": {"action": "ignore"}}, {"ended_at": "2026-11-14T23:00:00Z"},
		{"ended_at": "2026-11-22T00:00:01Z"}, {}]}`
	f, err := Read(strings.NewReader(doc("n1", strings.ReplaceAll(dirty, "train", "<script>"))+history), nil, noon, false)
	must.Do(t, err)
	if got := fmt.Sprint(f.Nodes[0].Week); got != "[{1 } {0 } {0 } {0 } {0 } {0 } {1 drain}]" {
		t.Error(got)
	}
	var b bytes.Buffer
	must.Do(t, f.HTML(&b, noon, page.Style, page.Policy))
	if page := b.String(); strings.Contains(page, "<script>") || strings.Count(page, "<rect") != 7 ||
		!strings.Contains(page, "&lt;script&gt;") || strings.Contains(page, "ZgotmplZ") {
		t.Error(page)
	}
}

func noonAlways() time.Time { return noon }

func FuzzRead(f *testing.F) {
	f.Add("n1: "+doc("n1", dirty), "n1")
	f.Add(doc("n1", silent)+"\n{}[", "")
	f.Add(doc("n1", `"ended": [{"state": "ended", "findings": [{"code": "BKD-GAP", "action": "warn", "index": -1, "bytes": {"bytes": 9}}]}],`), "")
	f.Fuzz(func(t *testing.T, in, wanted string) {
		all, err := Read(strings.NewReader(in), []string{wanted}, noon, true)
		sum := 0
		for _, n := range all.Counts {
			sum += n
		}
		var b bytes.Buffer
		safetext.KeepAll(all, 400).Text(&b)
		if lines := strings.Count(b.String(), "\n"); err == nil && (sum != len(all.Nodes) || lines != sum+2 && sum > 0) {
			t.Errorf("%d lines for %d nodes, %d counted", lines, len(all.Nodes), sum)
		}
		shown, rounds := 0, NewRounds(strings.NewReader(in), []string{wanted}, noonAlways, false)
		for _, more, _ := rounds.Next(); more; _, more, _ = rounds.Next() {
			shown++
		}
		if most := strings.Count(in, "\n") + 1; shown > most {
			t.Errorf("%d rounds, want at most %d", shown, most)
		}
		remarks, _ := Remarks(strings.NewReader(in), func(code string) bool { return code == "BKD-GAP" })
		for _, r := range remarks {
			text := strings.TrimPrefix(r.Text, r.Node+": ")
			if strings.Trim(text, "BKDGAPguip 0123456789.+-") != "" || len(text) > 100 {
				t.Errorf("%q", text)
			}
		}
	})
}

func BenchmarkRead1000(b *testing.B) {
	var in bytes.Buffer
	for i := range 1000 {
		node := fmt.Sprintf("n%d", i)
		for line := range strings.Lines(strings.ReplaceAll(doc(node, strings.Repeat(dirty, 4)+drained), ",", ",\n")) {
			fmt.Fprintf(&in, "%s: %s\n", node, strings.TrimSpace(line))
		}
	}
	b.SetBytes(int64(in.Len()))
	for b.Loop() {
		f, err := Read(bytes.NewReader(in.Bytes()), nil, noon, false)
		if err != nil || f.Counts[Drained] != 1000 {
			b.Fatal(err, f.Counts)
		}
	}
}
