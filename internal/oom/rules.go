package oom

import (
	"strings"

	"bookend/internal/gpu"
)

// rule recognises one wording.
type rule struct {
	name      string // of the kind of message: what counts as the same
	kind      Kind
	framework Framework
	signs     []string // all of them, in this order, on one line
	wrapped   bool     // a long message, which consoles break into several lines
	parts     bool     // one of several lines that make up a message
	// read fills in what the message says; false: it is no such message after all.
	read func(*Message, context) bool
}

// context is what a rule reads: the text from its first sign on, and what stands before that.
type context struct{ before, text string }

// in is where the rule's first sign stands in a line, -1 where not all are there.
func (r rule) in(body string) int {
	first, from := -1, 0
	for i, sign := range r.signs {
		at := strings.Index(body[from:], sign)
		if at < 0 {
			return -1
		}
		if i == 0 {
			first = at
		}
		from += at + len(sign)
	}
	return first
}

// rules are tried in order: what is more exact comes first.
func rules() []rule {
	return append(append(append([]rule{
		{"torch", Device, PyTorch, []string{"CUDA out of memory."}, true, false, readTorch},
		{"torch", Device, PyTorch, []string{"HIP out of memory."}, true, false, readTorch},
		{"torch init", Init, PyTorch, []string{"Unexpected error from cudaGetDeviceCount()"}, true, false, readCount},
		{"torch init", Fault, PyTorch, []string{"CUDA driver initialization failed"}, false, false, plainly}, // error 3: not memory
		{"torch init", Fault, PyTorch, []string{"CUDA unknown error - this may be due to"}, false, false, plainly},
		{"no driver", Fault, PyTorch, []string{"Found no NVIDIA driver on your system"}, false, false, plainly},
		{"no GPU", Fault, PyTorch, []string{"No CUDA GPUs are available"}, false, false, plainly},
		{"vllm startup", Device, VLLM, []string{"Free memory on device", " on startup is less than desired GPU memory utilization"}, true, false, readVLLM},
		{"vllm cache", Device, VLLM, []string{"No available memory for the cache blocks"}, false, false, plainly},
		{"triton", Shared, Triton, []string{"out of resource: ", "Required: "}, false, false, readTriton},
		{"launch", Shared, CUDA, []string{"too many resources requested for launch"}, false, false, afterError},
		{"ptxas", Shared, CUDA, []string{"ptxas error", "uses too much shared data"}, false, false, plainly},
	}, pools()...), host()...), driver()...)
}

// pools are the frameworks that keep a pool other than PyTorch's.
func pools() []rule {
	return []rule{
		{"cupy", Device, CuPy, []string{"ut of memory allocating ", "(allocated so far: "}, false, false, readCuPy},
		{"cupy", Device, CuPy, []string{"out of memory to allocate ", "bytes (total "}, false, false, readCuPy},
		{"bfc", Host, TensorFlow, []string{"failed to alloc ", "bytes on host: CUDA_ERROR_OUT_OF_MEMORY"}, false, false, readAlloc},
		{"bfc", Device, TensorFlow, []string{"ran out of memory trying to allocate "}, false, true, readBFC},
		{"bfc", Device, TensorFlow, []string{"OOM when allocating tensor with shape"}, false, true, readTensor},
		{"bfc", Device, TensorFlow, []string{"ResourceExhaustedError: "}, false, true, readExhausted},
		{"bfc", Device, JAX, []string{"ut of memory while trying to allocate "}, false, true, readXLA},
		{"bfc", Device, JAX, []string{"RESOURCE_EXHAUSTED: Out of memory allocating "}, false, true, readXLA},
		{"bfc", Device, JAX, []string{"RESOURCE_EXHAUSTED: Failed to allocate request for "}, false, true, readXLA},
		{"reserve", Device, CUDA, []string{"failed to allocate ", "from device: CUDA_ERROR_OUT_OF_MEMORY"}, false, false, readReserve},
		{"rmm", Device, CUDA, []string{"std::bad_alloc: out_of_memory: "}, false, false, readAlloc},
		{"rmm", Device, CUDA, []string{"std::bad_alloc: CUDA error"}, false, false, readAlloc},
		{"rmm", Device, CUDA, []string{"std::bad_alloc: RMM failure"}, false, false, readAlloc},
		{"julia", Device, CUDA, []string{"Out of GPU memory trying to allocate "}, false, false, readAlloc},
	}
}

