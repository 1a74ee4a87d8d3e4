package answer

import (
	"maps"
	"testing"

	"bookend/internal/ledger"
)

func TestShowCountsWhatTheRecordLeavesOut(t *testing.T) {
	run := ledger.Run{Start: &ledger.End{Rest: map[string]int{"holdings": 352, "candidates\x1b": 7}},
		Ends: []ledger.End{{}}}
	got := NewShow("n1", "42", []ledger.Run{run}, nil).Runs[0]
	if want := map[string]int{"holdings": 352, `candidates\x1b`: 7}; !maps.Equal(got.Start.LeftOut, want) {
		t.Errorf("the start's record leaves out %v, want %v", got.Start.LeftOut, want)
	}
	if left := got.Ends[0].LeftOut; left == nil || len(left) > 0 {
		t.Errorf("the end's record is whole, but %v were left out", left)
	}
}
