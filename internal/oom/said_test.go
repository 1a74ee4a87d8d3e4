package oom

import (
	"os"
	"strings"
	"testing"

	"bookend/internal/gpu"
)

// one is the only message in a text.
func one(t *testing.T, text string) Message {
	t.Helper()
	found := Find([]byte(text))
	if len(found) != 1 {
		t.Fatalf("%d messages in %q: %+v", len(found), text, found)
	}
	return found[0]
}

// What the program gets over is no answer.
func TestSurvived(t *testing.T) {
	for _, text := range []string{
		message + "Reducing batch size to 16 and retrying\n",
		"CUDA error: out of memory, falling back to the CPU\n",
		"| WARNING: ran out of memory on GPU 0 with exception: " + message + "Skipping batch\n",
		"W0000 external/xla/xla/service/gpu/autotuning/gemm_fusion_autotuner.cc:99] Autotuning candidate failed: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 5368709120 bytes.\n",
		"Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.5GiB with freed_by_count=0. The caller indicates that this is not a failure\n",
		"[TRT] [W] Skipping tactic 3 due to insufficient memory on requested size of 2317352960 detected for tactic 0x4.\n",
		"[TRT] [E] 2: [buffer.cpp::resize::140] Error Code 2: OutOfMemory (no further information)\n[TRT] [W] Skipping tactic 1 due to insufficient memory\n",
		"2026-01-02 | WARNING | fairseq.trainer | Ran out of memory with exception: " + message + "| WARNING | fairseq.trainer | attempting to recover from OOM\n",
		"cudaMalloc of 4.0 GiB failed (out of memory); using managed memory instead\n",
		message + "OOM at chunk size 4096, trying 2048\n",
		"Open MPI failed to allocate a CUDA IPC buffer, but this is not fatal\n",
		"job 7: attempt 1 failed: torch.OutOfMemoryError: Allocation on device ; retry in 100 ms\n",
		"[autotune] config 128x256: CUDA error: out of memory -> inf ms\n",
		"Failed to allocate memory on the GPU. Using the CPU.\n",
		"step 14: CUDA out of memory error, ignoring batch\n",
		"cudaMalloc of 16 GiB failed (out of memory); trying 12 GiB\n",
		"ggml_cuda: cudaMalloc failed: out of memory\ngraph_reserve: failed to allocate compute buffers\nretrying without pipeline parallelism\n",
		"    log.error(\"CUDA error: out of memory\")\n",
		"WARNING: GPU 0 memory use 96% exceeds the memory usage threshold of 95%\n",
		"ERROR ws: message of 2000000 bytes is greater than the maximum allowed buffer size\n",
		"[W] tactic 0x12 failed with error: out of memory on GPU\n",
		"Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1474 -> 0.1845\n",
	} {
		if found := Find([]byte(text)); len(found) != 0 {
			t.Errorf("%q: %+v", text, found)
		}
	}
	for _, text := range []string{
		message + "Try reducing batch size, or consider skipping layers\n",
		"ollama: " + message + "can't fall back any further\n",
		"mxnet.base.MXNetError: cudaMalloc retry failed: out of memory\n",
		message + strings.Repeat("another line\n", 5) + "retrying\n",
		strings.Repeat(message, 8) + "Worker group FAILED. 3/3 attempts left; will restart worker group\n", // the first of them
		"  File \"jit.py\", line 385, in _init_handles\n" + message,                                        // without the source at hand
		`ERROR Compute Failed: XGBoostError('[11:17:11] device_vector.cu:23: std::bad_alloc: cudaErrorMemoryAllocation: out of memory')` + "\n",
	} {
		one(t, text)
	}
}