// plainly takes a message that has no figures, unless it is quoted or denied.
func plainly(_ *Message, c context) bool { return said(c.before) }

// afterError takes a text that is the end of an error message.
func afterError(_ *Message, c context) bool {
	return said(c.before) && strings.HasSuffix(strings.TrimSpace(c.before), ":")
}

// said tells a message from a line of a program's source or of a person's that only names it: in quotes, in a comment,
// after a word of denial or of code.
func said(before string) bool {
	if strings.Count(before, `"`)%2 == 1 || strings.Count(before, "`")%2 == 1 || strings.Contains(before, "('") || strings.Contains(before, " # ") {
		return false
	}
	if before = strings.TrimRight(before, ": "); before == "" {
		return true
	}
	if before[0] == '#' || strings.HasPrefix(before, "//") || strings.IndexByte("'(=,*#/<", before[len(before)-1]) >= 0 {
		return false
	}
	clause := before[strings.LastIndex(before, ": ")+1:]
	for _, word := range strings.Fields(clause) {
		switch strings.ToLower(word) {
		case "no", "without", "if", "any", "avoid", "avoids", "except", "catch", "never", "prevent", "prevents", "import":
			return false
		}
	}
	return true
}

// readTorch reads all generations of PyTorch's message. Older ones give, in brackets, figure and name; since 2.1 they are
// sentences. What is idle in the pool was "cached" up to 1.3 and has to be worked out up to 2.0.
func readTorch(m *Message, c context) bool {
	_, rest, found := strings.Cut(c.text, ". Tried to allocate ")
	if !found || strings.Index(c.text, ". Tried to allocate ") > len("CUDA out of memory") || strings.HasPrefix(c.before, "#") {
		return false
	}
	for _, last := range []string{"by PyTorch)", "cached)", "but unallocated"} { // what comes then is advice, or another line
		if sentence, _, whole := strings.Cut(rest, last); whole {
			rest = sentence + last
		}
	}
	var sized bool
	if m.Asked, sized = amount(rest); !sized {
		m.Asked = gpu.Unknown("not said")
		if !strings.HasPrefix(rest, "more than 1EB") {
			return false
		}
	}
	if n := number(rest, "GPU "); n >= 0 && n <= maxGPU {
		m.GPU = &n
	}
	m.Limit = before(rest, " allowed")
	if !strings.Contains(rest, "has a total capac") {
		m.Total, m.Free = before(rest, " total capacity"), before(rest, " free")
		m.Allocated, m.Idle = before(rest, " already allocated"), before(rest, " cached")
		if kept := before(rest, " reserved in total"); kept.Known() && m.Allocated.Known() && kept.Bytes >= m.Allocated.Bytes {
			m.Idle = gpu.Bytes(kept.Bytes - m.Allocated.Bytes)
		}
		return true
	}
	m.Total = after(rest, "total capacity of ", "total capacty of ")
	m.Free = after(rest, " of which ")
	m.InUse = after(rest, "this process has ")
	m.Allocated = after(rest, "Of the allocated memory ")
	m.Idle = before(rest, " is reserved by PyTorch but unallocated")
	if m.InUse.Known() { // in a container the process itself may be listed by a number that it does not know
		m.Others = processes(rest)
	}
	return true
}

// processes reads "Process 7 has 1.20 GiB memory in use."
func processes(text string) []Process {
	var out []Process
	for len(out) < MaxOthers {
		_, rest, found := strings.Cut(text, "Process ")
		if !found {
			break
		}
		text = rest
		if pid := number("="+rest, "="); pid > 0 && pid <= maxPID {
			sentence, _, _ := strings.Cut(rest, " memory in use")
			out = append(out, Process{PID: pid, Memory: after(sentence, " has ")})
		}
	}
	return out
}

// readCount reads why CUDA's runtime could not count the devices.
func readCount(m *Message, c context) bool {
	_, reason, found := strings.Cut(c.text, "Error ")
	if !found || !said(c.before) {
		return false
	}
	if n := number("="+reason, "="); n != cudaMemory {
		m.Kind = Fault
		return n > 0
	}
	return true
}

