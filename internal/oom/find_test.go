package oom

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"bookend/internal/gpu"
)

// parts reads testdata/said.txt.
func parts(t testing.TB) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/said.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	name := ""
	for line := range strings.Lines(string(text)) {
		if head, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(line, " --\n") {
			name, _, _ = strings.Cut(head, ": ")
			continue
		}
		out[name] += line
	}
	return out
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// fig is a figure of so many units, as floating point numbers are cut.
func fig(n, unit float64) gpu.Figure { return gpu.Bytes(uint64(n * unit)) }

// is makes the message that is expected: what is not set is not said.
func is(k Kind, f Framework, set func(*Message)) Message {
	m := blank()
	m.Kind, m.Framework = k, f
	if set != nil {
		set(&m)
	}
	return m
}

func card(n int) *int { return &n }

// torch is a message of PyTorch's since 2.1.
func torch(set func(*Message)) Message {
	return is(Device, PyTorch, func(m *Message) {
		m.GPU = card(0)
		set(m)
	})
}

// variable is what PyTorch calls the one of its pool: each release has called it by one of three names.
var variable = regexp.MustCompile(`PYTORCH[A-Z_]*_CONF`)

var saidBy = map[string][]Message{
	"torch-1.0": {torch(func(m *Message) {
		m.Asked, m.Total, m.Free = fig(12.5, mib), fig(10.92, gib), fig(9.28, gib)
		m.Allocated, m.Idle = fig(8.57, mib), fig(4.68, mib)
	})},
	"torch-1.9": {torch(func(m *Message) {
		m.Asked, m.Total, m.Free = fig(2.26, gib), fig(6, gib), fig(3.03, gib)
		m.Allocated = fig(781.59, mib)
		m.Idle = gpu.Bytes(fig(1.24, gib).Bytes - m.Allocated.Bytes)
	})},
	"torch-1.12": {torch(func(m *Message) {
		m.GPU = card(1)
		m.Asked, m.Total, m.Free, m.Limit = fig(2, mib), fig(8, gib), gpu.Bytes(0), fig(6.44, gib)
		m.Allocated = fig(203.44, mib)
		m.Idle = gpu.Bytes(fig(6.44, gib).Bytes - m.Allocated.Bytes)
	})},
	"torch-2.1": {torch(func(m *Message) {
		m.Asked, m.Total, m.Free, m.InUse = fig(32, mib), fig(4, gib), fig(41.56, mib), fig(3.44, gib)
		m.Allocated, m.Idle = fig(2.58, gib), fig(1.90, mib)
	})},
	"torch-pool": {torch(func(m *Message) {
		m.Asked, m.Total, m.Free, m.InUse = fig(22.78, gib), fig(31.47, gib), fig(12.73, gib), fig(18.73, gib)
		m.Allocated, m.Idle = fig(9.08, gib), fig(9.35, gib)
	})},
	"torch-2.9": {torch(func(m *Message) {
		m.Asked, m.Total, m.Free, m.InUse = fig(22.78, gib), fig(31.47, gib), fig(12.73, gib), fig(18.73, gib)
		m.Allocated, m.Idle = fig(9.08, gib), fig(9.35, gib)
	})},
	"torch-neighbours": {torch(func(m *Message) {
		m.Asked, m.Total, m.Free, m.InUse = fig(42, mib), fig(47.27, gib), fig(9.38, mib), fig(3.14, gib)
		m.Allocated, m.Idle = fig(2.92, gib), fig(34.62, mib)
		m.Others = []Process{{644963, fig(5.59, mib)}, {644977, fig(5.59, mib)}, {2925282, fig(312, mib)}, {3053273, fig(29.04, gib)}, {3120922, fig(14.74, gib)}}
	})},
	// the process does not know itself among those listed: none of them is said to be another
	"torch-container": {torch(func(m *Message) {
		m.Asked, m.Total, m.Free = fig(496, mib), fig(14.75, gib), fig(235.06, mib)
		m.Allocated, m.Idle = fig(14.06, gib), fig(330.42, mib)
	})},
	"torch-no-number": {torch(func(m *Message) {
		m.GPU = nil
		m.Asked, m.Total, m.Free = fig(224, mib), fig(44.34, gib), fig(160.81, mib)
		m.Allocated, m.Idle = fig(43.36, gib), fig(396.27, mib)
	})},
	"torch-nvml-silent": {torch(func(m *Message) {
		m.Asked, m.Total, m.Free, m.InUse = fig(20, mib), fig(79.15, gib), fig(3.06, mib), gpu.Unknown("not a possible size")
		m.Allocated, m.Idle = fig(78.10, gib), gpu.Bytes(0)
	})},
	"torch-wrapped": {torch(func(m *Message) {
		m.Asked, m.Total, m.Free, m.InUse = fig(20, mib), fig(15.51, gib), fig(149.62, mib), fig(11.65, gib)
		m.Allocated, m.Idle = fig(11.47, gib), fig(10.27, mib)
		m.Others = []Process{{1839, fig(322.23, mib)}}
	})},
	"torch-1eb": {is(Device, PyTorch, nil)},
	"torch-vllm-worker": {torch(func(m *Message) {
		m.PID, m.Rank = 4711, card(1)
		m.Asked, m.Total, m.Free, m.InUse = fig(1.16, gib), fig(7.75, gib), fig(1.17, gib), fig(5.02, gib)
		m.Allocated, m.Idle = fig(4.81, gib), fig(18.97, mib)
	})},
	"hip": {torch(func(m *Message) {
		m.GPU = card(7)
		m.Asked, m.Total, m.Free = fig(2, mib), fig(287.98, gib), fig(203.49, gib)
		m.Allocated, m.Idle = fig(68.63, gib), fig(14.93, gib)
	})},
	"hip-fraction": {torch(func(m *Message) {
		m.Asked, m.Total, m.Free, m.Limit = fig(2, mib), fig(287.98, gib), fig(275.86, gib), fig(1.05, gib)
		m.Allocated, m.Idle = fig(1017.01, mib), fig(54.99, mib)
	})},
	"hip-error":          {is(Device, HIP, func(m *Message) { m.Count = 2 })},
	"torch-init":         {is(Init, PyTorch, nil)},
	"torch-init-other":   {is(Fault, PyTorch, nil)},
	"torch-init-warning": {is(Init, PyTorch, nil)},
	"torch-driver-init":  {is(Fault, PyTorch, nil)},
	"torch-plain":        {is(Device, PyTorch, nil)},
	"torch-0.4":          {is(Device, PyTorch, func(m *Message) { m.Count = 2 })},
	"cublas":             {is(Device, PyTorch, nil)},
	"cudnn-tf":           {is(Device, TensorFlow, nil)},
	"nccl":               {is(Device, "NCCL", nil)},
	"nccl-numbered":      {is(Device, CUDA, func(m *Message) { m.Rank = card(7) })},
	"nccl-alloc":         {is(Device, "NCCL", func(m *Message) { m.Asked = gpu.Bytes(608) })},
	"tensorflow": {is(Device, TensorFlow, func(m *Message) {
		m.GPU, m.Asked, m.Count = card(0), fig(381.47, mib), 2
	})},
	"tensorflow-trying":  nil,
	"tensorflow-cpu":     {is(Host, TensorFlow, nil)},
	"tensorflow-reserve": {is(Device, TensorFlow, func(m *Message) { m.Asked = gpu.Bytes(19104890880) })},
	"tensorflow-init":    {is(Init, TensorFlow, nil)},
	"jax":                {is(Device, JAX, func(m *Message) { m.Asked = gpu.Bytes(4770354232) })},
	"jax-allocating":     {is(Device, JAX, func(m *Message) { m.Asked = gpu.Bytes(64424509440) })},
	"jax-request":        {is(Device, JAX, func(m *Message) { m.GPU, m.Asked = card(0), fig(176, mib) })},
	"jax-bfc":            {is(Device, JAX, func(m *Message) { m.GPU, m.Asked, m.Count = card(1), fig(2, gib), 2 })},
	"cupy":               {is(Device, CuPy, func(m *Message) { m.Asked, m.Allocated = gpu.Bytes(25600000), gpu.Bytes(3635267072) })},
	"cupy-limit": {is(Device, CuPy, func(m *Message) {
		m.Asked, m.Allocated, m.Limit = gpu.Bytes(1024), gpu.Bytes(2048), gpu.Bytes(2500)
	})},
	"cupy-5":      {is(Device, CuPy, func(m *Message) { m.Asked, m.Allocated = gpu.Bytes(1073741824), gpu.Bytes(12373894656) })},
	"rmm":         {is(Device, CUDA, nil)},
	"rmm-sized":   {is(Device, CUDA, func(m *Message) { m.Asked = gpu.Bytes(80000000000) })},
	"rmm-pool":    {is(Device, CUDA, nil)},
	"thrust":      {is(Device, CUDA, nil)},
	"numba":       {is(Init, CUDA, nil)},
	"numba-alloc": {is(Device, CUDA, nil)},
	"samples":     {is(Device, CUDA, nil)},
	"kokkos":      {is(Device, CUDA, func(m *Message) { m.Rank = card(2047) })},
	"llama":       {is(Device, CUDA, func(m *Message) { m.GPU, m.Asked, m.Count = card(1), gpu.Bytes(10345253120), 2 })},
	"julia":       {is(Device, CUDA, func(m *Message) { m.Asked = fig(14.901, gib) })},
	"vllm":        {is(Device, VLLM, func(m *Message) { m.Free, m.Total, m.Asked = fig(59.32, gib), fig(79.15, gib), fig(71.24, gib) })},
	"vllm-numbered": {is(Device, VLLM, func(m *Message) {
		m.GPU, m.PID = card(1), 6940
		m.Free, m.Total, m.Asked = fig(19.77, gib), fig(22.05, gib), fig(19.84, gib)
	})},
	"vllm-cache":    {is(Device, VLLM, nil)},
	"triton":        {is(Shared, Triton, func(m *Message) { m.Asked, m.Limit = gpu.Bytes(131072), gpu.Bytes(101376) })},
	"triton-1":      {is(Shared, Triton, func(m *Message) { m.Asked, m.Limit = gpu.Bytes(110592), gpu.Bytes(101376) })},
	"launch":        {is(Shared, PyTorch, nil)},
	"ptxas":         {is(Shared, CUDA, func(m *Message) { m.Asked = gpu.Bytes(0x10000) })},
	"slurm":         {is(Host, Slurm, nil), is(Host, Slurm, nil)},
	"slurm-19":      {is(Host, Slurm, nil)},
	"torch-host":    {is(Host, PyTorch, func(m *Message) { m.Asked = gpu.Bytes(132426121216) })},
	"numpy":         {is(Host, Other, func(m *Message) { m.Asked = fig(7.45, gib) })},
	"python":        {is(Host, Other, nil)},
	"cpp":           {is(Host, Other, nil)},
	"fork":          {is(Host, Other, nil)},
	"busy":          {is(Fault, PyTorch, nil)},
	"assert":        {is(Fault, PyTorch, nil)},
	"ecc":           {is(Fault, PyTorch, nil)},
	"fault-999":     {is(Fault, CUDA, nil)},
	"illegal":       {is(Fault, CUDA, nil)},
	"xid":           {is(Fault, CUDA, nil)},
	"torch-mmap":    {is(Host, PyTorch, func(m *Message) { m.Asked = gpu.Bytes(548105171) })},
	"segment":       {is(Host, Other, nil)},
	"segment-errno": {is(Host, Other, nil)},
	"compiler":      {is(Host, Other, func(m *Message) { m.Asked = gpu.Bytes(65536) })},
	"xla-count":     {is(Init, CUDA, nil)},
	"pycuda":        {is(Device, CUDA, nil)},
	"pinned":        {is(Host, CUDA, func(m *Message) { m.Count = 2 })},
	"torch-unknown": {is(Fault, PyTorch, nil)},
}

