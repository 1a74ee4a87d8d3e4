package code

import "strings"

// farthest is the first distance at which a name was hardly meant: more than two edits turn short names into each other.
const farthest = 3

// longestWritten bounds what is compared: no name is nearly so long.
const longestWritten = 200

// Near returns the name that was probably meant by what somebody wrote, whatever its case; empty where none is near.
func Near(written string, names []string) string {
	written = strings.ToLower(written[:min(len(written), longestWritten)])
	best, least := "", farthest
	for _, name := range names {
		if d := distance(written, strings.ToLower(name)); d < least && d < len(name) {
			best, least = name, d
		}
	}
	return best
}

// Names are all codes as strings, in the order of the documentation.
func Names() []string {
	all := All()
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = string(e.Code)
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
