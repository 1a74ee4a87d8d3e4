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
	switch {
	case !slices.Contains([]Kind{Device, Init, Host, Shared, Fault}, m.Kind):
		return fmt.Errorf("message of kind %.40q", m.Kind)
	case !slices.Contains(frameworks, m.Framework):
		return fmt.Errorf("message of framework %.40q", m.Framework)
	case m.GPU != nil && (*m.GPU < 0 || *m.GPU > maxGPU):
		return fmt.Errorf("message about GPU %d", *m.GPU)
	case m.Rank != nil && (*m.Rank < 0 || *m.Rank > maxRank):
		return fmt.Errorf("message of rank %d", *m.Rank)
	case m.PID < 0 || m.PID > maxPID:
		return fmt.Errorf("message of process %d", m.PID)
	case m.Line == "" || len(m.Line) > MaxLine || !printable(m.Line):
		return fmt.Errorf("message with the line %.80q", m.Line)
	case m.Count < 1 || m.Count > MaxTail:
		return fmt.Errorf("message counted %d times", m.Count)
	case m.File < 0 || m.File >= MaxFiles:
		return fmt.Errorf("message of file %d", m.File)
	case len(m.Others) > MaxOthers:
		return fmt.Errorf("message with %d processes", len(m.Others))
	}
	for i, f := range m.figures() {
		if err := possible(*f, most(i)); err != nil {
			return err
		}
	}
	for _, o := range m.Others {
		if o.PID < 1 || o.PID > maxPID {
			return fmt.Errorf("message about process %d", o.PID)
		}
		if err := possible(o.Memory, maxFigure); err != nil {
			return err
		}
	}
	return nil
}

// most is what the figure at a place of Message.figures may be: the first is what was asked.
func most(place int) uint64 {
	if place == 0 {
		return maxAsked
	}
	return maxFigure
}

// bounded leaves out figures that cannot be.
func (m *Message) bounded() {
	for i, f := range m.figures() {
		if f.Known() && f.Bytes >= most(i) {
			*f = impossible
		}
	}
	for i := range m.Others {
		if m.Others[i].Memory.Bytes >= maxFigure {
			m.Others[i].Memory = impossible
		}
	}
}

func possible(f gpu.Figure, most uint64) error {
	switch {
	case f.Known() && f.Bytes >= most, !f.Known() && f.Bytes != 0:
		return fmt.Errorf("message with %d bytes", f.Bytes)
	case len(f.Unknown) > maxReason || !printable(f.Unknown):
		return fmt.Errorf("message with the reason %.80q", f.Unknown)
	}
	return nil
}
