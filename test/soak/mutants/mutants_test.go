package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A judgement that was rewritten takes its mutants along, or they would test nothing.
func TestMutantsCanBePlanted(t *testing.T) {
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join("../../..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.apply(string(text)); err != nil {
			t.Error(err)
		}
		if m.old == m.new {
			t.Errorf("%q changes nothing", m.name)
		}
	}
}

func TestFirstOf(t *testing.T) {
	const report = "seed 1\n100000 pairs, 9 s\nfalse drain: BKD-STRAY on GPU-2: [8 MiB] (--replay 1:38021)\nmissed leak: GPU-0 (--replay 1:38022)\n"
	if got, err := firstOf(report); err != nil || got != (notice{38021, "false drain"}) {
		t.Errorf("firstOf = %+v, %v", got, err)
	}
	if got, err := firstOf("seed 1\n0 false drains, 0 breaches\n"); err != nil || got != (notice{}) {
		t.Errorf("firstOf a good report = %+v, %v", got, err)
	}
	if _, err := firstOf("breach: x (--replay 1:99999999999999999999)\n"); err == nil {
		t.Error("firstOf read a number that is none")
	}
}

func TestApply(t *testing.T) {
	m := mutant{name: "x", old: "a", new: "b"}
	if got, err := m.apply("an"); err != nil || got != "bn" {
		t.Errorf("apply = %q, %v", got, err)
	}
	for _, text := range []string{"", "none", "a a"} {
		if text == "none" {
			text = "no"
		}
		if _, err := m.apply(text); err == nil {
			t.Errorf("apply(%q) found its line once", text)
		}
	}
}