// What programs really printed, with every figure in it, however it reaches the file.
func TestFind(t *testing.T) {
	texts := parts(t)
	for name, want := range saidBy { // PyTorch's message names its variable in its advice
		for i, m := range want {
			if m.Framework == PyTorch {
				want[i].Setting = variable.FindString(texts[name])
			}
		}
	}
	if len(texts) != len(saidBy) {
		t.Errorf("%d texts, %d expectations", len(texts), len(saidBy))
	}
	for name, text := range texts {
		for _, way := range ways {
			got := Find([]byte(way.to(text)))
			for i := range got {
				if got[i].Line == "" || !printable(got[i].Line) || len(got[i].Line) > MaxLine {
					t.Errorf("%s, %s: line %q", name, way.name, got[i].Line)
				}
				if err := Valid(got[i]); err != nil {
					t.Errorf("%s, %s: %v", name, way.name, err)
				}
				got[i].Line = ""
			}
			if want := onRanks(saidBy[name], way.rank); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s:\n%+v, want\n%+v", name, way.name, got, want)
			}
		}
	}
}

// onRanks are messages as a launcher marks them, unless the program itself says of which rank it is.
func onRanks(messages []Message, rank *int) []Message {
	out := slices.Clone(messages)
	for i := range out {
		if out[i].Rank == nil {
			out[i].Rank = rank
		}
	}
	return out
}

