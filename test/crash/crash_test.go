package main

import (
	"os"
	"path/filepath"
	"testing"

	"bookend/test/intercept"
	"bookend/test/mutant"
	"bookend/test/rig"
)

func TestMain(m *testing.M) {
	intercept.Serve()
	rig.Main(m, nil)
}

// The whole in small: one call of one hook, two ends at once.
func TestCrash(t *testing.T) {
	b := testBench(t)
	programs, err := b.programs(mutant.Mutant{})
	if err != nil {
		t.Fatal(err)
	}
	got := newTally()
	err = b.faults(order{only: "start: hook write run/state", workers: 2}, programs, got)
	if err == nil {
		err = b.twoEnds(programs, got)
	}
	if err != nil {
		t.Fatal(err)
	}
	classes := got.classes
	if got.tried < 5 || classes["new state without a word"] == 0 || classes["old state, trouble said"] == 0 ||
		classes["killed: old state"] == 0 {
		t.Errorf("%d faults, %v", got.tried, got.classes)
	}
	for _, f := range got.failed {
		t.Error(f)
	}
}

// A record written in place is noticed.
func TestNoticed(t *testing.T) {
	by, err := testBench(t).notice(plantings[0], order{workers: 1})
	if err != nil || by == "" {
		t.Errorf("noticed by %q, %v", by, err)
	}
}

// Code that was rewritten takes its mutants along, or they would test nothing.
func TestPlantings(t *testing.T) {
	for _, m := range plantings {
		text, err := os.ReadFile(filepath.Join("../..", m.File))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Apply(string(text)); err != nil {
			t.Error(err)
		}
	}
	if _, err := (mutant.Mutant{Name: "none", Old: "x"}).Apply("y"); err == nil {
		t.Error("a mutant was planted nowhere")
	}
}

func testBench(t *testing.T) bench {
	t.Helper()
	on, err := rig.NewBench()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = on.Close() })
	return bench{on}
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
