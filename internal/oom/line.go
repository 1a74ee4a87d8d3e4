package oom

import (
	"strconv"
	"strings"
)

// line is one line of output in plain ASCII, and what was before its text.
type line struct {
	body string // without what loggers, srun --label and launchers put in front
	pid  int    // of the process, where a launcher says it; 0 for unknown
}

// split makes lines of the end of an output. A first line that may have begun before it is left out: cut off, it could
// say the contrary.
func split(tail []byte) []line {
	whole := len(tail) < MaxTail
	tail = tail[max(0, len(tail)-MaxTail):]
	text := strings.ReplaceAll(string(tail), "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n") // progress bars write over their own line
	raw := strings.Split(text, "\n")
	if !whole {
		raw = raw[1:]
	}
	lines := make([]line, len(raw))
	for i, r := range raw {
		lines[i] = undecorated(plain(r))
	}
	return lines
}

// plain drops terminals' colours and turns what is not printable ASCII into blanks.
func plain(raw string) string {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] == 0x1b && i+1 < len(raw) && raw[i+1] == '[' {
			i += 2
			for i < len(raw) && (raw[i] < 0x40 || raw[i] > 0x7e) { // parameters, up to the final byte
				i++
			}
			continue
		}
		c := raw[i]
		if c < 0x20 || c > 0x7e {
			c = ' '
		}
		out = append(out, c)
	}
	return strings.TrimSpace(string(out))
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// maxDecorations is how many things may stand in front of a line's text.
const maxDecorations = 8

// undecorated takes off "[rank0]:", "(VllmWorker pid=7)", "3: ", times and levels.
func undecorated(text string) line {
	l := line{body: text}
	for range maxDecorations {
		head, rest, _ := strings.Cut(l.body, " ")
		switch {
		case strings.HasPrefix(l.body, "["), strings.HasPrefix(l.body, "("):
			closing := map[byte]string{'[': "]", '(': ")"}[l.body[0]]
			inside, after, ok := strings.Cut(l.body[1:], closing)
			if !ok || l.body[0] == '(' && !strings.Contains(inside, "pid=") {
				return l
			}
			if n := number(inside[strings.Index(inside, "pid=")+1:], "id="); n > 0 && n <= maxPID {
				l.pid = n
			}
			rest = strings.TrimPrefix(after, ":")
		case isTime(head), isLevel(head), isLabel(head):
		default:
			return l
		}
		l.body = strings.TrimSpace(rest)
	}
	return l
}

// isTime: a date, a time, or both, of digits and marks.
func isTime(word string) bool {
	digits := strings.Count(word, ":") + strings.Count(word, "-") + strings.Count(word, "/")
	return digits > 0 && len(word) >= 5 && word[0] >= '0' && word[0] <= '9' && strings.Trim(word, "0123456789:-/.,+TZ") == ""
}

func isLevel(word string) bool {
	switch strings.TrimSuffix(word, ":") {
	case "INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL", "E", "W", "F", "I":
		return true
	}
	return false
}

// isLabel: the task's number that srun --label puts in front.
func isLabel(word string) bool {
	digits, ok := strings.CutSuffix(word, ":")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// own says that Bookend wrote the line itself.
func (l line) own() bool {
	return strings.HasPrefix(l.body, "| bookend:") || strings.HasPrefix(l.body, "bookend:")
}

// thisRun leaves out everything up to the last end report, which belongs to an earlier run of the job, or to another job
// that wrote to the same file: this run's own is written later. It comes after an empty line, in one block.
func thisRun(lines []line) []line {
	for end := len(lines); end > 0; end-- {
		if !lines[end-1].own() {
			continue
		}
		begin := end - 1
		for begin > 0 && lines[begin-1].own() {
			begin--
		}
		if begin > 0 && lines[begin-1].body == "" && isEnd(lines[begin:end]) {
			return lines[end:]
		}
		end = begin + 1 // the line before the block is next
	}
	return lines
}

// isEnd tells an end report from a start report, and from what task hooks say.
func isEnd(block []line) bool {
	var text strings.Builder
	for _, l := range block {
		_, said, _ := strings.Cut(l.body, "bookend:")
		text.WriteString(strings.Join(strings.Fields(said), " ") + " ")
	}
	for _, words := range []string{"left clean by your job", "nothing more on", "clean now", "after your job", "More: for your admin:"} {
		if strings.Contains(text.String(), words) {
			return true
		}
	}
	return false
}

// maxLead is how much may stand before the message itself on the line that is shown.
const maxLead = 120

// quote is the line to be shown, of a message found at i.
func quote(body string, i int) string {
	if i > maxLead {
		body = body[i:]
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
	n, err := strconv.Atoi(rest[:end])
	if err != nil {
		return -1
	}
	return n
}
