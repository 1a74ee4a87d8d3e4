// Package oom reads what frameworks, CUDA, HIP and Slurm say of memory in a job's output: the user's claim.
package oom

import (
	"slices"

	"bookend/internal/gpu"
)

// Kind is what ran out.
type Kind string

const (
	Device Kind = "device" // a GPU allocation failed
	// CUDA could not even start, and calls it out of memory: the process's own limits, most often
	Init   Kind = "init"
	Host   Kind = "host"   // host memory
	Shared Kind = "shared" // a kernel's shared memory or registers: no memory of the card's
	Fault  Kind = "fault"  // a GPU error that is not about memory
)

// Framework is the program or library that says it: one of speakers, or of these.
type Framework string

// The frameworks that more is known of.
const (
	PyTorch Framework = "PyTorch"
	JAX     Framework = "JAX" // and XLA itself
	VLLM    Framework = "vLLM"
	CuPy    Framework = "CuPy"
	CUDA    Framework = "CUDA"
	Slurm   Framework = "Slurm"
	Other   Framework = "" // none named, or none of these
)

// Message is one kind of message, as it was found last. Figures are in bytes; what it does not say is unknown.
type Message struct {
	Kind      Kind       `json:"kind"`
	Framework Framework  `json:"framework,omitempty"`
	GPU       *int       `json:"gpu,omitempty"` // as PyTorch or vLLM count it, within the job
	Asked     gpu.Figure `json:"asked"`         // the allocation that failed
	Total     gpu.Figure `json:"total"`         // of the card, or of the share that the process has
	Free      gpu.Figure `json:"free"`          // of the card
	InUse     gpu.Figure `json:"in_use"`        // by this process, context included
	Allocated gpu.Figure `json:"allocated"`     // of the framework's pool, in live use
	Idle      gpu.Figure `json:"idle"`          // of the framework's pool, reserved but unallocated
	PID       int        `json:"pid,omitempty"` // of the process that says it, where it does
	// Rank is the process's number in its job or step, where the prefix of its launcher has it.
	Rank   *int          `json:"rank,omitempty"`
	Others []gpu.Process `json:"others,omitempty"`
	Line   string        `json:"line"`  // the message's own first line, printable ASCII, at most MaxLine bytes
	Count  int           `json:"count"` // such messages in all
	// File tells the files of one job's output apart, from 0: only messages of one file stand in the order of time.
	File int `json:"file,omitempty"`
}

const (
	MaxTail     = 64 << 10 // bytes of output read
	MaxMessages = 16
	MaxOthers   = 16
	MaxLine     = 400
	MaxFiles    = 10 // of a job: its output, its errors where they are kept apart, and its steps' files
)

// Segment is what the dynamic loader says of a library that it could not map: a small ulimit -v does that to a large
// one. Without the system's error behind it, it may be a directory mounted noexec.
const Segment = "failed to map segment from shared object"

// Refused is the system's word for memory that it does not give (ENOMEM).
const Refused = "Cannot allocate memory"

const (
	maxFigure = 4 << 50 // bytes: 4 PiB, beyond any node's memory; who asks for more has miscounted
	maxPID    = 1 << 22 // Linux's own limit
	maxGPU    = 1023
	maxRank   = 1 << 20
	maxReason = 100 // bytes
)

// Valid checks a message that came from another process: known kind and framework, possible figures, short texts.
func Valid(m Message) bool {
	ok := slices.Contains([]Kind{Device, Init, Host, Shared, Fault}, m.Kind) && known(m.Framework) &&
		(m.GPU == nil || within(*m.GPU, 0, maxGPU)) && (m.Rank == nil || within(*m.Rank, 0, maxRank)) &&
		within(m.PID, 0, maxPID) && within(len(m.Line), 1, MaxLine) && printable(m.Line) &&
		within(m.Count, 1, MaxTail) && within(m.File, 0, MaxFiles-1) && within(len(m.Others), 0, MaxOthers)
	for _, f := range m.figures() {
		ok = ok && possible(*f)
	}
	for _, o := range m.Others {
		ok = ok && within(o.PID, 1, maxPID) && possible(o.Memory) && o.Kinds == nil
	}
	return ok
}

func within(n, least, most int) bool { return n >= least && n <= most }

func known(f Framework) bool {
	return f == CUDA || f == Slurm || f == Other ||
		slices.ContainsFunc(vocabulary().speakers, func(s speaker) bool { return s.framework == f })
}

func possible(f gpu.Figure) bool {
	return f.Bytes < maxFigure && (f.Known() || f.Bytes == 0) && len(f.Unknown) <= maxReason && printable(f.Unknown)
}
