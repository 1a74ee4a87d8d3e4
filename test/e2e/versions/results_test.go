package main

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"bookend/test/must"
)

func TestReadTests(t *testing.T) {
	have, text := readTests(must.Have(os.ReadFile("testdata/go-test.json"))(t))
	want := []Test{
		{Name: "TestA/one", Outcome: Passed, Seconds: 1.5},
		{Name: "TestA/two", Outcome: LeftOut, Why: "no such flag: before 24.05", Seconds: 0.1},
		{Name: "TestB", Outcome: Failed, Why: "the user reads nothing"},
		{Name: "TestD", Outcome: Failed, Why: "panic: test timed out after 60m0s"},
		{Name: "TestE", Outcome: Passed, Seconds: 4},
	}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("have %+v\nwant %+v", have, want)
	}
	if !strings.HasPrefix(text, "=== RUN   TestA\n") || !strings.Contains(text, "# a compiler's line\n") {
		t.Error(text)
	}
}

// What failed stays visible, and why. The next run of the same Slurm and way of tracking takes its place.
func TestKeptAndShown(t *testing.T) {
	runs := []Run{
		{Slurm: "22.05.8", Track: "linuxproc", Slurms: "Debian 12", Host: "Debian 12", Date: time.Unix(1e9, 0).UTC(),
			Seconds: 59.6, Tests: []Test{{Name: "A", Outcome: Passed}, {Name: "B", Outcome: LeftOut, Why: "too old"}}},
		{Slurm: "26.05.5", Track: "cgroup/v2", Paths: "SLUID", Slurms: "the next Debian", Host: "Debian 12",
			Commit: "abc", Date: time.Unix(1e9, 0).UTC(), Seconds: 100,
			Tests: []Test{{Name: "A/one", Outcome: Failed, Why: "late `again`"}, {Name: "B", Outcome: Passed}}},
	}
	dir := t.TempDir()
	for _, r := range []Run{runs[1], runs[0], runs[0]} {
		r.write(dir)
	}
	have := load(dir)
	if !reflect.DeepEqual(have, runs) {
		t.Errorf("%+v", have)
	}
	rest := table(have)
	for _, part := range []string{
		"| Slurm | from | linuxproc | cgroup/v1 | cgroup/v2 |\n",
		"| 22.05.8 | Debian 12 | 1 of 2, 1 left out; 60 s | not run | not run |\n",
		"1 of 2, **1 failed**; `SLUID`; 100 s |\n",
		"On Debian 12.\n\n", "* 22.05.8 linuxproc: commit unknown\n", "* 26.05.5 cgroup/v2: commit abc\n",
		"* 22.05.8 linuxproc: B left out: `too old`\n",
		"* 26.05.5 cgroup/v2: A/one failed: `late 'again'`\n",
	} {
		_, after, ok := strings.Cut(rest, part)
		if rest = after; !ok {
			t.Fatalf("no %q, in this order, in\n%s", part, table(have))
		}
	}
}

// If "go test" fails and no test does, something else did: nothing compiled, or what ends all tests failed.
func TestBlame(t *testing.T) {
	passed, failed := Test{Name: "A", Outcome: Passed}, Test{Name: "B", Outcome: Failed}
	status := errors.New("exit status 1")
	for _, tt := range []struct {
		tests  []Test
		err    error
		failed int
	}{{[]Test{passed}, nil, 0}, {[]Test{passed}, status, 1}, {[]Test{passed, failed}, status, 1}, {nil, status, 1}} {
		if got := (Run{Tests: blame(tt.tests, tt.err)}).count(Failed); got != tt.failed {
			t.Errorf("%+v, %v: %d failed", tt.tests, tt.err, got)
		}
	}
}

// The page says what the committed results say.
func TestReadme(t *testing.T) {
	want := rendered("../../..")
	if have, err := os.ReadFile("../../../" + tablePage); err != nil || string(have) != want {
		t.Errorf("the page is not what the results say (%v): go run ./test/e2e/versions -page", err)
	}
}
