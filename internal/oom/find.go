package oom

import (
	"slices"
	"strings"

	"bookend/internal/gpu"
)

// Find looks through the end of a job's output, of which it takes the last MaxTail bytes, for messages about memory and
// GPU errors. Messages of one kind, about one card, are one: the last one's figures, and how many there were. They come
// in the order in which they were said last, at most the last MaxMessages. What an earlier run of the job wrote to the
// same file, as far as Bookend's own end report, is left out.
func Find(tail []byte) []Message {
	s := scan{lines: thisRun(split(tail)), rules: rules()}
	for s.at = range s.lines {
		l := s.lines[s.at]
		if l.body == "" || l.own() {
			continue
		}
		s.stats(l)
		if f, ok := s.match(l); ok {
			s.add(f)
		}
	}
	var out []Message
	for _, f := range s.found[max(0, len(s.found)-MaxMessages):] {
		out = append(out, f.Message)
	}
	return out
}

// found is a message and what makes it one with others.
type found struct {
	Message
	group string
	// parts: several lines of the group make up one message, each with some of its figures.
	parts bool
}

// scan is one way through the lines.
type scan struct {
	lines []line
	rules []rule
	at    int
	found []found
	bfc   statistics
}

// match tries the rules in order; the first that takes the line decides.
func (s *scan) match(l line) (found, bool) {
	for _, r := range s.rules {
		i := r.in(l.body)
		if i < 0 {
			continue
		}
		text := l.body[i:]
		if r.wrapped {
			text = s.joined(text, r.signs[0])
		}
		f := found{Message: blank(), group: r.name, parts: r.parts}
		f.Kind, f.Framework, f.PID = r.kind, r.framework, l.pid
		if !r.read(&f.Message, context{before: l.body[:i], text: text}) {
			continue
		}
		f.Line = quote(l.body, i)
		return f, true
	}
	return found{}, false
}

// blank is a message that says nothing.
func blank() Message {
	no := gpu.Unknown("not said")
	return Message{Asked: no, Total: no, Free: no, InUse: no, Allocated: no, Idle: no, Limit: no, Count: 1}
}

// add puts a message at the end of the list, in the place of the last one of its kind.
func (s *scan) add(f found) {
	if f.parts {
		s.bfc.complete(&f.Message, s.at)
	}
	for i, old := range s.found {
		if !old.same(f) {
			continue
		}
		f.Count += old.Count
		if f.parts {
			f.inherit(old.Message)
		}
		s.found = slices.Delete(s.found, i, i+1)
		break
	}
	s.found = append(s.found, f)
	if len(s.found) > 4*MaxMessages { // of many cards
		s.found = slices.Delete(s.found, 0, 1)
	}
}

func (f found) same(o found) bool {
	if f.group != o.group || f.Kind != o.Kind || f.Framework != o.Framework {
		return false
	}
	if f.GPU == nil || o.GPU == nil {
		return f.parts || f.GPU == o.GPU
	}
	return *f.GPU == *o.GPU
}

// inherit takes from an earlier part of the message what this one does not say.
func (f *found) inherit(old Message) {
	mine := f.figures()
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

// maxWrapped bounds what is joined of a message that a console's width, or a progress display, has broken into lines.
const (
	maxWrapped      = 12
	maxWrappedBytes = 2 << 10
)

// joined is the text with the lines after it, as far as they may belong to it: up to a blank line, a line of
// Bookend's, or the same message anew.
func (s *scan) joined(text, sign string) string {
	for _, l := range s.lines[s.at+1 : min(len(s.lines), s.at+maxWrapped)] {
		if l.body == "" || l.own() || strings.Contains(l.body, sign) || len(text) > maxWrappedBytes {
			break
		}
		text += " " + l.body
	}
	if next := strings.Index(text[1:], sign); next >= 0 { // twice on one line
		text = text[:next+1]
	}
	return strings.Join(strings.Fields(text[:min(len(text), maxWrappedBytes)]), " ")
}

// statistics is the summary that TensorFlow's and XLA's allocator prints after it has failed.
type statistics struct {
	header       int // the line after the one with "Stats:"; 0 for none
	limit, inUse gpu.Figure
	known        bool
}

// Lines from "Stats:" to its last figure, and from there to the exception that the framework raises.
const (
	statsLines = 8
	statsReach = 64
)

// stats reads the lines of such a summary, and adds them to the message before it.
func (s *scan) stats(l line) {
	if strings.HasSuffix(l.body, "Stats:") {
		none := gpu.Unknown("not said")
		s.bfc = statistics{header: s.at + 1, limit: none, inUse: none}
		return
	}
	if s.bfc.header == 0 || s.at >= s.bfc.header+statsLines {
		return
	}
	_, rest, _ := strings.Cut(l.body, ":")
	n, ok := amount(strings.TrimSpace(rest))
	switch {
	case !ok:
		return
	case strings.HasPrefix(l.body, "Limit:"):
		s.bfc.limit, s.bfc.known = n, true
	case strings.HasPrefix(l.body, "InUse:"):
		s.bfc.inUse, s.bfc.known = n, true
	}
	for i := len(s.found) - 1; i >= 0; i-- {
		if s.found[i].parts {
			s.bfc.complete(&s.found[i].Message, s.at)
			return
		}
	}
}

// complete gives the figures of a summary nearby to a message.
func (st statistics) complete(m *Message, at int) {
	if !st.known || at > st.header+statsReach {
		return
	}
	if st.limit.Known() {
		m.Limit = st.limit
	}
	if st.inUse.Known() {
		m.Allocated = st.inUse
	}
}