// ways are what is done to output on its way to a file, and the rank that it says.
var ways = []struct {
	name string
	to   func(string) string
	rank *int
}{
	{"as it is", func(s string) string { return s }, nil},
	{"without a line feed", func(s string) string { return strings.TrimSuffix(s, "\n") }, nil},
	{"CRLF", func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }, nil},
	{"srun --label", eachLine("12: ", ""), card(12)},
	{"torchrun", eachLine("[rank0]: ", ""), card(0)},
	{"torchrun with srun --label", eachLine(" 0: [rank12]: ", ""), card(12)},
	{"coloured", eachLine("\x1b[31m", "\x1b[0m"), nil},
	{"boxed", eachLine("\u2502 ", "   \u2502"), nil},
	{"after a progress bar", func(s string) string { return "\r 10%|\u2588    | 1/10 [00:01<00:09,  1.0s/it]\r" + s }, nil},
	{"timed", eachLine("2026-03-01 10:00:00,123 ERROR ", ""), nil},
	{"by ts", eachLine("2026-03-01T10:00:00.123Z ", ""), nil},
	{"in a long output", func(s string) string { return strings.Repeat("epoch 1 loss 0.5\n", 10000) + s }, nil},
	{"with binary bytes", func(s string) string { return "\x00\xff\xfe\x1b\x1b[\n" + s + "\x00\x1b[" }, nil},
}