// Sizes stand where each program puts them. What is another figure, or a factor of the size, is none.
func TestAsked(t *testing.T) {
	for text, want := range map[string]gpu.Figure{
		"CUDA error: out of memory (alloc_size: 4294967296, free_mem: 1073741824)":                            gpu.Bytes(4294967296),
		"cudaMallocManaged failed for n_bytes=17179869184: out of memory":                                     gpu.Bytes(17179869184),
		"MemoryError: Unable to allocate 348. KiB for an array":                                               gpu.Bytes(348 << 10),
		"GPU out of memory error\n [requestedSpace:   44135424 B]\n [totalFreeSpace:   32325042 B]":           gpu.Bytes(44135424),
		"Memory allocation error: std::bad_alloc: out of memory\n- Free memory: 1GB\n- Requested memory: 5GB": gpu.Bytes(5 << 30),
		"ERROR: GPU allocation of rho failed, size = 2048.00 MB, stat = 2\nCUDA error: out of memory":         gpu.Bytes(2 << 30),
		"Memory requested on the GPU (MB):  20480\nMemory free (MB):  15000\nERROR: out of GPU memory":        gpu.Bytes(20 << 30),
		"Not enough GPU memory: need 12 GB but only 10 GB available":                                          gpu.Bytes(12 << 30),
		"Failed to allocate 4096 x 4096 doubles on the GPU: out of memory":                                    gpu.Unknown("not said"),
		"Failed to allocate 1000 x 8 bytes on the GPU: out of memory":                                         gpu.Unknown("not said"),
		"Failed to allocate GPU memory, max_alloc_size: 2147483648":                                           gpu.Unknown("not said"),
		"GPU allocation failed for 1000000 cells: out of memory":                                              gpu.Unknown("not said"),
		"cudaMalloc failed: out of memory (alloc.cu, 1234)":                                                   gpu.Unknown("not said"),
		"cudaMalloc error: size=1.2e+10 bytes: out of memory":                                                 gpu.Bytes(12000000000),
		"calloc(1000000000, 8) failed: Cannot allocate memory":                                                gpu.Unknown("not said"),
		"CUDA error: out of memory\n12.5 GiB\nrequested nothing":                                              gpu.Unknown("not said"),
		// never what was free, in use or an address
		"cudaMalloc of 4,194,304,000 bytes failed: out of memory":                       gpu.Bytes(4194304000),
		"GPU allocation of 3000000000 x 8 bytes failed (cudaErrorMemoryAllocation)":     gpu.Unknown("not said"),
		"CUDA out of memory: cannot allocate 1.2e+10 bytes":                             gpu.Bytes(12000000000),
		"cudaMalloc failed for 0x7f2a00000000: out of memory":                           gpu.Unknown("not said"),
		"CUDA error: out of memory: free 812 MB, total 16160 MB, need 1500 MB":          gpu.Bytes(1500 << 20),
		"CUDA error: out of memory: free 812 MB, total 16160 MB":                        gpu.Unknown("not said"),
		"cuda_malloc(): out of memory!\ncuda_malloc_trim(): freed 168 arrays (6.5 GiB)": gpu.Unknown("not said"),
		"CUDA error: out of memory\nModel size: 13.4 GB, peak memory 22.1 GB":           gpu.Unknown("not said"),
	} {
		if m := one(t, text+"\n"); m.Asked != want {
			t.Errorf("%q: %+v", text, m.Asked)
		}
	}
}

const message = "RuntimeError: CUDA error: out of memory\n"

// Lines of several processes are told apart by what their launcher puts in front.
func TestInterleaved(t *testing.T) {
	parts := strings.SplitAfter(strings.ReplaceAll(parts(t)["torch-wrapped"], "15.51", "%"), "\n")
	var text strings.Builder
	for _, l := range parts {
		if l == "" {
			continue
		}
		text.WriteString("[rank1]: " + strings.Replace(l, "GPU 0", "GPU 1", 1))
		text.WriteString("[rank3]: " + strings.Replace(strings.Replace(l, "GPU 0", "GPU 3", 1), "20.00 MiB", "30.00 MiB", 1))
	}
	found := Find([]byte(strings.ReplaceAll(text.String(), "%", "15.51")))
	if len(found) != 2 {
		t.Fatalf("%+v", found)
	}
	for i, want := range []struct {
		rank  int
		asked float64
	}{{1, 20}, {3, 30}} {
		m := found[i]
		if m.Rank == nil || *m.Rank != want.rank || *m.GPU != want.rank || m.Asked != fig(want.asked, mib) || m.Total != fig(15.51, gib) || m.Idle != fig(10.27, mib) {
			t.Errorf("%+v", m)
		}
	}
}

