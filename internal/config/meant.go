package config

import (
	"fmt"
	"strings"

	"bookend/internal/code"
)

// meant returns " (name?)" for the name that was probably meant, nothing where none is near.
func meant(written string, names []string) string {
	const far = 3 // edits: more than two turn short keys into each other
	best, least := "", far
	for _, name := range names {
		if d := distance(strings.ToLower(clip(written)), strings.ToLower(name)); d < least && d < len(name) {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (%s?)", best)
}

func codes() []string {
	var names []string
	for _, e := range code.All() {
		names = append(names, string(e.Code))
	}
	return names
}

// distance counts the letters to insert, leave out, replace or swap with their neighbour that turn a into b.
func distance(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
