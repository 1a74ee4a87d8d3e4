// Package oomlog finds messages of frameworks, CUDA, HIP and Slurm about memory in a job's output: users can forge it.
package oomlog

import (
	"slices"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

const (
	MaxTail     = 64 << 10 // bytes of output read
	MaxMessages = 16
	MaxOthers   = 16
	MaxLine     = 400
	MaxFiles    = 10 // of a job: its output, its separate error output, and its steps' files
)

const (
	maxFigure = 4 << 50 // bytes: 4 PiB, beyond any node's memory; larger requests are a bug
	maxPID    = 1 << 22 // the limit of Linux
	maxGPU    = 1023
	maxRank   = 1 << 20
	maxReason = 100 // bytes
)

// Valid checks a message from another process: a known kind and framework, possible figures, and short texts.
func Valid(m record.Message) bool {
	ok := slices.Contains([]record.MessageKind{record.KindDevice, record.KindInit, record.KindHost, record.KindShared,
		record.KindFault}, m.Kind) && known(m.Framework) && known(m.Program) && isSetting(m.Setting) &&
		(m.GPU == nil || within(*m.GPU, 0, maxGPU)) && (m.Rank == nil || within(*m.Rank, 0, maxRank)) &&
		within(m.PID, 0, maxPID) && within(len(m.Line), 1, MaxLine) && printable(m.Line) &&
		within(m.Count, 1, MaxTail) && within(m.File, 0, MaxFiles-1) && within(len(m.Others), 0, MaxOthers) &&
		m.Cap < maxFigure
	for _, f := range m.Figures() {
		ok = ok && possible(*f)
	}
	for _, o := range m.Others {
		ok = ok && within(o.PID, 1, maxPID) && possible(o.Memory) && o.Kinds == nil
	}
	return ok
}

func within(n, least, most int) bool { return n >= least && n <= most }

func known(f record.Framework) bool {
	return f == record.FromCUDA || f == record.FromSlurm || f == record.FromOther ||
		slices.ContainsFunc(slices.Concat(vocabulary().speakers, vocabulary().programs), func(s speaker) bool {
			return s.framework == f
		})
}

func possible(f gpu.Figure) bool {
	return f.Bytes < maxFigure && (f.Known() || f.Bytes == 0) && len(f.Unknown) <= maxReason && printable(f.Unknown)
}
