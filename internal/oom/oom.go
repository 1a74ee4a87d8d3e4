// Package oom finds messages of frameworks, CUDA, HIP and Slurm about memory in a job's output, which users can forge.
package oom

import (
	"slices"

	"bookend/internal/gpu"
)

// Kind is the resource that ran out.
type Kind string

const (
	Device Kind = "device" // a GPU allocation failed
	// Init: CUDA could not start and calls it out of memory. The usual cause is a limit of the process.
	Init   Kind = "init"
	Host   Kind = "host"   // host memory
	Shared Kind = "shared" // a kernel's shared memory or registers, not GPU memory
	Fault  Kind = "fault"  // a GPU error that is not about memory
)

// Framework is the program or library that printed the message: one of speakers, or one of these.
type Framework string

// The frameworks with special handling.
const (
	PyTorch Framework = "PyTorch"
	JAX     Framework = "JAX" // and XLA itself
	VLLM    Framework = "vLLM"
	CuPy    Framework = "CuPy"
	CUDA    Framework = "CUDA"
	Slurm   Framework = "Slurm"
	Other   Framework = "" // none named, or an unknown one
)

// Message stands for all messages of one kind, with the last one's content. Figures are in bytes, or unknown.
type Message struct {
	Kind      Kind       `json:"kind"`
	Framework Framework  `json:"framework,omitempty"`
	GPU       *int       `json:"gpu,omitempty"` // as PyTorch or vLLM count it, within the job
	Asked     gpu.Figure `json:"asked"`         // the allocation that failed
	Total     gpu.Figure `json:"total"`         // of the GPU, or of the process's share of it
	Free      gpu.Figure `json:"free"`          // of the GPU
	InUse     gpu.Figure `json:"in_use"`        // by this process, context included
	Allocated gpu.Figure `json:"allocated"`     // of the framework's pool, in live use
	Idle      gpu.Figure `json:"idle"`          // of the framework's pool, reserved but unallocated
	PID       int        `json:"pid,omitempty"` // of the process that printed it, if the line has it
	// Rank is the process's number in its job or step, if the launcher's line prefix has it.
	Rank   *int          `json:"rank,omitempty"`
	Others []gpu.Process `json:"others,omitempty"`
	Line   string        `json:"line"`  // the message's own first line, printable ASCII, at most MaxLine bytes
	Count  int           `json:"count"` // number of such messages
	// File numbers the files of one job's output, from 0. Messages are in order of time only within a file.
	File int `json:"file,omitempty"`
}

const (
	MaxTail     = 64 << 10 // bytes of output read
	MaxMessages = 16
	MaxOthers   = 16
	MaxLine     = 400
	MaxFiles    = 10 // of a job: its output, its separate error output, and its steps' files
)

// Segment is printed by the dynamic loader if it cannot map a library, for example under a small ulimit -v. If no
// system error follows, the cause may be a directory mounted noexec.
const Segment = "failed to map segment from shared object"

// Refused is the system's error text for ENOMEM.
const Refused = "Cannot allocate memory"

const (
	maxFigure = 4 << 50 // bytes: 4 PiB, beyond any node's memory; larger requests are a bug
	maxPID    = 1 << 22 // the limit of Linux
	maxGPU    = 1023
	maxRank   = 1 << 20
	maxReason = 100 // bytes
)

// Valid checks a message from another process: a known kind and framework, possible figures, and short texts.
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
