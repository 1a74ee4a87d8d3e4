package main

import "testing"

// A judgement that was rewritten takes its mutants along, or they would test nothing.
func TestMutantsCanBePlanted(t *testing.T) {
	for _, m := range mutants {
		m.Fits(t, "../../..")
	}
}
