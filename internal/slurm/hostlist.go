package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// maxNames bounds what one element of a list is written out to: more than any cluster has nodes.
const maxNames = 1 << 17

// Elements are those of a list such as "n[1-2,4],m3" or "gpu:a:4(S:0,1),shard:8": split at commas outside brackets.
func Elements(list string) []string {
	depth := 0
	return strings.FieldsFunc(list, func(c rune) bool {
		switch c {
		case '[', '(':
			depth++
		case ']', ')':
			depth = max(0, depth-1)
		}
		return c == ',' && depth == 0
	})
}

// Expand writes out one element of a list of nodes or device files, "rack[0-1]n[08-10]". ok is false for one that is
// not well formed, or far too long.
func Expand(element string) (names []string, ok bool) {
	text, rest, bracket := strings.Cut(element, "[")
	ranges, after, closed := strings.Cut(rest, "]")
	switch {
	case strings.Contains(text, "]"):
		return nil, false
	case !bracket:
		return []string{element}, true
	}
	numbers, ok := expandRanges(ranges)
	ends, more := Expand(after)
	if !ok || !closed || !more || len(numbers)*len(ends) > maxNames {
		return nil, false
	}
	for _, number := range numbers {
		for _, end := range ends {
			names = append(names, text+number+end)
		}
	}
	return names, true
}

// maxDigits of a number in brackets: dates and serial numbers have fewer.
const maxDigits = 18

// expandRanges writes out "001-010,020": numbers of at least as many digits as the lower end has.
func expandRanges(ranges string) (numbers []string, ok bool) {
	for part := range strings.SplitSeq(ranges, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		low, err1 := strconv.ParseUint(from, 10, 63)
		high, err2 := strconv.ParseUint(to, 10, 63)
		if err1 != nil || err2 != nil || len(from) > maxDigits || low > high || high-low >= maxNames {
			return nil, false
		}
		for n := low; n <= high; n++ {
			numbers = append(numbers, fmt.Sprintf("%0*d", len(from), n))
		}
	}
	return numbers, len(numbers) <= maxNames
}

// FirstHost returns the first node of a node list as Slurm writes it: the node that runs a batch job's script. It
// returns "" for a list it cannot read.
func FirstHost(list string) string {
	elements := Elements(list)
	if len(elements) == 0 {
		return ""
	}
	names, ok := Expand(elements[0])
	if !ok || !ValidNode(names[0]) {
		return ""
	}
	return names[0]
}
