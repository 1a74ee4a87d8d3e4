package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A judgement that was rewritten takes its mutants along, or they would test nothing.
func TestMutantsCanBePlanted(t *testing.T) {
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join("../../..", m.File))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Apply(string(text)); err != nil {
			t.Error(err)
		}
		if m.Old == m.New {
			t.Errorf("%q changes nothing", m.Name)
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