func eachLine(before, after string) func(string) string {
	return func(s string) string {
		var b strings.Builder
		for line := range strings.Lines(s) {
			b.WriteString(before + strings.TrimSuffix(line, "\n") + after + "\n")
		}
		return b.String()
	}
}

// What only names an error, denies it, or is somebody's source is none.
func TestFindsNothing(t *testing.T) {
	for _, text := range []string{
		"", "\n", "training finished", "no CUDA out of memory errors so far", "No CUDA error: out of memory so far",
		"    except torch.cuda.OutOfMemoryError as e:", "    except torch.cuda.OutOfMemoryError:  # CUDA error: out of memory",
		`        raise RuntimeError("CUDA error: out of memory")`, `        raise RuntimeError('CUDA error: out of memory')`,
		`    if "CUDA out of memory." in message:`, `            "CUDA out of memory.",  # CUDA OOM`,
		"# RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 3.81 GiB total capacity)",
		"# CUDA error: out of memory", "// CUDA_ERROR_OUT_OF_MEMORY: out of memory", "if err == cudaErrorMemoryAllocation {",
		`    "CUDA error: an illegal memory access was encountered",`, "import MemoryError", "catching MemoryError in the loader",
		"except MemoryError:", "raise MemoryError", "slurm will kill jobs over their memory limit: Out Of Memory",
		"we avoid CUDA error: out of memory by smaller batches", "caution: may run out of memory", "out of memory",
		"ssh: out of memory", "Killed", "slurm_script: line 5: 12345 Killed                  python train.py",
		`raise ValueError("No available memory for the cache blocks. "`, "CUDA out of memory. Tried to allocate lots",
		"CUDA out of memory. Reduce the batch size. Tried to allocate 3 GiB", "cuInit: ok", "Error: unknown error",
		"std::bad_alloc is caught", "google.api_core.exceptions.ResourceExhaustedError: 429 Quota exceeded",
		"| bookend: PyTorch: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 4.00 GiB of which 1.00 GiB is free.",
		"3: | bookend: RuntimeError: CUDA error: out of memory",
		"W tensorflow/core/common_runtime/bfc_allocator.cc:243] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.25GiB with freed_by_count=0. The caller indicates that this is not a failure",
		"the host ran out of memory trying to allocate 3 buffers", "Stats:\nLimit: 5\nInUse: 5",
		"/tmp/flash/csrc/cuda_kernels.cu: fatal error: out of memory", "/usr/local/cuda/bin/ptxas: error: out of memory",
		"cuda_kernels.cu(12): error: out of memory", "nvcc fatal   : CUDA compile error: out of memory", "cuda_sort.cpp:7: error: out of memory",
		"ImportError: /tmp/x/_ext.so: failed to map segment from shared object: Operation not permitted",
		"OSError: libtorch_cuda.so: failed to map segment from shared object: cannot apply additional memory protection after relocation: Permission denied",
		"RuntimeError: Unexpected error from cudaGetDeviceCount().", "out of resource: shared memory, Required: none",
	} {
		if got := Find([]byte(text)); len(got) != 0 {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

const oomLine = "[rank%]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU % has a total capacity of 8.00 GiB of which 1.00 GiB is free.\n"

func onRank(n string) string { return strings.ReplaceAll(oomLine, "%", n) }

// Each card's messages are one: the newest figures, all counted, in the order in which they came last.
func TestFindCounts(t *testing.T) {
	text := onRank("0") + onRank("1") + "RuntimeError: CUDA error: device-side assert triggered\n" + strings.Replace(onRank("0"), "1.00 GiB is", "3.00 GiB is", 1)
	got := Find([]byte(text))
	if len(got) != 3 || *got[0].GPU != 1 || got[1].Kind != Fault || *got[2].GPU != 0 || got[2].Count != 2 || got[2].Free != fig(3, gib) {
		t.Errorf("%+v", got)
	}
	twice := strings.TrimSpace(onRank("0")) + " " + onRank("0") // two ranks without a line feed between
	if got := Find([]byte(twice)); len(got) != 1 || got[0].Free != fig(1, gib) {
		t.Errorf("%+v", got)
	}
}

// Of very many kinds the last ones are kept.
func TestFindBounds(t *testing.T) {
	var text strings.Builder
	for n := range 200 {
		text.WriteString(onRank(strconv.Itoa(n)))
	}
	got := Find([]byte(text.String()))
	if len(got) != MaxMessages || *got[MaxMessages-1].GPU != 199 || *got[0].GPU != 200-MaxMessages {
		t.Errorf("%d messages: %+v", len(got), got)
	}
	var many strings.Builder
	for n := 1; n <= 40; n++ {
		many.WriteString("Process " + strconv.Itoa(n) + " has 1.00 GiB memory in use. ")
	}
	long := strings.Replace(onRank("0"), "is free.", "is free. "+many.String()+"Including non-PyTorch memory, this process has 1.00 GiB memory in use.", 1)
	if got := Find([]byte(long)); len(got) != 1 || len(got[0].Others) != MaxOthers || len(got[0].Line) != MaxLine || !strings.HasSuffix(got[0].Line, "...") {
		t.Errorf("%+v", got)
	}
}

// A line whose beginning is cut off might have said the contrary.
func TestFindLeavesOutTheCutLine(t *testing.T) {
	line := "CUDA error: out of memory\n"
	full := line + strings.Repeat("x", MaxTail-len(line))
	if got := Find([]byte(full)); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := Find([]byte("\n" + full[:MaxTail-1])); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	if got := Find([]byte(full[:MaxTail-1])); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestValid(t *testing.T) {
	good := is(Device, PyTorch, func(m *Message) { m.Line, m.Others = "x", []Process{{7, gpu.Bytes(1)}} })
	if err := Valid(good); err != nil {
		t.Error(err)
	}
	for name, harm := range map[string]func(*Message){
		"kind":            func(m *Message) { m.Kind = "" },
		"framework":       func(m *Message) { m.Framework = "Torch" },
		"GPU":             func(m *Message) { m.GPU = card(-1) },
		"large GPU":       func(m *Message) { m.GPU = card(1024) },
		"rank":            func(m *Message) { m.Rank = card(-1) },
		"large rank":      func(m *Message) { m.Rank = card(maxRank + 1) },
		"PID":             func(m *Message) { m.PID = -1 },
		"large PID":       func(m *Message) { m.PID = 1<<22 + 1 },
		"no line":         func(m *Message) { m.Line = "" },
		"long line":       func(m *Message) { m.Line = strings.Repeat("x", MaxLine+1) },
		"line feed":       func(m *Message) { m.Line = "a\nb" },
		"none":            func(m *Message) { m.Count = 0 },
		"many":            func(m *Message) { m.Count = MaxTail + 1 },
		"file":            func(m *Message) { m.File = -1 },
		"third file":      func(m *Message) { m.File = MaxFiles },
		"processes":       func(m *Message) { m.Others = make([]Process, MaxOthers+1) },
		"process":         func(m *Message) { m.Others[0].PID = 0 },
		"process's bytes": func(m *Message) { m.Others[0].Memory.Bytes = 4 << 50 },
		"bytes":           func(m *Message) { m.Idle = gpu.Bytes(4 << 50) },
		"unknown bytes":   func(m *Message) { m.Limit = gpu.Figure{Bytes: 1, Unknown: "not said"} },
		"reason":          func(m *Message) { m.Asked = gpu.Unknown("a\x1b[31m") },
		"long reason":     func(m *Message) { m.Asked = gpu.Unknown(strings.Repeat("x", 101)) },
	} {
		bad := good
		bad.Others = []Process{good.Others[0]}
		harm(&bad)
		if Valid(bad) == nil {
			t.Errorf("%s: %+v is valid", name, bad)
		}
	}
}
