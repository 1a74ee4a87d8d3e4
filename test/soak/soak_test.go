package main

import (
	"slices"
	"testing"
	"time"

	"bookend/test/faultinject"
)

// testPairs is how many pairs of each seed an ordinary test run plays; make soak plays many more.
const testPairs = 10_000

func TestSoak(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		t.Logf("seed %d", seed)
		sum, failures := soak(t.Context(), options{seed: seed, pairs: testPairs, enough: 5}, nil)
		for _, f := range failures {
			t.Error(f)
		}
		if len(failures) == 0 && (sum.pairs != testPairs || sum.leaks < testPairs/4 || sum.due < testPairs/50 || sum.damaged < testPairs/10 || sum.blamed < testPairs/4) {
			t.Errorf("the world has grown too quiet to prove anything: %+v", sum)
		}
	}
}

// What a failure is replayed by must tell the same story.
func TestReplay(t *testing.T) {
	tell := func() (told []string) {
		for n := range uint64(20) {
			play(shipped(drawn), 3, n, func(at time.Duration, text string) { told = append(told, at.String()+text) })
		}
		return told
	}
	if first := tell(); len(first) < 100 || !slices.Equal(first, tell()) {
		t.Errorf("%d lines, and others the second time", len(first))
	}
}

// A judgement that was rewritten takes its mutants along, or they would test nothing.
func TestMutantsCanBePlanted(t *testing.T) {
	for _, m := range faultinject.Mutants(table) {
		m.Fits(t, "../..")
	}
}
