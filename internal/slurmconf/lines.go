package slurmconf

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Line is one logical line of a file of Slurm's: pairs of a key, of which case says nothing, and a value.
type Line struct {
	File   string      `json:"file,omitempty"`
	Number int         `json:"number"` // of its first line in the file, from 1
	Pairs  [][2]string `json:"pairs,omitempty"`
	// Include is what it includes, instead of pairs, if that was not read; Why says why not.
	Include string `json:"include,omitempty"`
	Why     string `json:"why,omitempty"`
	// Rest is what is no pair: with it Slurm would not start.
	Rest string `json:"rest,omitempty"`
}

// Where names the line: its file, without the directory, and its number.
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

// Unreadable says why a line may say more than was read of it; empty if it does not.
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

const blanks = " \t\r"

// parseLines reads a file's text as Slurm does: a comment ends its line, then a backslash at the end joins the next
// line. Anything else behind a backslash is meant as it is.
func parseLines(file, text string) (all []Line) {
	var b strings.Builder
	number, first, pair := 1, 1, regexp.MustCompile(pair)
	end := func() {
		if l := parseLine(b.String(), pair); l.Include != "" || l.Rest != "" || len(l.Pairs) > 0 {
			l.File, l.Number = file, first
			all = append(all, l)
		}
		b.Reset()
	}
	for text != "" {
		c := text[0]
		text = text[1:]
		switch {
		case c == '\\' && joins(text):
			_, text, _ = strings.Cut(text, "\n")
			number++
			b.WriteByte(' ')
		case c == '\\':
			b.WriteByte(text[0])
			text = text[1:]
		case c == '#':
			text = text[len(comment(text)):]
		case c == '\n':
			end()
			number++
			first = number
		default:
			b.WriteByte(c)
		}
	}
	end()
	return all
}

// comment is what is left of a line.
func comment(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// joins reports whether nothing but blanks, or after them a comment, is left of a line that ends in a backslash.
func joins(text string) bool {
	rest := comment(text)
	after := strings.TrimLeft(rest, blanks)
	return after == "" || after[0] == '#' && len(after) < len(rest)
}

// pair is Slurm's own expression for a pair: "Key=value", `Key = "a value"`, "Key+=value".
const pair = `^([[:alnum:]_.]+)\s*[-*+/]?=\s*(?:"([^"]*)"|(\S+))(?:\s+|$)`

// parseLine reads "Include FILE", or pairs.
func parseLine(s string, pair *regexp.Regexp) (l Line) {
	s = strings.Trim(s, blanks)
	if i := strings.IndexAny(s, blanks); i >= 0 && strings.EqualFold(s[:i], "include") {
		if file := strings.Trim(s[i:], blanks); file[0] != '=' {
			return Line{Include: file}
		}
	}
	for s != "" {
		found := pair.FindStringSubmatch(s)
		if found == nil {
			l.Rest = s
			return l
		}
		l.Pairs = append(l.Pairs, [2]string{found[1], found[2] + found[3]})
		s = s[len(found[0]):]
	}
	return l
}
