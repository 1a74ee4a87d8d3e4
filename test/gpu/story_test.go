package main

import (
	"regexp"
	"strings"
	"testing"

	"bookend/test/gpu/runrecord"
)

// TestTales: each story is a scenario that exists, and each scenario in its chain has a title and a sentence.
func TestTales(t *testing.T) {
	for _, names := range []string{"all", usualTales} {
		scenarios, err := askedTales(names)
		if err != nil || checkNames(scenarios) != nil {
			t.Fatal(err, checkNames(scenarios))
		}
		l := lane{options: options{only: scenarios, fake: 1}, cards: make([]card, 1)}
		for _, c := range chains() {
			for _, s := range c.steps {
				if l.wanted(c) && (scenes[s.name][0] == "" || scenes[s.name][1] == "") {
					t.Errorf("%s has no title or no sentence", s.name)
				}
			}
		}
	}
}

// TestTelling: a run in short has its user's lines, the admin's finding, the node's states, and one figure of what was
// checked; what is wrong has a line.
func TestTelling(t *testing.T) {
	screens := []typed{
		{"games$", "cat slurm-2.out", "ready pid=7\n| bookend: WARNING: your job left 20.0 GiB in use on n1 GPU 0\n"},
		{"root#", "bookend show 2", "job 2 on n1\nend: 09:00:00, DRAIN for BKD-ORPHAN (exit 10)\n  GPU 0  test allocation\n" +
			"  BKD-ORPHAN GPU 0: process outlived its job [drain]\n    memory:   20.0 GiB\n"},
		{"root#", "sinfo -R -o '%E %N'", "REASON NODELIST\n"},
	}
	rec := runrecord.Run{Scenario: "orphan-enforce", Checks: []runrecord.Check{{What: "the node", Got: "drained: x", Right: true},
		{What: "the node", Got: "drained: x", Right: true}, {What: "job blamed", Want: "2", Got: "3"}}}
	const want = `
A process stays behind, in enforce mode  2 checks ok
  alice's job ends; a process that it started keeps memory.
  games  | bookend: WARNING: your job left 20.0 GiB in use on n1 GPU 0
  admin  # bookend show 2
         end: 09:00:00, DRAIN for BKD-ORPHAN (exit 10)
           BKD-ORPHAN GPU 0: process outlived its job [drain]
  node   drained: x
  WRONG: job blamed: want "2", got "3"
`
	if got := telling(rec, screens, false); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	coloured := telling(rec, screens, true)
	if plain := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(coloured, ""); plain != want || coloured == want {
		t.Errorf("in colours: %q", coloured)
	}
	if paint := newPaint(&strings.Builder{}); paint {
		t.Error("what is no terminal gets colours")
	}
}
