package results

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const said = `{"Action":"start","Package":"bookend/test/e2e"}
{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"run","Test":"TestA/one"}
{"Action":"pass","Test":"TestA/one","Elapsed":1.5}
{"Action":"run","Test":"TestA/two"}
{"Action":"output","Test":"TestA/two","Output":"    a_test.go:7: no such flag:\n"}
{"Action":"output","Test":"TestA/two","Output":"        before 24.05\n"}
{"Action":"output","Test":"TestA/two","Output":"--- SKIP: TestA/two (0.10s)\n"}
{"Action":"skip","Test":"TestA/two","Elapsed":0.1}
{"Action":"pass","Test":"TestA","Elapsed":1.6}
# a compiler's line
{"Action":"run","Test":"TestB"}
{"Action":"run","Test":"TestB/part"}
{"Action":"output","Test":"TestB/part","Output":"    b_test.go:3: the user reads\n"}
{"Action":"output","Test":"TestB/part","Output":"        nothing\n"}
{"Action":"output","Test":"TestB/part","Output":"    b_test.go:4: and then\n"}
{"Action":"output","Test":"TestB/part","Output":"        something else\n"}
{"Action":"fail","Test":"TestB/part","Elapsed":2}
{"Action":"fail","Test":"TestB","Elapsed":2}
{"Action":"run","Test":"TestC"}
{"Action":"run","Test":"TestC/part"}
{"Action":"pass","Test":"TestC/part","Elapsed":2}
{"Action":"fail","Test":"TestC","Elapsed":3}
{"Action":"run","Test":"TestD"}
{"Action":"output","Test":"TestD","Output":"panic: test timed out after 60m0s\n"}
{"Action":"output","Test":"TestE","Output":"    e_test.go:9: a remark of one that passes\n"}
{"Action":"pass","Test":"TestE","Elapsed":4}
{"Action":"fail","Elapsed":9}
`

func TestRead(t *testing.T) {
	var log strings.Builder
	have, err := Read(strings.NewReader(said), &log)
	want := []Test{
		{Name: "TestA/one", Outcome: Passed, Why: "", Seconds: 1.5},
		{Name: "TestA/two", Outcome: LeftOut, Why: "no such flag: before 24.05", Seconds: 0.1},
		{Name: "TestB/part", Outcome: Failed, Why: "the user reads nothing", Seconds: 2},
		{Name: "TestC/part", Outcome: Passed, Why: "", Seconds: 2},
		{Name: "TestD", Outcome: Failed, Why: "test timed out after 60m0s", Seconds: 0},
		{Name: "TestE", Outcome: Passed, Why: "", Seconds: 4},
	}
	// The whole of C failed where no part did: what it found counts too.
	want = append(want[:3], append([]Test{{Name: "TestC", Outcome: Failed, Why: "", Seconds: 3}}, want[3:]...)...)
	if err != nil || !reflect.DeepEqual(have, want) {
		t.Errorf("have %+v\nwant %+v\n%v", have, want, err)
	}
	for _, w := range []string{"=== RUN   TestA\n", "# a compiler's line\n"} {
		if !strings.Contains(log.String(), w) {
			t.Errorf("the log lacks %q:\n%s", w, log.String())
		}
	}
}

var two = []Run{
	{Slurm: "22.05.8", Track: "linuxproc", Slurms: "Debian 12", Host: "Debian 12", Date: time.Unix(1e9, 0).UTC(), Seconds: 59.6,
		Tests: []Test{{Name: "A", Outcome: Passed, Why: "", Seconds: 1}, {Name: "B", Outcome: LeftOut, Why: "too old", Seconds: 0}}},
	{Slurm: "26.05.5", Track: "cgroup/v2", Paths: "SLUID", Slurms: "the next Debian", Host: "Debian 12", Date: time.Unix(1e9, 0).UTC(), Seconds: 100,
		Tests: []Test{{Name: "A", Outcome: Passed, Why: "", Seconds: 1}, {Name: "B", Outcome: Failed, Why: "", Seconds: 0}}},
}

