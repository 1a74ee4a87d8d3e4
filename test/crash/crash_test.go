package main

import (
	"testing"

	"bookend/test/faultinject"
	"bookend/test/rig"
)

func TestMain(m *testing.M) {
	faultinject.Serve()
	rig.Main(m, nil)
}

// The whole in small: one call of one hook, two ends at once.
func TestCrash(t *testing.T) {
	b := testBench(t)
	programs, got := b.programs(faultinject.Mutant{}), newTally()
	b.faults(writing, 2, programs, got)
	b.twoEnds(programs, got)
	if got.tried < 5 || got.classes["new state without a word"] == 0 || got.classes["old state, trouble said"] == 0 ||
		got.classes["killed: old state"] == 0 {
		t.Errorf("%d faults, %v", got.tried, got.classes)
	}
	for _, f := range got.failed {
		t.Error(f)
	}
}

// A record written in place is noticed.
func TestNoticed(t *testing.T) {
	if testBench(t).notice(plantings[0]) == "" {
		t.Error("noticed by nothing")
	}
}

// Code that was rewritten takes its mutants along, or they would test nothing.
func TestPlantings(t *testing.T) {
	for _, m := range plantings {
		m.Fits(t, "../..")
	}
	if _, err := (faultinject.Mutant{Name: "none", Old: "x"}).Apply("y"); err == nil {
		t.Error("a mutant was planted nowhere")
	}
}

func testBench(t *testing.T) bench {
	t.Helper()
	return bench{rig.TestBench(t)}
}

// A record that goes to disk is synced before it has its name, and its folder afterwards.
func TestDisorder(t *testing.T) {
	file := "var/history/" + nodeName + "/.tmp-*"
	calls := map[string]point{
		"open":   {role: "disk", call: "openat", class: file, write: true},
		"sync":   {role: "disk", call: "fsync", class: file},
		"rename": {role: "disk", call: "renameat", class: file},
		"folder": {role: "disk", call: "fsync", class: "var/history/" + nodeName},
	}
	for want, order := range map[int][]string{
		0: {"open", "sync", "rename", "folder", "open", "sync", "rename", "folder"},
		1: {"open", "rename", "sync", "folder"},
		2: {"open", "rename"},
	} {
		var points []point
		for _, name := range order {
			points = append(points, calls[name])
		}
		if got := disorder(points); len(got) != want {
			t.Errorf("%q: %q", order, got)
		}
	}
}
