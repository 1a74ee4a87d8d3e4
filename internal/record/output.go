package record

import (
	"cmp"
	"strings"

	"bookend/internal/gpu"
)

// OutputKind is which part of a job's output a file receives.
type OutputKind string

const (
	ScriptOutput OutputKind = "output" // of the batch script, or of an interactive shell
	ScriptErrors OutputKind = "errors" // of the batch script, if they are kept apart
	StepOutput   OutputKind = "step"   // of a step, output or errors
)

// Output is one of a job's outputs, and how much of it was searched for messages about memory.
type Output struct {
	Kind OutputKind `json:"kind"`
	// Path is the user's claim; cut at its beginning if it is long; empty if it is not known.
	Path string `json:"path,omitempty"`
	Size int64  `json:"size_bytes"`
	Read int64  `json:"read_bytes"` // bytes searched, at its end
	// Why is why nothing of it was searched or, unless its length is the reason, no more.
	Why string `json:"why,omitempty"`
}

// Name returns how a text calls it to the job's owner.
func (k OutputKind) Name() string {
	names := map[OutputKind]string{ScriptOutput: "its output", ScriptErrors: "its errors"}
	return cmp.Or(names[k], "a step's output")
}

// MessageKind is the resource that ran out.
type MessageKind string

const (
	KindDevice MessageKind = "device" // a GPU allocation failed
	// Init: CUDA could not start and calls it out of memory. The usual cause is a limit of the process.
	KindInit   MessageKind = "init"
	KindHost   MessageKind = "host"   // host memory
	KindShared MessageKind = "shared" // a kernel's shared memory or registers, not GPU memory
	KindFault  MessageKind = "fault"  // a GPU error that is not about memory
)

// Framework is the program or library that printed the message: one of speakers, or one of these.
type Framework string

// The frameworks with special handling.
const (
	FromPyTorch Framework = "PyTorch"
	FromVLLM    Framework = "vLLM"
	FromCuPy    Framework = "CuPy"
	FromCUDA    Framework = "CUDA"
	FromSlurm   Framework = "Slurm"
	FromOther   Framework = "" // none named, or an unknown one
)

// Message stands for all messages of one kind, with the last one's content. Figures are in bytes, or unknown.
type Message struct {
	Kind      MessageKind `json:"kind"`
	Framework Framework   `json:"framework,omitempty"`
	Program   Framework   `json:"program,omitempty"` // that the framework worked for: vLLM for PyTorch in vLLM
	GPU       *int        `json:"gpu,omitempty"`     // as PyTorch or vLLM count it, within the job
	Asked     gpu.Figure  `json:"asked"`             // the allocation that failed
	Total     gpu.Figure  `json:"total"`             // of the GPU, or of the process's share of it
	Free      gpu.Figure  `json:"free"`              // of the GPU
	InUse     gpu.Figure  `json:"in_use"`            // by this process, context included
	Allocated gpu.Figure  `json:"allocated"`         // of the framework's pool, in live use
	Idle      gpu.Figure  `json:"idle"`              // of the framework's pool, reserved but unallocated
	Cap       uint64      `json:"cap,omitempty"`     // the program's own limit, bytes; 0: none
	Setting   string      `json:"setting,omitempty"` // of PyTorch's allocator, that its version allows
	PID       int         `json:"pid,omitempty"`     // of the process that printed it, if the line has it
	// Rank is the process's number in its job or step, if the launcher's line prefix has it.
	Rank   *int          `json:"rank,omitempty"`
	Others []gpu.Process `json:"others,omitempty"`
	Line   string        `json:"line"`  // the message's own first line, printable ASCII, at most MaxLine bytes
	Count  int           `json:"count"` // number of such messages
	// File numbers the files of one job's output, from 0. Messages are in order of time only within a file.
	File int `json:"file,omitempty"`
}

func (m *Message) Figures() []*gpu.Figure {
	return []*gpu.Figure{&m.Asked, &m.Total, &m.Free, &m.InUse, &m.Allocated, &m.Idle}
}

// SegmentFailed is printed by the dynamic loader if it cannot map a library, for example under a small ulimit -v.
const SegmentFailed = "failed to map segment from shared object"

// Ambiguous reports whether newer loaders print the message both for a limit and for a directory mounted noexec.
func (m Message) Ambiguous() bool {
	return strings.Contains(m.Line, SegmentFailed) && !strings.Contains(m.Line, "Cannot allocate memory")
}
