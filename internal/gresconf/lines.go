package gresconf

import (
	"fmt"
	"strings"
)

// line is one logical line of a file of Slurm's: pairs of a key, of which case says nothing, and a value.
type line struct {
	number  int // of its first line in the file, from 1
	pairs   [][2]string
	include string // what it includes, instead of pairs
	rest    string // what is no pair: Slurm would not start with it
}

// get returns the last value of a key.
func (l line) get(key string) (string, bool) {
	for i := len(l.pairs) - 1; i >= 0; i-- {
		if strings.EqualFold(l.pairs[i][0], key) {
			return l.pairs[i][1], true
		}
	}
	return "", false
}

// unreadable says why a line may say more than was read of it.
func (l line) unreadable() string {
	switch {
	case l.include != "":
		return fmt.Sprintf("line %d includes %.80q, which is not read", l.number, l.include)
	case l.rest != "":
		return fmt.Sprintf("line %d could not be read: %.40q", l.number, l.rest)
	}
	return ""
}

// lines reads a text as Slurm does: a comment ends its line, then a backslash at the end joins the next one on. A
// backslash before either takes its meaning away.
func lines(text []byte) []line {
	var all []line
	number, first, joined := 0, 1, ""
	for physical := range strings.Lines(string(text)) {
		number++
		physical, more := continued(uncommented(strings.TrimRight(physical, "\r\n")))
		if joined += physical; more {
			joined += " "
			continue
		}
		if l := parse(joined); l.include != "" || l.rest != "" || len(l.pairs) > 0 {
			l.number = first
			all = append(all, l)
		}
		first, joined = number+1, ""
	}
	if l := parse(joined); l.include != "" || l.rest != "" || len(l.pairs) > 0 {
		l.number = first
		all = append(all, l)
	}
	return all
}

func uncommented(s string) string {
	escaped := false
	for i, c := range []byte(s) {
		if c == '#' && !escaped {
			return s[:i]
		}
		escaped = c == '\\' && !escaped
	}
	return s
}

// continued cuts off a backslash at the end of a line, blanks behind it allowed. Two are one that is meant.
func continued(s string) (string, bool) {
	trimmed := strings.TrimRight(s, " \t")
	without := strings.TrimRight(trimmed, "\\")
	if (len(trimmed)-len(without))%2 == 1 {
		return trimmed[:len(trimmed)-1], true
	}
	return s, false
}

const blanks = " \t"

// parse reads "Include FILE", or pairs "Key = value" and `Key="a value"`; "Key+=value" adds nothing here.
func parse(s string) (l line) {
	s = strings.Trim(s, blanks)
	if word, file, ok := strings.Cut(strings.ReplaceAll(s, "\t", " "), " "); ok && strings.EqualFold(word, "include") &&
		!strings.HasPrefix(strings.TrimLeft(file, blanks), "=") {
		return line{include: strings.TrimLeft(file, blanks)}
	}
	for s != "" {
		key, value, rest, ok := pair(s)
		if !ok {
			l.rest = s
			return l
		}
		l.pairs = append(l.pairs, [2]string{key, value})
		s = strings.TrimLeft(rest, blanks)
	}
	return l
}

func pair(s string) (key, value, rest string, ok bool) {
	end := strings.IndexFunc(s, func(c rune) bool { return !keyLetter(c) })
	if end <= 0 {
		return "", "", "", false
	}
	key, s = s[:end], strings.TrimLeft(s[end:], blanks)
	if s != "" && strings.IndexByte("-*+/", s[0]) >= 0 {
		s = s[1:]
	}
	s, ok = strings.CutPrefix(s, "=")
	if s = strings.TrimLeft(s, blanks); !ok || s == "" {
		return "", "", "", false
	}
	if quoted, in := strings.CutPrefix(s, `"`); in {
		value, rest, ok = strings.Cut(quoted, `"`)
		return key, value, rest, ok && (rest == "" || strings.IndexByte(blanks, rest[0]) >= 0)
	}
	if end = strings.IndexAny(s, blanks); end < 0 {
		end = len(s)
	}
	return key, s[:end], s[end:], true
}

func keyLetter(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.'
}
