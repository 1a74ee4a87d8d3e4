package main

import (
	"context"
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

// Too many wrong guesses are a failure of the run, and name the first pair that has one.
func TestBadGuesses(t *testing.T) {
	var sum tally
	sum.add(tally{blamed: 10, misguessed: 4, misguessedAt: 9})
	sum.add(tally{blamed: 10})
	if sum.guessesBadly() {
		t.Errorf("a few are no failure: %+v", sum)
	}
	sum.add(tally{blamed: 10, misguessed: 4, misguessedAt: 7})
	if !sum.guessesBadly() || sum.misguessedAt != 7 {
		t.Errorf("%+v", sum)
	}
}

func TestFirst(t *testing.T) {
	if got := first(nil); got != "none" {
		t.Errorf("first of none = %q", got)
	}
	if got := first([]failure{{3, 4, breach, "x"}, {3, 5, breach, "y"}}); got != "breach: x (--replay 3:4)" {
		t.Errorf("first = %q", got)
	}
}

// What is stopped says so much: what it played, and nothing more.
func TestStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if sum, failures := soak(ctx, options{seed: 1, pairs: 100, workers: 2, enough: 1}, nil); sum.pairs != 0 || len(failures) != 0 {
		t.Errorf("%+v, %v", sum, failures)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"--pairs", "7", "--seed", "9", "--replay", "1:2"})
	if err != nil || o.pairs != 7 || o.seed != 9 || o.replay != "1:2" {
		t.Errorf("parse = %+v, %v", o, err)
	}
	for _, args := range [][]string{{"--pairs", "-1"}, {"--what"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse(%q) took it", args)
		}
	}
	if err := replay("1"); err == nil {
		t.Error("replay took half a name")
	}
}