// cudaMemory is CUDA_ERROR_OUT_OF_MEMORY, and cudaErrorMemoryAllocation of the runtime.
const cudaMemory = 2

// readVLLM reads "Free memory on device cuda:1 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization
// (0.9, 19.84 GiB)".
func readVLLM(m *Message, c context) bool {
	name, figures, _ := strings.Cut(strings.TrimPrefix(c.text, "Free memory on device"), "(")
	if n := number(name, "cuda:"); n >= 0 && n <= maxGPU {
		m.GPU = &n
	}
	free, rest, _ := strings.Cut(figures, "/")
	total, rest, _ := strings.Cut(rest, ")")
	_, unit, _ := strings.Cut(total, " ")
	var freeOK, totalOK bool
	if m.Free, freeOK = amount(free + " " + unit); !freeOK {
		return false
	}
	m.Total, totalOK = amount(total)
	_, desired, _ := strings.Cut(rest, "utilization (")
	m.Asked = after(desired, ", ")
	return totalOK
}

// readTriton reads a kernel's shared memory, threads or tensor memory: what it needs and what there is.
func readTriton(m *Message, c context) bool {
	m.Asked, m.Limit = after(c.text, "Required: "), after(c.text, "Hardware limit: ", "Hardware limitation: ")
	return m.Asked.Known()
}

func readCuPy(m *Message, c context) bool {
	m.Asked = after(c.text, "allocating ", "to allocate ")
	m.Allocated = after(c.text, "allocated so far: ", "(total ")
	m.Limit = after(c.text, "limit set to: ", "limit set to ")
	return m.Asked.Known()
}

// readBFC reads the allocator that TensorFlow and XLA share. It also warns where it was only trying.
func readBFC(m *Message, c context) bool {
	if !strings.Contains(c.before, "Allocator") || strings.Contains(c.text, "is not a failure") {
		return false
	}
	m.Asked = after(c.text, "trying to allocate ")
	m.Framework = compiler(c.before, m.Framework)
	onCard(m, c.before, "GPU_")
	return m.Asked.Known()
}

// compiler tells XLA outside TensorFlow by the source file that speaks.
func compiler(before string, otherwise Framework) Framework {
	switch {
	case strings.Contains(before, "local_xla/"), strings.Contains(before, "local_tsl/"):
		return TensorFlow
	case strings.Contains(before, "external/xla/"), strings.Contains(before, "external/tsl/"), strings.Contains(before, "external/org_tensorflow/"),
		strings.HasPrefix(before, "xla/"), strings.HasPrefix(before, "pjrt"):
		return JAX
	case strings.Contains(before, "tensorflow/"):
		return TensorFlow
	}
	return otherwise
}

func readTensor(m *Message, c context) bool {
	if strings.Contains(c.text, "device:CPU:") {
		m.Kind = Host
	}
	onCard(m, c.text, "device:GPU:")
	return strings.Contains(c.text, "shape[") || strings.Contains(c.text, "shape [")
}

// readExhausted takes TensorFlow's exception, not that of a service with a quota.
func readExhausted(_ *Message, c context) bool {
	return strings.HasSuffix(c.before, "errors_impl.") || strings.Contains(c.text, "failed to allocate memory")
}

func readXLA(m *Message, c context) bool {
	m.Asked = after(c.text, "to allocate ", "memory allocating ", "request for ")
	onCard(m, c.text, "device ordinal ")
	return m.Asked.Known()
}

func onCard(m *Message, text, sign string) {
	if n := number(text, sign); n >= 0 && n <= maxGPU {
		m.GPU = &n
	}
}

// readReserve reads the attempt to take the pool itself from the driver: "17.79G (19104890880 bytes)".
func readReserve(m *Message, c context) bool {
	m.Framework = compiler(c.before, m.Framework)
	m.Asked = after(c.text, "(", "failed to allocate ")
	return m.Asked.Known()
}

func readAlloc(m *Message, c context) bool {
	m.Asked = after(c.text, "failed to allocate ", "failed to alloc ", "trying to allocate ")
	return said(c.before)
}
