package main

import (
	"testing"
	"time"
)

// testPairs is how many pairs of each seed an ordinary test run plays; make soak plays many more.
const testPairs = 10_000

func TestSoak(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		t.Logf("seed %d", seed)
		sum, failures := soak(t.Context(), options{seed: seed, pairs: testPairs, workers: 2, enough: 5}, nil)
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
	tellings := [2][]string{}
	for i := range tellings {
		for n := range uint64(20) {
			play(shipped(), 3, n, func(at time.Duration, text string) { tellings[i] = append(tellings[i], at.String()+text) })
		}
	}
	if len(tellings[0]) < 100 || len(tellings[0]) != len(tellings[1]) {
		t.Fatalf("%d and %d lines", len(tellings[0]), len(tellings[1]))
	}
	for i, line := range tellings[0] {
		if line != tellings[1][i] {
			t.Fatalf("line %d: %q, then %q", i, line, tellings[1][i])
		}
	}
}
