package oom

import "strings"

// maxPrefixes is how many things may stand in front of a line's text.
const maxPrefixes = 8

// undecorated takes off what launchers, loggers and consoles put in front: "[rank0]:", "(EngineCore pid=7)", "3: " of
// srun --label, "[1,3]<stderr>:" of mpirun, "worker-1  | " of containers, times, levels.
func undecorated(text string) line {
	l := line{body: text, rank: -1}
	if len(text) < shortest {
		return l
	}
	for range maxPrefixes {
		rest, ok := l.prefix()
		if !ok {
			break
		}
		l.body = strings.TrimSpace(rest)
	}
	if l.body != "" && l.body[0] == '`' { // pasted: a whole line, or its beginning
		name, _, _ := strings.Cut(l.body[1:], ": ")
		if strings.HasSuffix(l.body, "`") || isName(name) && strings.HasSuffix(name, "Error") {
			l.body = l.body[1:]
		}
	}
	return l
}

// prefix is what follows the first prefix of the line, if it has one. Behind a level, "trainer |" is a logger and
// TensorRT's "2: [file" an error's number: no names of streams.
func (l *line) prefix() (string, bool) {
	if l.body == "" {
		return "", false
	}
	head, rest, _ := strings.Cut(l.body, " ")
	place, _, _ := strings.Cut(rest, "]")
	switch {
	case l.body[0] == '[':
		return l.bracket("]")
	case l.body[0] == '(':
		return l.bracket(")")
	case isLabel(head) && (!strings.HasPrefix(rest, "[") || l.level == 0 && !strings.Contains(place, "::")): // srun's
		l.speaks(head, number("="+head, "="))
		return rest, true
	case isTime(head), head == "-", head == "|" && !strings.HasPrefix(rest, "bookend:"):
		return rest, true
	case isLevel(head):
		l.level = head[0]
		return rest, true
	case isMonth(head):
		return sysloged(rest)
	case l.level == 0 && strings.HasPrefix(strings.TrimLeft(rest, " "), "| ") && isName(head): // docker compose
		l.speaks(head, -1)
		return strings.TrimLeft(rest, " ")[2:], true
	}
	if n, after := named(l.body); n >= 0 {
		l.speaks("rank", n)
		return after, true
	}
	return "", false
}

// bracket reads "[rank0]:", "[default0]:", "[1,3]<stderr>:", "(VllmWorker rank=1 pid=4711)", and skips any other in
// square ones.
func (l *line) bracket(closing string) (string, bool) {
	inside, after, ok := strings.Cut(l.body[1:], closing)
	if !ok || strings.TrimLeft(after, ": ") == "" || closing == ")" && !strings.Contains(inside, "pid=") {
		return "", false
	}
	lower := strings.ToLower(inside)
	if n := number(lower[strings.Index(lower, "pid=")+1:], "id="); n > 0 && n <= maxPID {
		l.pid = int32(n)
	}
	_, tagged, _ := strings.Cut(inside, ",")
	stream, isTagged := strings.CutPrefix(after, "<std")
	switch {
	case isTagged && number("="+tagged, "=") >= 0: // mpirun --tag-output: job and rank
		l.speaks(inside, number("="+tagged, "="))
		_, after, _ = strings.Cut(stream, ">")
	case number(lower, "rank=") >= 0:
		l.speaks(inside, number(lower, "rank="))
	case strings.HasPrefix(lower, "rank"):
		n, _ := named(inside)
		l.speaks(inside, n)
	case l.pid > 0, strings.HasPrefix(lower, "default"), isAll(inside, isDigit):
		// torchrun's and mpiexec's local numbers are no ranks
		l.speaks(inside, -1)
	case isLevel(strings.ToUpper(inside)):
		l.level = strings.ToUpper(inside)[0]
	case inside == "CUDA", inside == "GPU", inside == "HIP":
		l.tagged = true
	}
	return strings.TrimPrefix(after, ":"), true
}

// speaks notes by what name the line's process goes; the innermost rank counts.
func (l *line) speaks(name string, rank int) {
	l.stream += name + " "
	if rank >= 0 && rank <= maxRank {
		l.rank = int32(rank)
	}
}

// named reads "rank 3: " and the like: the number, and what follows.
func named(text string) (int, string) {
	if len(text) < len("rank0") || !strings.EqualFold(text[:4], "rank") {
		return -1, ""
	}
	digits := strings.TrimLeft(text[4:], ": ")
	end := 0
	for end < len(digits) && isDigit(digits[end]) {
		end++
	}
	after, colon := strings.CutPrefix(digits[end:], ":")
	if !colon && digits[end:] != "" {
		return -1, ""
	}
	return number("="+digits[:end], "="), after
}

// isTime: a date, a time, or both, of digits and marks.
func isTime(word string) bool {
	marks := strings.Count(word, ":") + strings.Count(word, "-") + strings.Count(word, "/")
	return marks > 0 && len(word) >= 5 && isDigit(word[0]) && strings.Trim(word, "0123456789:-/.,+TZ") == ""
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
	return ok && digits != "" && isAll(digits, isDigit)
}

func isName(word string) bool {
	return word != "" && isAll(strings.ToLower(word),
		func(c byte) bool { return isAlnum(c) || c == '-' || c == '_' || c == '.' })
}

func isAll(text string, is func(byte) bool) bool {
	for i := range len(text) {
		if !is(text[i]) {
			return false
		}
	}
	return text != ""
}

func isMonth(word string) bool {
	return len(word) == 3 && strings.Contains("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec", word)
}

// sysloged skips "22 17:41:01 n1 app[123]: ".
func sysloged(text string) (string, bool) {
	fields := strings.Fields(text[:min(len(text), 100)])
	if len(fields) < 4 || !isTime(fields[1]) {
		return "", false
	}
	_, rest, ok := strings.Cut(text, ": ")
	return rest, ok
}
