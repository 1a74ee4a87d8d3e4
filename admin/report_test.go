package main

import (
	"slices"
	"testing"

	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// Of names that begin alike the longer come first, each once.
func TestPeople(t *testing.T) {
	var runs []ledger.Run
	for _, user := range []string{"ann", "bo", "ann-lee", "ann", " bo\n", ""} {
		runs = append(runs, ledger.Run{Job: slurm.Job{User: user}})
	}
	if got := people(runs); !slices.Equal(got, []string{"ann-lee", "ann", "bo", ""}) {
		t.Errorf("%q", got)
	}
}
