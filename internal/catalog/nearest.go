package catalog

import (
	"slices"
	"strings"
)

// Nearest returns the codes and other known words, at most three, that a misspelt one is most like; none if it is like
// none.
func Nearest(written string, known []string) (near []string) {
	const longest, most = 40, 3
	short := func(word string) string { return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(word)), "bkd-") }
	written = short(written)
	if len(written) > longest {
		return nil
	}
	for _, e := range entries {
		known = append(known, string(e.Code))
	}
	fewest := max(1, len(written)/3) + 1
	for _, word := range known {
		n := edits(written, short(word))
		if n < fewest {
			fewest, near = n, nil
		}
		if n == fewest && n <= len(written)/2 && !slices.Contains(near, word) {
			near = append(near, word)
		}
	}
	return near[:min(len(near), most)]
}

// edits returns how many letters must be inserted, removed or replaced to make one word the other (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