// The ways in which launchers and loggers mark a line.
func TestPrefixes(t *testing.T) {
	for _, tt := range []struct {
		before string
		rank   *int
		pid    int
	}{
		{"[rank7]: ", card(7), 0},
		{"[Rank 7] ", card(7), 0},
		{"[rank: 7] ", card(7), 0},
		{"rank7: ", card(7), 0},
		{"Rank 7: ", card(7), 0},
		{"[default3]:[rank7]: ", card(7), 0},
		{"[default3]:", nil, 0},
		{"[3] ", nil, 0},
		{"7: ", card(7), 0},
		{"[1,7]<stderr>:", card(7), 0},
		{"(VllmWorker rank=7 pid=4711) ERROR 03-13 09:00:43 [core.py:330] ", card(7), 4711},
		{"(EngineCore pid=4711) ", nil, 4711},
		{"(train_fn pid=4711, ip=10.0.0.2) 2026-01-02 03:04:05,678 ERROR worker.py:12 -- ", nil, 4711},
		{"Nov 22 17:41:01 n1 app[4711]: ", nil, 0},
		{"2026-01-02T03:04:05.678Z n1 ", nil, 0},
		{"worker-1  | ", nil, 0},
		{"2026-01-02 03:04:05,678 - trainer - ERROR - ", nil, 0},
		{"ERROR:root:", nil, 0},
		{"\x1b[31m\x1b[1m", nil, 0},
		{"\r100%|#####| 5/5\r", nil, 0},
	} {
		m := one(t, tt.before+message)
		if m.Kind != Device || m.Framework != PyTorch || m.PID != tt.pid || (m.Rank == nil) != (tt.rank == nil) || m.Rank != nil && *m.Rank != *tt.rank {
			t.Errorf("%q: %+v", tt.before, m)
		}
	}
}

// Ranks that die of the first one's death say nothing about memory.
func TestPeers(t *testing.T) {
	for _, text := range []string{
		"torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled system error, NCCL version 2.19.3",
		"torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.",
		"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED, exitcode: -15 (Signal 15 (SIGTERM))",
		"[rank1]: RuntimeError: NCCL error: remote process exited or there was a network error",
		"srun: error: n1: tasks 1-3: Terminated", "slurmstepd: error: *** STEP 42.0 ON n1 CANCELLED AT 2026-01-02T03:04:05 ***",
	} {
		for _, m := range Find([]byte(text + "\n")) {
			if m.Kind != Fault {
				t.Errorf("%q: %+v", text, m)
			}
		}
	}
}

// A long path before the message does not push it out of the line that is shown.
func TestShown(t *testing.T) {
	torch := strings.TrimSpace(parts(t)["torch-pool"])
	for _, n := range []int{0, 30, 100, 119, 200, 5000, 40000} {
		m := one(t, strings.Repeat("p", n)+" - "+torch)
		if !strings.Contains(m.Line, "OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB") || !strings.Contains(m.Line, "9.35 GiB is reserved") ||
			m.Total != fig(31.47, gib) {
			t.Errorf("%d: %q", n, m.Line)
		}
	}
}

// A word of a GPU anywhere does not make a GPU's what is the node's.
func TestHostIsNotDevice(t *testing.T) {
	for _, text := range []string{
		"RuntimeError: CUDA error: out of memory in cudaHostAlloc(&p, n, 0)",
		"Fatal CUDA Error out of memory at api.cu:790.\nReturn value 2 from 'cudaMallocHost(&p, n)'.",
		"FATAL ERROR: CUDA error cudaHostAlloc(pp, n, flag) in file src/CudaUtils.C,\n function reallocate_host_T, line 208\n on Pe 4 (n1 device 0): out of memory",
		"GPU worker 3: MemoryError", "gpu17: terminate called after throwing an instance of 'std::bad_alloc'", "gpu-a: fork: Cannot allocate memory",
		"OSError: [Errno 12] Cannot allocate memory: '/dev/shm/cuda'",
		"failed to alloc 8589934592 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
		"Allocator (gpu_host_bfc) ran out of memory trying to allocate 1.50GiB (rounded to 1610612736)requested by op",
		"RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 10 bytes for CUDA",
		"[1234.5] Memory cgroup out of memory: Killed process 7 (cuda-app) total-vm:1kB",
	} {
		found := Find([]byte(text + "\n"))
		for _, m := range found {
			if m.Kind != Host {
				t.Errorf("%q: %+v", text, m)
			}
		}
		if len(found) == 0 {
			t.Errorf("%q: nothing", text)
		}
	}
}

// Lines of sources, shells, docs and logs that name an error, or lack something else than memory.
func TestNotSaid(t *testing.T) {
	text, err := os.ReadFile("testdata/not-said.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		for _, m := range Find([]byte(line)) {
			if m.Kind != Fault {
				t.Errorf("%q: %+v", line, m)
			}
		}
	}
}

// TensorRT's error numbers are no ranks: the size that its allocator says is its exception's.
func TestErrorNumber(t *testing.T) {
	m := one(t, "1: [defaultAllocator.cpp::allocate::19] Error Code 1: Cuda Runtime (out of memory)\n"+
		"Requested amount of GPU memory (3887181312 bytes) could not be allocated.\n"+
		"2: [executionContext.cpp::ExecutionContext::470] Error Code 2: OutOfMemory (no further information)\n")
	if m.Rank != nil || m.Asked.Bytes != 3887181312 {
		t.Errorf("%+v", m)
	}
}
