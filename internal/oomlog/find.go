package oomlog

import (
	"cmp"
	"slices"
	"strings"

	"bookend/internal/record"
)

// Find searches the last MaxTail bytes of a job's output for messages about memory and GPU errors. Messages of one kind
// about one GPU are combined: the figures are those of the last, and Count is how many there were. It returns at most
// the last MaxMessages, ordered by their last occurrence, but GPU errors by their first: what follows may come of them.
func Find(tail []byte) []record.Message {
	s := scan{lines: split(tail)}
	for s.at = range s.lines {
		l := &s.lines[s.at]
		if len(l.body) < shortest || l.isOurs() || l.quoted {
			continue
		}
		if f, ok := s.message(l); ok && !s.survived() {
			f.stream, f.at, f.Rank = l.stream, s.at, l.rank
			if l.pid != nil {
				f.PID = *l.pid
			}
			s.add(f)
		}
	}
	var out []record.Message
	for _, f := range s.found[max(0, len(s.found)-MaxMessages):] {
		out = append(out, f.Message)
	}
	return out
}

type found struct {
	record.Message
	group  string
	stream string
	at     int
}

type scan struct {
	lines []line
	at    int
	found []found
}

func (s *scan) message(l *line) (found, bool) {
	if slurmLine().MatchString(l.lower) && !strings.Contains(l.lower, "pyxis: ") {
		f := found{Message: blank()}
		f.group, _, _ = strings.Cut(l.lower, ":")
		f.Kind, f.Framework, f.Line = record.KindHost, record.FromSlurm, shown(l.body, 0)
		exceeded := strings.Contains(l.lower, "memory limit at some point") && s.killed()
		return f, (exceeded || slurmSays().MatchString(l.lower)) && !s.retried()
	}
	for _, h := range l.facts.hits {
		if st := s.statement(l, h); st.reported() {
			if f, ok := st.message(); ok {
				return f, ok
			}
		}
	}
	return found{}, false
}

// message returns the message in the statement, or false if there is none.
func (st statement) message() (found, bool) {
	kind, ok := st.memoryKind()
	goes := st.facts.has[goesOn] || st.isNear(1, linesBelow+1, goesOn)
	if !ok || goes && !st.is("lost") && !st.facts.has[givesUp] && !st.isNear(1, episode, givesUp) {
		return found{}, false
	}
	f := found{Message: blank()}
	f.Kind, f.Framework, f.Line = kind, st.framework(kind), shown(st.line.body, st.pos)
	f.Program = st.program(f.Framework)
	if kind == record.KindFault || kind == record.KindShared || st.text == record.SegmentFailed {
		f.group = st.text
	}
	return f, st.fill(&f.Message)
}

// Slurm's own lines begin with a program's name. Its plugin for containers repeats what other programs say.
var (
	slurmLine = lazily(`^(?:slurmstepd|(?:srun|salloc|sbatch): )`)
	slurmSays = lazily(`oom[_-]kill event|xceeded (?:job |step )?memory limit(?:$| \(|, )|out-of-memory handler|` +
		`: out of memory`)
)

// retried reports whether a workflow manager says below that it started the step again, and later that all is done.
func (s *scan) retried() bool {
	below := s.lines[min(s.at+1, len(s.lines)):]
	first := slices.IndexFunc(below[:min(len(below), episode)], func(l line) bool { return l.facts.has[restarts] })
	return first >= 0 && slices.ContainsFunc(below[first:], func(l line) bool { return l.facts.has[isDone] })
}

// killed reports whether a line nearby says so. Slurm's "memory limit at some point" alone may be about cached files.
func (s *scan) killed() bool {
	around := append(s.near(-1, linesAbove), s.near(1, linesAbove)...)
	return slices.ContainsFunc(around, func(l *line) bool { return strings.Contains(l.lower, "killed") })
}

const stackTrace = "stacktrace:" // Julia's, below an empty line

// near returns the lines of the same process above (step -1) or below this one, nearest first, up to an empty line.
func (s *scan) near(step, count int) (all []*line) {
	for i := s.at + step; i >= 0 && i < len(s.lines) && len(all) < count && i != s.at+maxNear*step; i += step {
		l := &s.lines[i]
		if l.stream != s.lines[s.at].stream {
			continue
		}
		continues := i+1 < len(s.lines) && s.lines[i+1].lower == map[int]string{1: stackTrace, -1: "caused by:"}[step]
		if l.body == "" && !continues || l.isOurs() {
			break
		}
		all = append(all, l)
	}
	return all
}

