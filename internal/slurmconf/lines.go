package slurmconf

import (
	"fmt"
	"path"
	"strings"
)

// Line is one logical line of a file of Slurm's: pairs of a key, of which case says nothing, and a value.
type Line struct {
	File   string      `json:"file,omitempty"`
	Number int         `json:"number"` // of its first line in the file, from 1
	Pairs  [][2]string `json:"pairs,omitempty"`
	// Include is what it includes, instead of pairs, where that was not read; Why says why not.
	Include string `json:"include,omitempty"`
	Why     string `json:"why,omitempty"`
	// Rest is what is no pair: with it Slurm would not start.
	Rest string `json:"rest,omitempty"`
}

// Where names the line: its file, without the folder, and its number.
func (l Line) Where() string { return fmt.Sprintf("%s line %d", path.Base(l.File), l.Number) }

// Get returns the last value of a key.
func (l Line) Get(key string) (string, bool) {
	for i := len(l.Pairs) - 1; i >= 0; i-- {
		if strings.EqualFold(l.Pairs[i][0], key) {
			return l.Pairs[i][1], true
		}
	}
	return "", false
}

// Unreadable says why a line may say more than was read of it; empty where it does not.
func (l Line) Unreadable() string {
	switch {
	case l.Include != "" && l.Why != "":
		return fmt.Sprintf("%s includes %.80q, which is not read: %s", l.Where(), l.Include, l.Why)
	case l.Include != "":
		return fmt.Sprintf("%s includes %.80q, which is not read", l.Where(), l.Include)
	case l.Rest != "":
		return fmt.Sprintf("%s could not be read: %.40q", l.Where(), l.Rest)
	}
	return ""
}

// Lines reads a text of a file as Slurm does: a comment ends its line, then a backslash at the end joins the next one on. A
// backslash before either takes its meaning away.
func Lines(file string, text []byte) []Line {
	var all []Line
	number, first, joined := 0, 1, ""
	for physical := range strings.Lines(string(text)) {
		number++
		physical, more := continued(uncommented(strings.TrimRight(physical, "\r\n")))
		if joined += physical; more {
			joined += " "
			continue
		}
		all = appendLine(all, joined, file, first)
		first, joined = number+1, ""
	}
	return appendLine(all, joined, file, first)
}

func appendLine(all []Line, joined, file string, first int) []Line {
	l := parse(unescaped(joined))
	if l.Include == "" && l.Rest == "" && len(l.Pairs) == 0 {
		return all
	}
	l.File, l.Number = file, first
	return append(all, l)
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

// unescaped takes backslashes away: what stands behind one is meant as it is.
func unescaped(s string) string {
	if !strings.Contains(s, "\\") {
		return s
	}
	var b strings.Builder
	escaped := false
	for _, c := range []byte(s) {
		if escaped = c == '\\' && !escaped; !escaped {
			b.WriteByte(c)
		}
	}
	return b.String()
}

const blanks = " \t"

// parse reads "Include FILE", or pairs "Key = value" and `Key="a value"`; "Key+=value" adds nothing here.
func parse(s string) (l Line) {
	s = strings.Trim(s, blanks)
	if word, file, ok := strings.Cut(strings.ReplaceAll(s, "\t", " "), " "); ok && strings.EqualFold(word, "include") &&
		!strings.HasPrefix(strings.TrimLeft(file, blanks), "=") {
		return Line{Include: strings.Trim(file, blanks)}
	}
	for s != "" {
		key, value, rest, ok := pair(s)
		if !ok {
			l.Rest = s
			return l
		}
		l.Pairs = append(l.Pairs, [2]string{key, value})
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
