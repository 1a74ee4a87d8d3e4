package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

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

// What failed stays visible, and why. The next run of the same branch of Slurm and way of tracking takes its place.
func TestPage(t *testing.T) {
	const head = "Tested.\n" + begin + "| Slurm | from | linuxproc | cgroup/v1 | cgroup/v2 |\n| --- | --- | --- | --- | --- |\n"
	have := head + "| 22.05.8 | Debian 12 | not run | not run | not run |\n| 26.05.5 | the next | a | b | c |\n\n" +
		"* 22.05.8 cgroup/v2: of old\n* 26.05.5 cgroup/v2: of old\n" + end + "Rest.\n"
	for _, r := range []Run{
		{Slurm: "22.05.9", Track: "linuxproc", Host: "here", Commit: "abc", Seconds: 59.6, Passed: 1,
			Others: []Test{{"B", LeftOut, "too old"}}},
		{Slurm: "26.05.6", Track: "cgroup/v2", Paths: "SLUID", Host: "here", Commit: "abc+", Seconds: 100, Passed: 1,
			Others: []Test{{"A/one", Failed, "late `again`"}}},
	} {
		have = r.on(r.on(have))
	}
	must.Be(t, "page", have, head+"| 22.05.9 | Debian 12 | 1 of 2, 1 left out; 60 s | not run | not run |\n"+
		"| 26.05.6 | the next | a | b | 1 of 2, **1 failed**; `SLUID`; 100 s |\n\n* 22.05.8 cgroup/v2: of old\n"+
		"* 22.05.9 linuxproc: commit abc on here; B left out: `too old`\n"+
		"* 26.05.6 cgroup/v2: commit abc+ on here; A/one failed: `late 'again'`\n"+end+"Rest.\n")
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

// The page has a row of each release.
func TestRows(t *testing.T) {
	for _, r := range releases {
		Run{Slurm: r + ".1", Track: tracks[0]}.on(must.Read(t, "../../../"+page))
	}
}
