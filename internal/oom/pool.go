package oom

import (
	"strings"

	"bookend/internal/gpu"
)

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
		if s.found[i].pooled() {
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
