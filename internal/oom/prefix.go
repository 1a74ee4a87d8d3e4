package oom

import (
	"strings"
)

// maxPrefixes is how many things may stand in front of a line's text.
const maxPrefixes = 8

// prefixes are what launchers, loggers and consoles put in front of a line. The first that fits is taken off.
var prefixes = []struct {
	form pattern
	// read takes what the prefix tells of the line from its words; false where it is none after all. May be nil.
	read func(l *line, words []string, rest string) bool
}{
	// "[rank0]:", "[default0]:", "[1,3]<stderr>:" of mpirun, "[2026-01-02 03:04:05]", "[ERROR]"
	{lazily(`^\[([^]]*)\](?:<std\w*>)?:?`), (*line).bracket},
	{lazily(`^\(([^)]*pid=[^)]*)\)`), (*line).bracket}, // "(VllmWorker rank=1 pid=4711)"
	// srun --label; TensorRT's "2: [file.cpp::function::7]" is an error's number
	{lazily(`^(\d+): `), func(l *line, words []string, rest string) bool {
		place, _, _ := strings.Cut(rest, "]")
		return (!strings.HasPrefix(rest, "[") || !strings.Contains(place, "::")) && l.speaks(words[0], words[1])
	}},
	{lazily(`^(?:\d[\d.,+TZ]*[:/-][\d:/.,+TZ-]{2,}|-) `), nil}, // dates and times
	{lazily(`^(?:INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|[EWFI]):? `), nil},
}

// undecorated takes the prefixes off.
func undecorated(text string) line {
	l := line{body: text}
	for range maxPrefixes {
		if len(l.body) < shortest || !l.prefix() {
			break
		}
	}
	return l
}

func (l *line) prefix() bool {
	for _, p := range prefixes {
		if words := p.form().FindStringSubmatch(l.body); words != nil {
			rest := strings.TrimSpace(l.body[len(words[0]):])
			if p.read == nil || p.read(l, words, rest) {
				l.body = rest
				return true
			}
		}
	}
	return false
}

var (
	allDigits = lazily(`^\d+$`)
	pidIn     = lazily(`pid=(\d{1,7})\b`)
	rankIn    = lazily(`(?i)rank[=: ]*(\d{1,7})\b|^\d+,(\d{1,7})$`)
)

// bracket reads what launchers put in brackets. torchrun's and mpiexec's local numbers are no ranks.
func (l *line) bracket(words []string, rest string) bool {
	if inside := words[1]; strings.TrimLeft(rest, ": ") == "" {
		return false
	} else if pid := pidIn().FindStringSubmatch(inside); pid != nil {
		l.pid = number(pid[1], maxPID)
		l.speaks(inside, "")
		l.ranked(inside)
	} else if l.ranked(inside) || strings.HasPrefix(inside, "default") || allDigits().MatchString(inside) {
		l.speaks(inside, "")
	}
	return true
}

// ranked reads the process's rank; the innermost counts.
func (l *line) ranked(text string) bool {
	words := rankIn().FindStringSubmatch(text)
	return words != nil && l.speaks("", words[1]+words[2])
}

// speaks notes by what name the line's process goes, and its rank.
func (l *line) speaks(name, rank string) bool {
	l.stream += name + " "
	if n := number(rank, maxRank); n != nil {
		l.rank = n
	}
	return true
}
