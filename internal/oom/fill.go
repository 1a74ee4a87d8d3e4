package oom

import (
	"strings"
	"unicode"

	"bookend/internal/gpu"
)

// fill reads the figures that the statement has, false where its words were no message after all.
func (st statement) fill(m *Message) bool {
	switch {
	case m.Kind == Fault:
		return true
	case m.Kind == Device && m.Framework == PyTorch && isTorch(st.after()):
		if text := st.sentence(); strings.Contains(text, "memory. Tried to allocate ") {
			return readTorch(m, text)
		}
	case st.text == "free memory on device":
		return readVLLM(m, st.sentence())
	case m.Kind == Shared:
		text := st.sentence()
		m.Asked, m.Limit = after(text, "Required: ", "requested ", "shared data ("),
			after(text, "Hardware limit: ", "Hardware limitation: ", "available: ")
		return m.Asked.Known() || st.text != "out of resource: "
	}
	begin, end := max(0, st.pos-maxBefore), min(len(st.line.body), st.end()+maxAfter)
	text, lower := st.line.body[begin:end], st.line.lower[begin:end]
	switch {
	case strings.IndexFunc(lower, unicode.IsDigit) < 0:
	case m.Kind == Host:
		m.take(sizesIn(text), asked)
	default:
		m.onGPU(lower)
		m.take(sizesIn(text))
	}
	if m.Framework == CuPy && !m.Allocated.Known() { // its total is the pool's
		m.Allocated, m.Total = m.Total, gpu.Unknown("not said")
	}
	if !m.Asked.Known() {
		if text := st.whole(); len(text) > len(st.line.body)-st.pos {
			m.take(sizesIn(text), asked)
		}
		st.above(m)
	}
	return true
}

// isTorch: PyTorch's message, or its first sentence.
func isTorch(after string) bool {
	return strings.Contains(after, "tried to allocate ") || strings.HasSuffix(after, " out of memory.")
}

// above looks for the size that was asked on the lines before, as far as they are no messages of their own.
func (st statement) above(m *Message) {
	for l := range st.s.near(st.at, -1, linesBelow) {
		if len(l.facts().hits) > 0 || len(l.lower) > maxAfter {
			continue
		}
		if l.isError() || wants(l.lower) {
			m.take(sizesIn(l.body), asked)
		}
	}
}

// wants: a line that may say for what memory there was a need.
func wants(lower string) bool {
	return strings.Contains(lower, "request") || strings.Contains(lower, "alloc") ||
		strings.Contains(lower, "need") || strings.Contains(lower, "requir")
}

// maxWrapped bounds what is joined of a message that a console's width, or a progress display, has broken into lines.
const (
	maxWrapped      = 12
	maxWrappedBytes = 2 << 10
)

// whole is the statement's text from its sign on, with the lines below it as far as they may belong to it: up to an
// empty one, or another message.
func (st statement) whole() string {
	text := st.line.body[st.pos:min(len(st.line.body), st.pos+maxWrappedBytes)]
	if again := strings.Index(st.line.lower[st.end():st.pos+len(text)], st.text); again >= 0 { // twice on one line
		return text[:len(st.text)+again]
	}
	lines, length := append(make([]string, 0, 1+maxWrapped), text), len(text)
	for l := range st.s.near(st.at, 1, maxWrapped) {
		if length += len(l.body); length > maxWrappedBytes || len(l.facts().hits) > 0 {
			break
		}
		lines = append(lines, l.body)
	}
	return strings.Join(lines, "\n")
}

// sentence is the whole text with single blanks, as no console breaks it.
func (st statement) sentence() string {
	return strings.Join(strings.Fields(st.whole()), " ")
}
