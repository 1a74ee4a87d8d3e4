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
