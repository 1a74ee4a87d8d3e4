package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"bookend/test/must"
)

func TestReadTests(t *testing.T) {
	var have Run
	text := have.read(must.Have(os.ReadFile("testdata/go-test.json"))(t))
	must.Be(t, "the run", have, Run{Passed: 2, Others: []Test{
		{Name: "TestA/two", Outcome: LeftOut, Why: "no such flag: before 24.05"},
		{Name: "TestB", Outcome: Failed, Why: "the user reads nothing"},
		{Name: "TestD", Outcome: Failed, Why: "panic: test timed out after 60m0s"},
	}})
	must.Not(t, !strings.HasPrefix(text, "=== RUN   TestA\n") || !strings.Contains(text, "# a compiler's line\n"),
		"%v", text)
}

// What failed stays visible, and why. The next run of the same Slurm and way of tracking takes its place.
func TestKeptAndShown(t *testing.T) {
	runs := []Run{
		{Slurm: "22.05.8", Track: "linuxproc", Slurms: "Debian 12", Host: "Debian 12", Date: time.Unix(1e9, 0).UTC(),
			Seconds: 59.6, Passed: 1, Others: []Test{{Name: "B", Outcome: LeftOut, Why: "too old"}}},
		{Slurm: "26.05.5", Track: "cgroup/v2", Paths: "SLUID", Slurms: "the next Debian", Host: "Debian 12",
			Commit: "abc", Date: time.Unix(1e9, 0).UTC(), Seconds: 100,
			Passed: 1, Others: []Test{{Name: "A/one", Outcome: Failed, Why: "late `again`"}}},
	}
	dir := t.TempDir()
	for _, r := range []Run{runs[1], runs[0], runs[0]} {
		r.write(dir)
	}
	have := load(dir)
	must.Be(t, "kept", have, runs)
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
	failed, status := []Test{{Name: "B", Outcome: Failed}}, errors.New("exit status 1")
	for _, tt := range []struct {
		others []Test
		err    error
		failed int
	}{{nil, nil, 0}, {nil, status, 1}, {failed, status, 1}} {
		r := Run{Others: tt.others}
		r.blame(tt.err)
		must.Be(t, fmt.Sprintf("%+v, %v", tt.others, tt.err), r.count(Failed), tt.failed)
	}
}

// The page says what the committed results say.
func TestReadme(t *testing.T) {
	want := rendered("../../..")
	if have, err := os.ReadFile("../../../" + tablePage); err != nil || string(have) != want {
		t.Errorf("the page is not what the results say (%v): go run ./test/e2e/versions -page", err)
	}
}
