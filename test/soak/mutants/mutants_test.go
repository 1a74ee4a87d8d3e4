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