// survived reports whether the program's steps went on after the failure: of three steps of the same form at most one
// came before it, their numbers rise, and nothing else failed but the same again.
func (s *scan) survived() bool {
	isStep := func(l *line) bool { return len(l.facts.hits) == 0 && progress().MatchString(l.lower) }
	again := func(l *line) bool { return sameWords(l.lower, s.lines[s.at].lower) }
	above, all := s.near(-1, linesAbove), s.near(1, episode)
	if slices.ContainsFunc(all, func(l *line) bool { return l.facts.has[isError] && !again(l) }) {
		return false
	}
	if last := slices.IndexFunc(above, isStep); last >= 0 {
		all = append([]*line{above[last]}, all...)
	}
	all = slices.DeleteFunc(all, func(l *line) bool { return !isStep(l) })
	next := func(l *line) bool { return steps(all[0].lower, l.lower) }
	first := slices.IndexFunc(all, next)
	return first >= 0 && slices.ContainsFunc(all[first+1:], next)
}

var (
	progress   = lazily(`\b(?:step|epoch|bench|trial|iter\w*|batch|loss|it/s|s/it)\b`)
	numeral    = lazily(`\d+`)
	notLetters = lazily(`[^a-z]+`)
)

func sameWords(a, b string) bool {
	return notLetters().ReplaceAllString(a, "") == notLetters().ReplaceAllString(b, "")
}

// steps reports whether two lines have the same words, and the first number that differs is larger in the second.
func steps(first, second string) bool {
	larger := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
	numbers := func(text string) []string { return numeral().FindAllString(text, -1) }
	return sameWords(first, second) && slices.CompareFunc(numbers(first), numbers(second), larger) < 0
}

func blank() record.Message {
	m := record.Message{Count: 1}
	for _, f := range m.Figures() {
		*f = notSaid
	}
	return m
}

const (
	episode = 40 // lines of one failure, from the allocator's message to the exception
	maxNear = 24 // lines of other processes between two lines of one
)

// add appends a message to the list and removes an earlier one that it continues or repeats.
func (s *scan) add(f found) {
	if i := slices.IndexFunc(s.found, f.isAgain); i >= 0 {
		old := s.found[i]
		f.Count += old.Count
		if f.mayContinue(old) {
			f.inherit(old.Message)
		}
		if f.Kind == record.KindFault {
			s.found[i] = f
			return
		}
		s.found = slices.Delete(s.found, i, i+1)
	}
	s.found = append(s.found, f)
	if len(s.found) > 4*MaxMessages { // of many GPUs
		s.found = slices.Delete(s.found, 0, 1)
	}
}

func (f found) isNear(old found) bool { return f.stream == old.stream && f.at-old.at <= episode }

// mayContinue reports whether the message may be a later part of another: it is near and asks for the same MiB or none.
func (f found) mayContinue(old found) bool {
	a, b := f.Asked.Bytes, old.Asked.Bytes
	return f.isNear(old) && (!f.Asked.Known() || max(a, b)-min(a, b) < 1<<20)
}

func (f found) isAgain(old found) bool {
	another := f.Rank != nil && old.Rank != nil && *f.Rank != *old.Rank ||
		f.PID != 0 && old.PID != 0 && f.PID != old.PID
	if f.group != old.group || f.Kind != old.Kind || f.Framework != old.Framework || another {
		return false
	}
	if f.GPU != nil && old.GPU != nil {
		return *f.GPU == *old.GPU
	}
	return f.GPU == old.GPU || f.mayContinue(old)
}

// inherit copies what this message lacks from an earlier part of it.
func (f *found) inherit(old record.Message) {
	mine := f.Message.Figures()
	for i, theirs := range old.Figures() {
		if !mine[i].Known() && theirs.Known() {
			*mine[i] = *theirs
		}
	}
	if f.GPU == nil {
		f.GPU = old.GPU
	}
	f.PID, f.Cap = max(f.PID, old.PID), max(f.Cap, old.Cap)
}
