package oom

import "strings"

// driver are the words of CUDA and HIP themselves, by whichever program prints them.
func driver() []rule {
	out := []rule{
		{"ggml", Device, CUDA, []string{"cudaMalloc failed: out of memory"}, false, false, readGGML},
		{"nccl", Device, CUDA, []string{"Failed to CUDA ", "alloc"}, false, false, readNCCL},
		{"xid", Fault, CUDA, []string{"NVRM: Xid ("}, false, false, plainly},
	}
	for _, text := range []string{"CUBLAS", "CUDNN", "CUSOLVER", "CUSPARSE"} {
		out = append(out, rule{"library", Device, CUDA, []string{text + "_STATUS_ALLOC_FAILED"}, false, false, readLibrary})
	}
	out = append(out,
		rule{"library", Device, CUDA, []string{"CUFFT_ALLOC_FAILED"}, false, false, readLibrary},
		rule{"cuda", Device, CUDA, []string{"out of memory"}, false, false, readDriver})
	for _, name := range []string{"CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation", "hipErrorOutOfMemory"} {
		out = append(out, rule{"cuda", Device, CUDA, []string{name}, false, false, readName})
	}
	for _, text := range faults {
		out = append(out, rule{text, Fault, CUDA, []string{text}, false, false, readDriver})
	}
	return out
}

// faults are the driver's texts for errors that are not about memory: a card's, the node's, or a kernel's own.
var faults = []string{
	"an illegal memory access was encountered",
	"an illegal instruction was encountered",
	"misaligned address",
	"device-side assert triggered",
	"unspecified launch failure",
	"the launch timed out and was terminated",
	"uncorrectable ECC error encountered",
	"hardware stack error",
	"all CUDA-capable devices are busy or unavailable",
	"CUDA-capable device(s) is/are busy or unavailable",
	"no CUDA-capable device is detected",
	"invalid device ordinal",
	"system not yet initialized",
	"initialization error",
	"system has unsupported display driver / cuda driver combination",
	"forward compatibility was attempted on non supported HW",
	"CUDA driver version is insufficient for CUDA runtime version",
	"unknown error",
}

// readDriver takes a text of the driver where a program reports it as an error of CUDA or HIP: after "CUDA error:" and
// the like, or in NCCL's quotes.
func readDriver(m *Message, c context) bool {
	before := strings.TrimSpace(c.before)
	if quoted, ok := strings.CutSuffix(before, "'"); ok {
		if !strings.Contains(quoted, "Cuda failure") {
			return false
		}
		before = strings.TrimSpace(quoted)
	} else if !endsAsCause(before) {
		return false
	}
	if !said(before+":") || !ofDriver(before) {
		return false
	}
	m.Framework = speaker(before)
	m.Kind = called(m.Kind, before)
	return true
}

// called is what ran out, by the call that failed.
func called(k Kind, before string) Kind {
	switch {
	case k == Device && atStart(before):
		return Init
	case k == Device && pinned(before):
		return Host
	}
	return k
}

// endsAsCause: what is left of an error's text ends in a colon, or in the symbol's name.
func endsAsCause(before string) bool {
	return strings.HasSuffix(before, ":") || strings.HasSuffix(before, "cudaErrorMemoryAllocation") || strings.HasSuffix(before, "CUDA_ERROR_OUT_OF_MEMORY (") ||
		strings.HasSuffix(before, "CUDA_ERROR_OUT_OF_MEMORY")
}

// ofDriver reports an error of CUDA or HIP by the words before it. Names of files and compilers are not theirs.
func ofDriver(before string) bool {
	var words []string
	for _, w := range strings.Fields(before) {
		switch {
		case compilers[strings.TrimRight(w, ":")]:
			return false
		case !isFile(w):
			words = append(words, w)
		}
	}
	lower := strings.ToLower(strings.Join(words, " "))
	for _, name := range []string{"cuda", "hip error", "hiperror", "gpuassert", "cuinit"} {
		if strings.Contains(lower, name) {
			return true
		}
	}
	return false
}

// compilers are the programs that make CUDA's code: what they lack is the host's memory.
var compilers = map[string]bool{"nvcc": true, "cicc": true, "ptxas": true, "fatbinary": true, "nvlink": true, "cudafe++": true}

// isFile: a path, or a source file or library with or without its line: "sort.cu:7:", "a.cu(12):".
func isFile(word string) bool {
	if strings.Contains(word, "/") {
		return true
	}
	name := strings.TrimRight(word, ":()[],0123456789")
	for _, suffix := range []string{".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".o", ".so", ".a", ".py", ".ptx"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// pinned: the call was for host memory that the card may reach.
func pinned(before string) bool {
	for _, call := range []string{"cudaHostAlloc", "cudaMallocHost", "cudaHostRegister", "cuMemHostAlloc", "cuMemAllocHost", "cuMemHostRegister"} {
		if strings.Contains(before, call) {
			return true
		}
	}
	return false
}

// atStart: the error came before there was anything to allocate.
func atStart(before string) bool {
	for _, what := range []string{"cuInit", "cudaGetDeviceCount", "CUDA initialization", "CUDA device count"} {
		if strings.Contains(before, what) {
			return true
		}
	}
	return false
}

// speaker is the framework that reports the driver's error.
func speaker(before string) Framework {
	for _, s := range []struct {
		sign      string
		framework Framework
	}{
		{"Triton Error", Triton}, {"CUDARuntimeError: ", CuPy}, {"CUDADriverError: ", CuPy}, {"hipError", HIP}, {"HIP error", HIP},
		{"XlaRuntimeError", JAX}, {"RuntimeError: CUDA error", PyTorch}, {"AcceleratorError: CUDA error", PyTorch},
		{"RuntimeError: cuda runtime error", PyTorch}, {"c10::", PyTorch},
	} {
		if strings.Contains(before, s.sign) {
			return s.framework
		}
	}
	return compiler(before, CUDA)
}

// readName takes the symbol of an error where no text follows it: "code=2(cudaErrorMemoryAllocation)",
// "results in CUDA_ERROR_OUT_OF_MEMORY".
func readName(m *Message, c context) bool {
	before := strings.TrimSpace(c.before)
	coded := strings.HasSuffix(before, "=2(") || strings.HasSuffix(before, "results in")
	if !coded && !strings.HasSuffix(before, ":") {
		return false
	}
	if !said(strings.TrimSuffix(before, "(") + ":") {
		return false
	}
	m.Framework, m.Kind = speaker(before+c.text), called(m.Kind, before)
	return true
}

// readLibrary takes "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling ...".
func readLibrary(m *Message, c context) bool {
	if !afterError(m, c) {
		return false
	}
	m.Framework = speaker(c.before)
	return true
}

// readGGML reads "allocating 9866.00 MiB on device 1: cudaMalloc failed: out of memory".
func readGGML(m *Message, c context) bool {
	m.Asked = after(c.before, "allocating ")
	onCard(m, c.before, "on device ")
	return said(c.before)
}

// readNCCL reads "NCCL WARN Failed to CUDA calloc async 608 bytes".
func readNCCL(m *Message, c context) bool {
	m.Asked = after(c.text, "async ", "malloc ", "calloc ")
	return strings.Contains(c.before, "NCCL WARN") && m.Asked.Known()
}
