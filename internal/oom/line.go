package oom

import (
	"strconv"
	"strings"
)

// line is one line of output in plain ASCII, and what was before its text.
type line struct {
	body   string // without what loggers, srun --label and launchers put in front
	lower  string // body in lower case
	head   string // what was before it, in lower case
	stream string // of the process, by the names that launchers give it
	pid    int32  // of the process, where a launcher says it; 0 for unknown
	rank   int32  // the same; -1 for unknown
	level  byte   // the logger's: its first letter
	tagged bool   // "[CUDA]" stood before it
	echo   bool   // Python's traceback shows a line of the program's source
	indent int    // blanks before the body
	words  *facts
}

// facts are those of the line, of a long one its beginning's.
func (l *line) facts() *facts {
	if l.words == nil {
		f := evidenceIn(l.lower[:min(len(l.lower), maxRead)])
		if l.head != "" {
			head := evidenceIn(l.head)
			f.speaker, f.has[goesOn] = min(f.speaker, head.speaker), f.has[goesOn] || head.has[goesOn]
		}
		f.has[isGPU] = f.has[isGPU] || l.tagged
		l.words = &noEvidence // most lines
		if f.hits != nil || f.speaker != noEvidence.speaker || f.has != noEvidence.has {
			kept := f
			l.words = &kept
		}
	}
	return l.words
}

// split makes lines of the end of an output. A first line that may have begun before it is left out: cut off, it could
// say the contrary.
func split(tail []byte) []line {
	whole := len(tail) < MaxTail
	tail = tail[max(0, len(tail)-MaxTail):]
	text := plain(tail)
	lines := make([]line, 0, 1+min(strings.Count(text, "\n"), len(text)/shortest))
	lower := strings.ToLower(text)
	for begin := 0; begin <= len(text); {
		end := len(text)
		if next := strings.IndexByte(text[begin:], '\n'); next >= 0 {
			end = begin + next
		}
		if begin > 0 || whole {
			lines = withLine(lines, text[begin:end], lower[begin:end])
		}
		begin = end + 1
	}
	return lines
}

// withLine adds a line. One empty line stands for several, and so does one that is too short to say anything.
func withLine(lines []line, text, lower string) []line {
	trimmed := strings.TrimPrefix(strings.TrimSpace(text), "**") // somebody's bold letters
	last := len(lines) - 1
	if last >= 0 && len(trimmed) < shortest && len(lines[last].body) < shortest &&
		(trimmed == "") == (lines[last].body == "") {
		return lines
	}
	lower = lower[strings.Index(text, trimmed):][:len(trimmed)]
	l := undecorated(trimmed)
	front := len(trimmed) - len(l.body)
	l.lower, l.head = lower[front:], lower[:min(front, maxBefore)]
	before := text[:strings.Index(text, trimmed)+front]
	l.indent = len(before) - len(strings.TrimRight(before, " "))
	// without the source at hand there is no such line
	if last >= 0 && strings.HasPrefix(lines[last].lower, "file \"") {
		l.echo = strings.Contains(lines[last].lower, "\", line ") && l.indent > lines[last].indent
	}
	return append(lines, l)
}

// isError: by a word for an error, or its logger's level.
func (l *line) isError() bool {
	return l.level != 0 && strings.IndexByte("EFC", l.level) >= 0 || l.facts().has[isError]
}

// hits are the signs in the line.
func (l *line) hits() []hit {
	if len(l.lower) <= maxRead {
		return l.facts().hits
	}
	return evidenceIn(l.lower).hits
}

// isEcho: a traceback shows the line of the program that was at work, and not the exception yet.
func (l *line) isEcho() bool {
	name, _, reported := strings.Cut(l.lower, ": ")
	named := strings.HasSuffix(name, "error") || strings.HasSuffix(name, "exception") ||
		strings.HasSuffix(name, "outofresources")
	return l.echo && !(reported && named && strings.IndexFunc(name,
		func(c rune) bool { return c != '.' && c != '_' && !isAlnum(byte(c)) }) < 0)
}

// plain drops terminals' colours and turns what is not printable ASCII into blanks. Progress bars write over their own
// line: each state of it is one.
func plain(raw []byte) string {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] == 0x1b && i+1 < len(raw) && raw[i+1] == '[' {
			i += 2
			// parameters, up to the final byte
			for i < len(raw) && raw[i] != '\n' && raw[i] != '\r' && (raw[i] < 0x40 || raw[i] > 0x7e) {
				i++
			}
			if i < len(raw) && raw[i] >= 0x40 {
				continue
			}
		}
		c := byte('\n')
		switch {
		case i == len(raw) || raw[i] == '\r' && i+1 < len(raw) && raw[i+1] == '\n':
			continue
		case raw[i] != '\r' && raw[i] != '\n':
			if c = raw[i]; c < 0x20 || c > 0x7e {
				c = ' '
			}
		}
		out = append(out, c)
	}
	return string(out)
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// own says that Bookend wrote the line itself.
func (l line) own() bool {
	return strings.HasPrefix(l.body, "| bookend:") || strings.HasPrefix(l.body, "bookend:")
}

// How much may stand before the message itself on the line that is shown: less where the line is too long to be shown.
const (
	maxLead     = 120
	maxLeadLong = 40
)

// shown is the line that people see, of a message found at i.
func shown(body string, i int) string {
	if i > maxLead || i > maxLeadLong && len(body) > MaxLine {
		begin := max(0, i-maxLead)
		if name := strings.LastIndex(body[begin:i], ": "); name >= 0 { // an exception's
			i = begin + name
		}
		body = body[max(begin, strings.LastIndexByte(body[:i], ' ')+1):]
	}
	if len(body) > MaxLine {
		const dots = "..."
		body = body[:MaxLine-len(dots)] + dots
	}
	return body
}

// number is the decimal after a sign, -1 where there is none.
func number(text, sign string) int {
	_, rest, found := strings.Cut(text, sign)
	if !found {
		return -1
	}
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	if end == 0 {
		return -1
	}
	n, err := strconv.Atoi(rest[:end])
	if err != nil {
		return -1
	}
	return n
}