func TestKept(t *testing.T) {
	dir := t.TempDir()
	for _, r := range []Run{two[1], two[0], two[0]} {
		if err := r.Write(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "26.05-cgroup-v2.json")); err != nil {
		t.Error(err)
	}
	if have, err := Load(dir); err != nil || !reflect.DeepEqual(have, two) {
		t.Errorf("%+v, %v", have, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if have, err := Load(dir); err == nil || !strings.Contains(err.Error(), "x.json") {
		t.Errorf("%+v, %v", have, err)
	}
}

func TestTables(t *testing.T) {
	wantParts(t, List(two),
		"22.05.8   linuxproc  -             2       1       0         1     60 s\n",
		"26.05.5   cgroup/v2  SLUID         2       1       1         0    100 s\n",
		"left out on 22.05.8, linuxproc: B: too old\n", "failed on 26.05.5, cgroup/v2: B\n")
	wantParts(t, Page(two),
		"| Slurm | from | linuxproc | cgroup/v1 | cgroup/v2 |\n",
		"| 22.05.8 | Debian 12 | 1 of 2, 1 left out; 60 s | not run | not run |\n",
		"| 26.05.5 | the next Debian | not run | not run | 1 of 2, **1 failed**; `SLUID`; 100 s |\n",
		"On Debian 12.\n\n",
		"* all: commit unknown\n",
		"* 22.05.8 linuxproc: B left out: `too old`\n", "* 26.05.5 cgroup/v2: B failed\n")
	wantParts(t, Page(nil), "Nothing has run yet.")
}

func wantParts(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, p := range parts {
		_, after, ok := strings.Cut(rest, p)
		if !ok {
			t.Errorf("no %q, in this order, in\n%s", p, text)
		}
		rest = after
	}
}

func TestPut(t *testing.T) {
	page := "before\n" + begin + "old\n" + end + "after\n"
	have, err := Put(page, two)
	if want := "before\n" + begin + Page(two) + end + "after\n"; err != nil || have != want {
		t.Errorf("%q, %v", have, err)
	}
	if _, err := Put("no marks\n", two); err == nil {
		t.Error("a page without marks was taken")
	}
}

// What failed in a crowd is run again alone: that it needed that stays visible, and why.
func TestRetry(t *testing.T) {
	r := Run{Slurm: "24.11.5", Track: "linuxproc", Commit: "abc", Tests: []Test{
		{Name: "TestA/one", Outcome: Failed, Why: "late `again`"}, {Name: "TestA/two", Outcome: Passed},
		{Name: "TestB", Outcome: Failed}, {Name: "TestC/v2", Outcome: Failed, Why: "no Slurm"}, {Name: "TestD", Outcome: Passed},
		{Name: Whole, Outcome: Failed, Why: "exit status 1"},
	}}
	if names := r.Failed(); !reflect.DeepEqual(names, []string{"TestA", "TestB", "TestC"}) {
		t.Errorf("to run again: %q", names)
	}
	r.Retry([]Test{
		{Name: "TestA/one", Outcome: Passed, Seconds: 7}, {Name: "TestA/two", Outcome: Passed}, {Name: "TestB", Outcome: Failed},
		{Name: "TestC/v2", Outcome: Passed},
	})
	if passed, failed, again := r.Count(Passed), r.Count(Failed), r.Again(); passed != 4 || failed != 2 || again != 2 {
		t.Errorf("%d passed, %d failed, %d at a second try; want 4, 2 and 2: %+v", passed, failed, again, r.Tests)
	}
	wantParts(t, List([]Run{r}), "passed at the second try on 24.11.5, linuxproc: TestA/one: late `again`\n",
		"failed at the second try on 24.11.5, linuxproc: TestB\n")
	wantParts(t, Page([]Run{r}), "4 of 6, **2 failed**, 2 of them at a second try", "* 24.11.5 linuxproc: commit abc\n",
		"* 24.11.5 linuxproc: go test failed: `exit status 1`\n",
		"* 24.11.5 linuxproc: TestA/one passed at the second try: `late 'again'`\n",
		"* 24.11.5 linuxproc: TestC/v2 passed at the second try: `no Slurm`\n")
}

// Where "go test" fails and no test does, something else did: nothing compiled, or what ends all tests failed.
func TestBlame(t *testing.T) {
	passed, failed := Test{Name: "A", Outcome: Passed}, Test{Name: "B", Outcome: Failed}
	status := errors.New("exit status 1")
	for _, tt := range []struct {
		tests  []Test
		err    error
		failed int
	}{{[]Test{passed}, nil, 0}, {[]Test{passed}, status, 1}, {[]Test{passed, failed}, status, 1}, {nil, status, 1}} {
		if r := (Run{Tests: Blame(tt.tests, tt.err)}); r.Count(Failed) != tt.failed {
			t.Errorf("%+v, %v: %+v", tt.tests, tt.err, r.Tests)
		}
	}
}
