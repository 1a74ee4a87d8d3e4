package oom

import (
	"strings"

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
		m.Asked, m.Limit = after(text, "Required: "), after(text, "Hardware limit: ", "Hardware limitation: ")
		return m.Asked.Known() || st.text != "out of resource: "
	}
	begin, end := max(0, st.pos-maxBefore), min(len(st.line.body), st.end()+maxAfter)
	text, lower := st.line.body[begin:end], st.line.lower[begin:end]
	switch {
	case !strings.ContainsAny(lower, "0123456789"):
	case m.Kind == Host:
		m.take(sizesIn(text, lower), asked)
	default:
		m.onGPU(lower)
		m.take(sizesIn(text, lower))
	}
	if m.Framework == CuPy && !m.Allocated.Known() { // its total is the pool's
		m.Allocated, m.Total = m.Total, gpu.Unknown("not said")
	}
	if !m.Asked.Known() {
		if text, lower := st.whole(); len(text) > len(st.line.body)-st.pos {
			m.take(sizesIn(text, lower), asked)
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
		if l.facts().has[isError] || wants(l.lower) {
			m.take(sizesIn(l.body, l.lower), asked)
		}
	}
}

// wants: a line that may say for what memory there was a need.
func wants(lower string) bool {
	return strings.Contains(lower, "request") || strings.Contains(lower, "alloc") || strings.Contains(lower, "need") || strings.Contains(lower, "requir")
}

// maxWrapped bounds what is joined of a message that a console's width, or a progress display, has broken into lines.
const (
	maxWrapped      = 12
	maxWrappedBytes = 2 << 10
)

// whole is the statement's text from its sign on, with the lines below it as far as they may belong to it: up to an empty
// one, or another message. It comes in lower case as well.
func (st statement) whole() (text, lower string) {
	end := min(len(st.line.body), st.pos+maxWrappedBytes)
	text, lower = st.line.body[st.pos:end], st.line.lower[st.pos:end]
	if again := strings.Index(lower[len(st.text):], st.text); again >= 0 { // twice on one line
		return text[:len(st.text)+again], lower[:len(st.text)+again]
	}
	for l := range st.s.near(st.at, 1, maxWrapped) {
		if len(text)+len(l.body) > maxWrappedBytes || len(l.facts().hits) > 0 {
			break
		}
		text, lower = text+"\n"+l.body, lower+"\n"+l.lower
	}
	return text, lower
}

// sentence is the whole text with single blanks, as no console breaks it.
func (st statement) sentence() string {
	text, _ := st.whole()
	return strings.Join(strings.Fields(text), " ")
}
