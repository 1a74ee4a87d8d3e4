package oom

import (
	"iter"
	"slices"
	"strings"

	"bookend/internal/gpu"
)

// Find looks through the end of a job's output, of which it takes the last MaxTail bytes, for messages about memory and
// GPU errors. Messages of one kind, about one card, are one: the last one's figures, and how many there were. They come
// in the order in which they were said last, at most the last MaxMessages.
func Find(tail []byte) []Message {
	s := scan{lines: split(tail)}
	for s.at = range s.lines {
		l := &s.lines[s.at]
		if l.body == "" || l.own() {
			continue
		}
		s.stats(*l)
		if f, ok := s.message(l); ok {
			f.stream, f.at, f.PID = l.stream, s.at, int(l.pid)
			if rank := int(l.rank); rank >= 0 {
				f.Rank = &rank
			}
			s.add(f)
		}
	}
	var out []Message
	for _, f := range s.found[max(0, len(s.found)-MaxMessages):] {
		f.bounded()
		out = append(out, f.Message)
	}
	return out
}

// found is a message and what makes it one with others.
type found struct {
	Message
	group  string
	stream string
	at     int
}

// scan is one way through the lines.
type scan struct {
	lines []line
	at    int
	found []found
	bfc   statistics
}

// message understands a line: its first sign that is reported, what ran out, who says it, and the figures. Signs
// that may yet be of a GPU come last.
func (s *scan) message(l *line) (found, bool) {
	if len(l.lower) < shortest {
		return found{}, false
	}
	if isSlurm(l) {
		return slurm(l)
	}
	all := l.hits()
	for _, soft := range []bool{false, true} {
		for _, h := range all {
			if h.soft != soft {
				continue
			}
			st := statement{hit: h, s: s, at: s.at, line: l}
			if st.facts = st.read(); !st.reported() {
				continue
			}
			if f, ok := st.message(); ok {
				return f, ok
			}
		}
	}
	return found{}, false
}

// message is what the statement says, false where that is nothing.
func (st statement) message() (found, bool) {
	kind, ok := st.place()
	if !ok || st.survived() || st.followed() {
		return found{}, false
	}
	f := found{Message: blank()}
	f.Kind, f.Framework, f.Line = kind, st.framework(kind), shown(st.line.body, st.pos)
	if kind == Fault || kind == Shared || st.text == segment {
		f.group = st.text
	}
	return f, st.fill(&f.Message)
}

// isSlurm: one of Slurm's own lines, which begin with the program's name.
func isSlurm(l *line) bool {
	return strings.HasPrefix(l.lower, "slurmstepd") || strings.HasPrefix(l.lower, "srun: ") ||
		strings.HasPrefix(l.lower, "salloc: ") ||
		strings.HasPrefix(l.lower, "sbatch: ")
}

func slurm(l *line) (found, bool) {
	program, _, _ := strings.Cut(l.lower, ":")
	for _, words := range []string{
		"oom_kill event", "oom-kill event", "xceeded memory limit", "xceeded job memory limit",
		"xceeded step memory limit",
		"out-of-memory handler", ": out of memory",
	} {
		if strings.Contains(l.lower, words) {
			f := found{Message: blank(), group: program}
			f.Kind, f.Framework, f.Line = Host, Slurm, shown(l.body, 0)
			return f, true
		}
	}
	return found{}, false
}

// near are the lines of the same process next to one, above it (step -1) or below, the nearest first, up to an empty
// one.
func (s *scan) near(at, step, count int) iter.Seq[*line] {
	return func(yield func(*line) bool) {
		for i := at + step; i >= 0 && i < len(s.lines) && count > 0 && i != at+maxNear*step; i += step {
			l := &s.lines[i]
			if l.stream != s.lines[at].stream {
				continue
			}
			if l.body == "" || l.own() || !yield(l) {
				return
			}
			count--
		}
	}
}

// maxNear is how many lines of other processes may stand between those of one.
const maxNear = 24

// followed: the reason comes on the next line, as C++ prints what it did not catch.
func (st statement) followed() bool {
	if !strings.HasPrefix(st.text, "instance of") {
		return false
	}
	for l := range st.s.near(st.at, 1, 1) {
		return strings.HasPrefix(l.lower, "what():")
	}
	return false
}

// blank is a message that says nothing.
func blank() Message {
	no := gpu.Unknown("not said")
	return Message{Asked: no, Total: no, Free: no, InUse: no, Allocated: no, Idle: no, Limit: no, Count: 1}
}

// episode is how many lines one failure takes, from the driver's words to the exception.
const episode = 40

// add puts a message at the end of the list, in the place of those that it goes on from.
func (s *scan) add(f found) {
	if f.pooled() {
		s.bfc.complete(&f.Message, s.at)
	}
	for i := len(s.found) - 1; i >= 0; i-- {
		old := s.found[i]
		if !f.isAgain(old) && !f.explains(old) {
			continue
		}
		f.Count += old.Count
		if f.stream == old.stream && f.at-old.at <= episode && (f.pooled() || !f.Asked.Known()) {
			f.inherit(old.Message)
		}
		s.found = slices.Delete(s.found, i, i+1)
		if f.isAgain(old) {
			break
		}
	}
	s.found = append(s.found, f)
	if len(s.found) > 4*MaxMessages { // of many cards
		s.found = slices.Delete(s.found, 0, 1)
	}
}

// pooled: TensorFlow's and XLA's allocator says some of the figures, their exception the others.
func (f found) pooled() bool {
	return f.Kind != Fault && f.Kind != Shared && (f.Framework == TensorFlow || f.Framework == JAX)
}

// isAgain: the same message, or another part of it.
func (f found) isAgain(old found) bool {
	if f.group != old.group || f.Kind != old.Kind || f.Framework != old.Framework || f.isAnother(old) {
		return false
	}
	if f.GPU == nil || old.GPU == nil {
		return f.GPU == old.GPU || f.pooled() || f.stream == old.stream && f.at-old.at <= episode && !f.Asked.Known()
	}
	return *f.GPU == *old.GPU
}

// isAnother: another process says it, by what launchers put in front.
func (f found) isAnother(old found) bool {
	return f.Rank != nil && old.Rank != nil && *f.Rank != *old.Rank || f.PID != 0 && old.PID != 0 && f.PID != old.PID
}

// explains: the exception of a framework, of what the driver said just before.
func (f found) explains(old found) bool {
	return f.Kind == Device && old.Kind == Device && f.stream == old.stream && f.at-old.at <= episode &&
		(old.Framework == CUDA || old.Framework == HIP) && f.Framework != CUDA && f.Framework != HIP
}

// inherit takes from an earlier part of the message what this one does not say.
func (f *found) inherit(old Message) {
	mine := f.Message.figures()
	for i, theirs := range old.figures() {
		if !mine[i].Known() && theirs.Known() {
			*mine[i] = *theirs
		}
	}
	if f.GPU == nil {
		f.GPU = old.GPU
	}
	if f.PID == 0 {
		f.PID = old.PID
	}
}

func (m *Message) figures() []*gpu.Figure {
	return []*gpu.Figure{&m.Asked, &m.Total, &m.Free, &m.InUse, &m.Allocated, &m.Idle, &m.Limit}
}
