package oom

import (
	"fmt"
	"slices"

	"bookend/internal/gpu"
)

// What a message may say.
const (
	maxFigure = 4 << 50   // bytes: 4 PiB, beyond any node's memory
	maxAsked  = 1<<64 - 1 // bytes: programs ask for what overflowed, or is less than nothing
	maxPID    = 1 << 22   // Linux's own limit
	maxGPU    = 1023
	maxRank   = 1 << 20
	maxReason = 100 // bytes
)

// Valid checks a message that came from another process: kind and framework are known, figures possible, texts
// printable and short.
func Valid(m Message) error {
	ok := slices.Contains([]Kind{Device, Init, Host, Shared, Fault}, m.Kind) && known(m.Framework) &&
		(m.GPU == nil || within(*m.GPU, 0, maxGPU)) && (m.Rank == nil || within(*m.Rank, 0, maxRank)) &&
		within(m.PID, 0, maxPID) && within(len(m.Line), 1, MaxLine) && printable(m.Line) &&
		within(m.Count, 1, MaxTail) && within(m.File, 0, MaxFiles-1) && within(len(m.Others), 0, MaxOthers) &&
		(m.Setting == "" || slices.Contains(Settings, m.Setting))
	for i, f := range m.figures() {
		ok = ok && possible(*f, most(i))
	}
	for _, o := range m.Others {
		ok = ok && within(o.PID, 1, maxPID) && possible(o.Memory, maxFigure)
	}
	if !ok {
		return fmt.Errorf("impossible message: kind %.40q, framework %.40q, line %.80q", m.Kind, m.Framework, m.Line)
	}
	return nil
}

func within(n, least, most int) bool { return n >= least && n <= most }

// known: a framework that Find names.
func known(f Framework) bool {
	return f == CUDA || f == Slurm || f == Other ||
		slices.ContainsFunc(speakers, func(s speaker) bool { return s.framework == f })
}

// most is what the figure at a place of Message.figures may be: the first is what was asked.
func most(place int) uint64 {
	if place == 0 {
		return maxAsked
	}
	return maxFigure
}

func possible(f gpu.Figure, most uint64) bool {
	return (f.Known() && f.Bytes < most || !f.Known() && f.Bytes == 0) && len(f.Unknown) <= maxReason &&
		printable(f.Unknown)
}

// bounded leaves out figures that cannot be.
func (m *Message) bounded() {
	for i, f := range m.figures() {
		if !possible(*f, most(i)) {
			*f = impossible
		}
	}
	for i := range m.Others {
		if !possible(m.Others[i].Memory, maxFigure) {
			m.Others[i].Memory = impossible
		}
	}
}
