package slurmconf

import (
	"fmt"
	"strconv"
	"strings"
)

// Contains reports whether a node list as Slurm writes it ("n[001-010,020],m3", "rack[0-1]n[2-3]") names a node;
// known is false for a list, or a part of it, that cannot be read.
func Contains(list, node string) (is, known bool) {
	known = true
	for list != "" {
		end := elementEnd(list)
		if strings.Count(list[:end], "[") > maxBrackets {
			return is, false
		}
		here, ok := matches(list[:end], node)
		is, known = is || here, known && ok
		list = strings.TrimPrefix(list[end:], ",")
	}
	return is, known
}

// Elements are those of a list such as "n[1-2,4],m3" or "/dev/nvidia[0-1],/dev/nvidia3": parted at commas outside brackets.
func Elements(list string) (all []string) {
	for list != "" {
		end := elementEnd(list)
		all = append(all, list[:end])
		list = strings.TrimPrefix(list[end:], ",")
	}
	return all
}

// elementEnd is where the first element of a list ends: at a comma outside brackets.
func elementEnd(list string) int {
	inside := false
	for i, c := range []byte(list) {
		switch {
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case c == ',' && !inside:
			return i
		}
	}
	return len(list)
}

// maxBrackets of one element, such as "row[1-2]rack[1-9]n[1-4]": each can be matched in several ways.
const maxBrackets = 4

// matches compares a node with one element: text and brackets in turn.
func matches(element, node string) (is, known bool) {
	text, behind, bracket := strings.Cut(element, "[")
	if !bracket {
		return text == node, !strings.Contains(text, "]")
	}
	ranges, behind, closed := strings.Cut(behind, "]")
	spans, ok := parseSpans(ranges)
	if !closed || !ok || strings.Contains(text, "]") {
		return false, false
	}
	rest, prefixed := strings.CutPrefix(node, text)
	_, known = matches(behind, "")
	if !prefixed {
		return false, known
	}
	for digits := 1; digits <= len(rest) && isDigit(rest[digits-1]); digits++ {
		if !inAny(spans, rest[:digits]) {
			continue
		}
		if is, _ = matches(behind, rest[digits:]); is {
			return true, known
		}
	}
	return false, known
}

// span is a range of numbers, written with at least so many digits as its lower end is.
type span struct {
	low, high uint64
	width     int
}

func parseSpans(ranges string) (spans []span, ok bool) {
	for part := range strings.SplitSeq(ranges, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		low, err1 := number(from)
		high, err2 := number(to)
		if err1 != nil || err2 != nil || low > high {
			return nil, false
		}
		spans = append(spans, span{low, high, len(from)})
	}
	return spans, true
}

// number refuses signs, which strconv would take, and more digits than a host's number has.
func number(s string) (uint64, error) {
	if len(s) > 18 || strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' }) {
		return 0, fmt.Errorf("%.20q is no number", s)
	}
	return strconv.ParseUint(s, 10, 64)
}

func inAny(spans []span, digits string) bool {
	n, err := number(digits)
	if err != nil {
		return false
	}
	for _, s := range spans {
		if n >= s.low && n <= s.high && fmt.Sprintf("%0*d", s.width, n) == digits {
			return true
		}
	}
	return false
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
