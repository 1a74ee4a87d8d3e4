package oom

// sign is a text, in lower case, by which programs, libraries and the system say that memory ran out, or that a GPU
// failed.
type sign struct {
	text string
	kind Kind // of what ran out; unsaid: the words around tell
	// weak: people and programs also write it where nothing failed. It needs a word for an error nearby.
	weak bool
	// soft: for host memory, unless the line names a GPU.
	soft bool
	// head: the name of an exception; it counts only where it begins what is reported.
	head bool
	// ends: only a mark, or the end of the line, may follow.
	ends bool
	// memory: what could not be had has to be memory.
	memory bool
	// fails: "failed" has to follow.
	fails bool
	// coded: an error's number; it counts only where CUDA or HIP is named.
	coded bool
}

// unsaid is the kind of a sign that does not tell of what memory it speaks.
const unsaid Kind = ""

// table are the signs. Of several in one line the first that is understood decides.
var table = []struct {
	as    sign
	texts []string
}{
	{sign{kind: Shared}, []string{
		"out of resource: ", "too many resources requested for launch", "uses too much shared data",
		"error_launch_out_of_resources", "cudaerrorlaunchoutofresources", "launch out of resources",
		"shared memory allocation exceeded", "shared memory size limit exceeded", "exceeds maximum shared memory",
		"exceeds triton maximum tensor numel",
	}},
	// the driver, the runtime and their libraries
	{sign{kind: Device}, []string{
		"cuda_error_out_of_memory", "cudaerrormemoryallocation", "error_out_of_memory", "hiperroroutofmemory",
		"hiperrormemoryallocation", "status_alloc_failed", "cufft_alloc_failed", "hipfft_alloc_failed",
		"status_allocation_failed", "rocblas_status_memory_error", "miopenstatusallocfailed",
		"status_allocator_failure", "npp_memory_allocation_err", "magma_err_device_alloc", "out_of_device_memory",
		"erroroutofdevicememory", "outofdevicememory", "radix_sort: failed to get memory buffer",
		"error_out_of_resources", "ran out of memory on the gpu", "mem_object_allocation_failure",
		"cl_invalid_buffer_size",
	}},
	{sign{kind: Device, coded: true}, []string{
		"error 2", "error: 2", "error (2)", "error(2)", "error #2", "error code: 2", "error code 2", "error code (2",
		"error=2", "code=2", "result=2", "status: 2", "status 2", "status = 2", "failure 2", "returned 2",
		"returned (2", "returned (0x2", "cudasuccess (2", "cufft_success (2",
	}},
	// frameworks, about a GPU only
	{sign{kind: Device}, []string{
		"no available memory for the cache blocks", "kv cache is needed",
		"larger than the maximum number of tokens that can be stored in kv cache", "dst tensor is not initialized",
		"out of gpu memory", "failed to cuda ", "allocating <= available failed",
		"insufficient memory on accelerator", "maximum pool size exceeded", "not enough allocatable device memory",
		"prefill out of memory", "decode out of memory", "enough allocatable device-memory",
		"not enough memory to handle", "bytes which is greater than the maximum allowed buffer size",
	}},
	{sign{kind: Device, head: true}, []string{"torch.outofmemoryerror", "torch.cuda.outofmemoryerror"}},
	{sign{kind: Device, ends: true}, []string{"cuda_out_of_memory"}},
	{sign{kind: Device, weak: true}, []string{"device allocation error", "free memory on device"}},
	// the node's memory
	{sign{kind: Host}, []string{
		"defaultcpuallocator: ", "workers are out of shared memory",
		"unexpected bus error encountered in worker. this might be caused by insufficient shared memory",
		"failed to extend /dev/shm", "creating shared memory segment", "call to posix_fallocate failed",
		"node running low on memory", "ray killed this worker", "killed due to memory pressure",
		"rayoutofmemoryerror: ", "memory cgroup out of memory", "out of memory: killed process",
		"out of memory: kill process", "oom-kill:", "total-vm:", "invoked oom-killer",
		"cannot allocate vector of size", "insufficient virtual memory", "virtual memory exhausted",
		"heap out of memory", "runtime: out of memory", "out of host memory", "out_of_host_memory",
		"out of cpu memory", "out of memory. type help", "could not malloc", "requires more system memory",
		"insufficient memory for the java runtime", "insufficient memory) failed", "size, error code is 12",
		"libgomp: out of memory allocating", "array exceeds maximum array size", "out of memory. type \"help",
		"memory allocation failed on processor", "failed to register pinned memory",
		"out of memory. this could be due to allocating", "allocation would exceed memory limit",
		"unable to write to file </torch_", "not enough memory: you tried to allocate", "objectstorefullerror: ",
		"out of memory allocating heap arena", "enomem: not enough memory", "died due to signal 9",
		"internal compiler error: killed", "mpi_err_no_mem", "outofmemoryerror()",
		"killed signal terminated program", "unable to mmap",
	}},
	{sign{kind: Host, soft: true}, []string{
		"not enough memory. failed to", "errno 12] cannot allocate memory", "fork: cannot allocate memory",
		"malloc failed", "bytes requested; not enough memory", "could not reserve enough space", "st9bad_alloc",
		"instance of 'std::bad_alloc'", "arrowmemoryerror: ", "unable to allocate array",
		"java.lang.outofmemoryerror", "(errno=12)",
	}},
	{sign{kind: Host, soft: true, fails: true},
		[]string{"memory allocation of", "memory allocation on", "malloc of size"}},
	{sign{kind: Host, soft: true, head: true}, []string{"memoryerror", "memoryerrortraceback"}},
	{sign{kind: Host, soft: true, ends: true}, []string{"std::bad_alloc", segment}},
	// anything
	{sign{memory: true}, []string{
		"oom when allocating", "failed to allocate", "failed allocating", "failure to allocate", "fail to allocate",
		"fail to alloc", "failed to alloc", "failed to realloc", "failed to cudamalloc", "cannot allocate",
		"can't allocate", "can not allocate", "could not allocate", "couldn't allocate", "could not be allocated",
		"unable to allocate", "unable to alloc", "error allocating", "allocation failed", "allocation failure",
		"memory allocation error", "alloc failed", "alloc fail ", "allocate failed", "resource_exhausted:",
		"resource exhausted:", "resourceexhaustederror:", "outofmemory (", "bad_alloc: out_of_memory",
		"smaller than requested bytes", "not enough memory. please", "would exceed allowed memory",
		"out of memory allocating", "out of memory to allocate",
	}},
	{sign{weak: true}, []string{
		"out of memory", "out-of-memory", "out_of_memory", "ran out of gpu memory", "ran out of vram",
		"outofmemoryerror: ", "out of device memory", "out of cuda memory", "out of vram", "insufficient memory",
		"insufficient gpu memory", "insufficient device memory", "not enough memory", "not have enough memory",
		"not enough gpu memory", "not enough device memory", "memory exhausted", "memory was insufficient",
		"maximum variable size allowed",
	}},
	// a GPU that failed, not for want of memory: a card's, the node's, or a kernel's own error
	{sign{kind: Fault, weak: true}, []string{
		"an illegal memory access was encountered", "an illegal instruction was encountered", "misaligned address",
		"device-side assert triggered", "unspecified launch failure", "the launch timed out and was terminated",
		"uncorrectable ecc error encountered", "hardware stack error",
		"all cuda-capable devices are busy or unavailable", "cuda-capable device(s) is/are busy or unavailable",
		"no cuda-capable device is detected", "invalid device ordinal", "system not yet initialized",
		"initialization error", "system has unsupported display driver / cuda driver combination",
		"forward compatibility was attempted on non supported hw",
		"cuda driver version is insufficient for cuda runtime version", "unknown error",
	}},
	{sign{kind: Fault}, []string{
		"cuda driver initialization failed", "cuda unknown error - this may be due to",
		"found no nvidia driver on your system", "no cuda gpus are available", "nvrm: xid (",
	}},
}

// hit is where a sign stands in a line.
type hit struct {
	*sign
	pos int
}

// segment is Segment as a sign.
const segment = "failed to map segment from shared object"

// shortest is the length of the shortest sign.
const shortest = len("error 2")

// maxHits bounds how many signs of one line are looked at.
const maxHits = 8
