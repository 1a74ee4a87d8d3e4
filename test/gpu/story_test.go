package main

import (
	"strings"
	"testing"

	"bookend/test/gpu/record"
)

func TestRetold(t *testing.T) {
	rec := record.Run{Title: "A job", Mode: "observe", Truth: strings.Repeat("word ", 20), Checks: []record.Check{
		{What: "end", Want: "clean", Got: "clean", Right: true}, {What: "start", Want: "clean", Got: "BKD-DIRTY"},
	}}
	text := retold(rec, []typed{{"games$", "cat slurm-1.out", "| bookend: clean\n\ndone\n"}})
	want := "\n\nA job (observe mode)\n=====\n" + strings.TrimSpace(strings.Repeat("word ", 15)) + "\nword word word word word\n" +
		"\n  games$ cat slurm-1.out\n    | bookend: clean\n\n    done\n\n" +
		"  ok    end: clean\n  WRONG start: want \"clean\", got \"BKD-DIRTY\"\n"
	if text != want {
		t.Errorf("told\n%s\nwant\n%s", text, want)
	}
	if err := checkNames(strings.Split(storyOf, ",")); err != nil {
		t.Error(err)
	}
}
