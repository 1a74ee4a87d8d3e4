package oom

import (
	"fmt"
	"slices"

	"bookend/internal/gpu"
)

// What a message may say.
const (
	maxFigure = 4 << 50 // bytes: 4 PiB, beyond any node's memory; who asks for more has miscounted
	maxPID    = 1 << 22 // Linux's own limit
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
		within(m.Count, 1, MaxTail) && within(m.File, 0, MaxFiles-1) && within(len(m.Others), 0, MaxOthers)
	for _, f := range m.figures() {
		ok = ok && possible(*f)
	}
	for _, o := range m.Others {
		ok = ok && within(o.PID, 1, maxPID) && possible(o.Memory)
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
		slices.ContainsFunc(vocabulary().speakers, func(s speaker) bool { return s.framework == f })
}

func possible(f gpu.Figure) bool {
	return f.Bytes < maxFigure && (f.Known() || f.Bytes == 0) && len(f.Unknown) <= maxReason && printable(f.Unknown)
}
