package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The documented bands are those that hold: every package stands in its row of the table.
func TestBandsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]band{"values": values, "pure": pure, "ground": ground, "effects": effects, "stage": stage} {
		_, row, _ := strings.Cut(string(page), "\n| "+name+" | ")
		row, _, _ = strings.Cut(row, "|")
		var listed []string
		for field := range strings.FieldsSeq(row) {
			listed = append(listed, "internal/"+strings.Trim(field, "`"))
		}
		want := slices.Clone(bands[b])
		slices.Sort(want)
		slices.Sort(listed)
		if !slices.Equal(listed, want) {
			t.Errorf("docs/architecture.md has in band %s\n%q, want\n%q", name, listed, want)
		}
	}
}
