package oom

// speaker is a program by what its messages have in them. The first of the list that fits is it.
type speaker struct {
	framework Framework
	onlyGPU   bool // such words are about the GPU's memory
	words     []string
}

var speakers = []speaker{
	{Triton, true, []string{"triton.", "triton error"}},
	{VLLM, true, []string{"less than desired gpu memory utilization", "cache blocks", "kv cache is needed",
		"stored in kv cache"}},
	{"SGLang", true, []string{"mem-fraction-static", "prefill out of memory", "max-running-requests"}},
	{ONNXRuntime, true, []string{"onnxruntime", "bfcarena", "bfc_arena", "requested buffer of size",
		"cuda failure 2: out of memory ; gpu="}},
	{"TensorRT", true, []string{"[trt]", "tensorrt", "defaultallocator.cpp", "outofmemory (",
		"requested amount of gpu memory"}},
	{CuPy, true, []string{"cupy.", "(allocated so far: ", "cudaruntimeerror: ", "cudadrivererror: ",
		"out of memory to allocate"}},
	{TensorFlow, true, []string{"external/local_xla/", "external/local_tsl/", "errors_impl", "oom when allocating",
		"op_requires", "{{node", "{{function_node", "[op:"}},
	{JAX, true, []string{"jaxlib", "jax.", "external/xla", "external/tsl", "external/org_tensorflow/",
		"xlaruntimeerror", "jaxruntimeerror",
		"pjrt_", "pjrt ", "xla:", "tf-allocator", "stream_executor_client", "executable_name"}},
	{TensorFlow, false, []string{"tensorflow/", "tensorflow.", "keras", "dst tensor is not"}},
	{JAX, true, []string{"xla/", "resource_exhausted: ", "while trying to allocate", "gpu_0_bfc", "_bfc)"}},
	{"RELION", true, []string{"relion", "custom_allocator.cuh", "cudacustomallocator"}},
	{"bitsandbytes", true, []string{"bitsandbytes"}},
	{PyTorch, false, []string{"torch.", "pytorch", "c10::", "c10/", "aten/", "thcudacheck", "runtimeerror: cuda ",
		"acceleratorerror", "defaultcpuallocator",
		"dataloader", "numcudadevices()", "cuda driver initialization failed", "cuda unknown error",
		"found no nvidia driver", "no cuda gpus are",
		"unable to mmap", "tried to allocate", "insufficient shared memory"}},
	{"NCCL", false, []string{"nccl", "rccl", "failed to cuda calloc"}},
	{HIP, true, []string{"hip error", "hiperror", "hipmalloc", "rocblas", "miopen", "hipfft"}},
	{"OpenCL", true, []string{"opencl", "cl_", "clenqueue", "mem_object_allocation"}},
}

// speaker finds who says it: by the line itself, or if wide by those around it.
func (st statement) speaker(wide bool) speaker {
	best := min(st.facts.speaker, st.line.facts().speaker)
	if wide && best == len(speakers) {
		for l := range st.neighbours() {
			best = min(best, l.facts().speaker)
		}
	}
	if best == len(speakers) {
		return speaker{framework: Other}
	}
	return speakers[best]
}

// framework names who says it. A message about host memory is named by its own line only.
func (st statement) framework(k Kind) Framework {
	f := st.speaker(k == Device || k == Init).framework
	if f == Other && (k != Host || st.facts.has[isGPU] || st.facts.has[isHostCall]) {
		return CUDA
	}
	return f
}
