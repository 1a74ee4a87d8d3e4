package oom

import (
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
		if len(l.body) < shortest || l.own() {
			continue
		}
		if f, ok := s.message(l); ok {
			f.stream, f.at, f.Rank = l.stream, s.at, l.rank
			if l.pid != nil {
				f.PID = *l.pid
			}
			s.add(f)
		}
	}
	var out []Message
	for _, f := range s.found[max(0, len(s.found)-MaxMessages):] {
		out = append(out, f.Message)
	}
	return out
}

type found struct {
	Message
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
	if slurmLine().MatchString(l.lower) {
		f := found{Message: blank()}
		f.group, _, _ = strings.Cut(l.lower, ":")
		f.Kind, f.Framework, f.Line = Host, Slurm, shown(l.body, 0)
		return f, slurmSays().MatchString(l.lower)
	}
	for _, h := range l.facts().hits {
		if st := s.statement(l, h); st.reported() {
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
	if goes := st.facts.has[goesOn] || st.beside(1, linesBelow+1, goesOn); !ok || goes {
		return found{}, false
	}
	f := found{Message: blank()}
	f.Kind, f.Framework, f.Line = kind, st.framework(kind), shown(st.line.body, st.pos)
	if kind == Fault || kind == Shared || st.text == Segment {
		f.group = st.text
	}
	return f, st.fill(&f.Message)
}

// Slurm's own lines begin with the program's name.
var (
	slurmLine = lazily(`^(?:slurmstepd|(?:srun|salloc|sbatch): )`)
	slurmSays = lazily(`oom[_-]kill event|xceeded (?:job |step )?memory limit|out-of-memory handler|: out of memory`)
)

// near are the lines of the same process above this one (step -1) or below, the nearest first, up to an empty one.
func (s *scan) near(step, count int) (all []*line) {
	for i := s.at + step; i >= 0 && i < len(s.lines) && len(all) < count && i != s.at+maxNear*step; i += step {
		l := &s.lines[i]
		if l.stream != s.lines[s.at].stream {
			continue
		}
		if l.body == "" || l.own() {
			break
		}
		all = append(all, l)
	}
	return all
}

func blank() Message {
	m := Message{Count: 1}
	for _, f := range m.figures() {
		*f = notSaid
	}
	return m
}

const (
	episode = 40 // lines of one failure, from the allocator's words to the exception
	maxNear = 24 // lines of other processes between those of one
)

// add puts a message at the end of the list, in the place of the one that it goes on from.
func (s *scan) add(f found) {
	if i := slices.IndexFunc(s.found, f.isAgain); i >= 0 {
		old := s.found[i]
		f.Count += old.Count
		if f.isNear(old) && !f.Asked.Known() {
			f.inherit(old.Message)
		}
		s.found = slices.Delete(s.found, i, i+1)
	}
	if s.found = append(s.found, f); len(s.found) > 4*MaxMessages { // of many cards
		s.found = slices.Delete(s.found, 0, 1)
	}
}

func (f found) isNear(old found) bool { return f.stream == old.stream && f.at-old.at <= episode }

func (f found) isAgain(old found) bool {
	another := f.Rank != nil && old.Rank != nil && *f.Rank != *old.Rank ||
		f.PID != 0 && old.PID != 0 && f.PID != old.PID
	if f.group != old.group || f.Kind != old.Kind || f.Framework != old.Framework || another {
		return false
	}
	if f.GPU != nil && old.GPU != nil {
		return *f.GPU == *old.GPU
	}
	return f.GPU == old.GPU || f.isNear(old) && !f.Asked.Known()
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
	f.PID = max(f.PID, old.PID)
}

func (m *Message) figures() []*gpu.Figure {
	return []*gpu.Figure{&m.Asked, &m.Total, &m.Free, &m.InUse, &m.Allocated, &m.Idle}
}
