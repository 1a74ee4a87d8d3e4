package oom

import (
	"path"
	"slices"
	"strings"
	"sync"
)

// class is what a word in a line is evidence of.
type class byte

const (
	isSign     class = iota
	isSpeaker        // who says it
	isGPU            // a GPU is meant, where it begins a word that is no file's name
	isHost           // the node's memory is meant, pinned memory included
	isHostCall       // the call was for host memory that the GPU may reach
	isStart          // the call comes before anything is allocated
	isError          // something failed
	goesOn           // the program tries something else
	isMemory         // memory is meant, or a size of it
	isOther          // an allocation failed for another reason than memory
	isCode           // a program's source, where it stands before the sign
	isCompiler       // a compiler of CUDA's code speaks, which lacks the host's memory
)

// word is one of the texts that are looked for, in lower case.
type word struct {
	text  string
	class class
	sign  *sign // of isSign
	who   int   // of isSpeaker: the place in speakers
}

var evidence = map[class][]string{
	isGPU: {
		"cuda", "cumem", "cuinit", "cuctx", "cudevice", "cublas", "cudnn", "cufft", "cusolver", "cusparse", "gpu",
		"hip", "rocm", "rmm", "vram", "device", "accelerator", "opencl", "pyopencl", "clcreatebuffer", "sycl", "hbm",
		"tpu", "npu", "xpu", "2(out of memory", "outofgpu", "nvptx",
	},
	isHost: {
		"pinned", "on host:", "host memory", "cpu memory", "system memory", "host buffer", "host_bfc", "(mklcpu)",
		"allocator cpu", "allocator mklcpu", "cpu allocator", "cpuallocator", "(cpu)", "named \"host\"",
		"object heap", "dev/shm", "host_memory", "insufficient memory) failed", "bytes for array",
		"array with shape", "cuda_host_mem", "cpu_allocator", "error termination. backtrace",
		"cannot allocate memory", "cpu_memory", "hostspace::allocate", "device:cpu:", "pjrt/cpu", "tfrtcpu",
		"tfrt_cpu", "cpu_client",
	},
	isHostCall: {
		"cudahostalloc", "cudamallochost", "cudahostregister", "cumemhostalloc", "cumemallochost",
		"cumemhostregister", "hiphostmalloc", "hiphostalloc", "hiphostregister", "hipmallochost", "pin_memory",
		"pin memory", "pinned_memory", "hostalloc", "hostcalloc",
	},
	isStart: {
		"cuinit", "cudagetdevicecount", "cuda initialization", "cuda device count", "setdevice",
		"implicit initialization", "initerror",
	},
	isError: {
		"error", "fail", "fatal", "exception", "abort", "terminat", "cannot", "can't", "could not", "couldn't",
		"unable", "severe", "panic", "assert", "what():", "exhausted", "exceeded", "2 (out of memory",
		"out of memory (2", "alloc(): out of", "out of memory [2", "out of memory in cu", "out of memory in hip",
	},
	goesOn: {
		"retrying", "will retry", "falling back", "fall back", "fallback to", "skipping", "trying again",
		"recover from", "recovered", "recovering", "reducing batch", "reducing the batch", "halving",
		"decreasing batch", "lowering batch", "batch size reduced", "reduced batch", "autotuning", "[autotune",
		"retry in ", "retry with", "and retry (", "attempting to free", "to free up", "freeing", "and continu",
		", continuing", "; continuing", "resuming from", "pruned", "; trying", "splitting", "cpu instead",
		"streaming from", "using the cpu", "using cpu", "running on cpu", "running on the cpu", "moving on",
		"once more", ", ignoring", "ignored)", "were ignored", "batch skipped", "... skipped", "may degrade",
		"successfully allocated", "[       ok ]", "evicting", "using default", "uses default", "retracted",
		"preempted", "using fixed", "will try", "continuing with", "is not a failure", "tactic ", "tactics ",
		"not fatal", "attempting to recover", "trying batch", "trying smaller", "trying a ", ", trying", ", using",
		"; using", "skip:", "switching to", "spill", "will restart", "restarting", "slower",
	},
	isMemory: {
		"memory", "buffer", "bytes", "tensor", "array", "vector", "pool", "workspace", "storage", "malloc", "cuda",
		"cumem", "hbm", "arena", "mib", "gib", " mb", " gb", "kib", "block", "oom",
	},
	isOther: {
		"not supported", "notsupported", "invalid ", "_invalid_", "errorinvalid", "busy", "unknown error",
		"insufficient for cuda runtime", "no cuda-capable", "disk quota", "no space left", "ibv_", "locked memory",
		"static tls", "perf:", "mbind", "shmget", "mlock",
	},
	isCode: {"print(", "printf(", "println(", "raise ", "throw ", "assert ", "grep ", " # ", " // ",
		"undefined ", "write(*"},
	isCompiler: {"nvcc", "cicc", "ptxas", "fatbinary", "nvlink", "cudafe++", "cc1plus", "cc1"},
}

// vocabulary are all words by a hash of their first three bytes: a text is read once, whatever is looked for. It is
// made when it is needed first.
var vocabulary = sync.OnceValue(func() *[1 << 12][]word {
	var byStart [1 << 12][]word
	add := func(w word) {
		at := start(w.text)
		byStart[at] = append(byStart[at], w)
	}
	for _, row := range table {
		for _, text := range row.texts {
			s := row.as
			s.text = text
			add(word{text: text, class: isSign, sign: &s})
		}
	}
	for i, sp := range speakers {
		for _, text := range sp.words {
			add(word{text: text, class: isSpeaker, who: i})
		}
	}
	for c, texts := range evidence {
		for _, text := range texts {
			add(word{text: text, class: c})
		}
	}
	return &byStart
})

func start(text string) int {
	return (int(text[0])<<6 ^ int(text[1])<<3 ^ int(text[2])*37) & (1<<12 - 1)
}

// facts are what the words of a text are evidence of.
type facts struct {
	hits    []hit
	has     [isCompiler + 1]bool
	speaker int // len(speakers) for none
	code    int // where source begins; behind everything for none
}

const noCode = 1 << 30

// evidenceIn finds the words of the vocabulary in a text of lower case.
func evidenceIn(lower string) facts {
	f := facts{speaker: len(speakers), code: noCode}
	all := vocabulary()
	for i := 0; i+2 < len(lower); i++ {
		words := all[start(lower[i:i+3])]
		if len(words) == 0 {
			continue
		}
		begins := i == 0 || !isAlnum(lower[i-1])
		for w := range words {
			if strings.HasPrefix(lower[i:], words[w].text) {
				f.note(&words[w], i, begins, lower)
			}
		}
	}
	return f
}

// note keeps a word that was found, if it counts in its place.
func (f *facts) note(w *word, at int, begins bool, lower string) {
	switch w.class {
	case isSign:
		if w.sign.weak && strings.IndexByte(w.text, ' ') < 0 && inFilename(lower, at) {
			return
		}
		if begins && (w.sign.kind != unsaid || at == 0 || lower[at-1] != '_') && len(f.hits) < maxHits &&
			(len(f.hits) == 0 || f.hits[len(f.hits)-1].pos < at) {
			f.hits = append(f.hits, hit{w.sign, at})
		}
	case isCode:
		f.code = min(f.code, at)
		f.has[isCode] = true
	case isSpeaker:
		f.speaker = min(f.speaker, w.who)
	case isGPU:
		rest := lower[at+len(w.text):]
		if (begins || w.text == "cuda") && !f.has[isGPU] && !isHostname(w.text, rest) {
			f.has[isGPU] = !inFilename(lower, at)
		}
	case isCompiler:
		f.has[isCompiler] = f.has[isCompiler] || begins
	case goesOn:
		if !isAdvice(lower[max(0, at-24):at], lower[at+len(w.text):]) {
			f.has[goesOn] = true
		}
	default:
		f.has[w.class] = true
	}
}

// isHostname: gpu17, gpu-node3; and what only begins like HIP.
func isHostname(word, rest string) bool {
	switch {
	case rest == "":
		return false
	case word == "hip":
		return rest[0] == 'p' || rest[0] == 's'
	case word == "gpu":
		return rest[0] == '-' || rest[0] == 'n' || len(rest) > 1 && isDigit(rest[0]) && isDigit(rest[1])
	}
	return false
}

// isAdvice: a person should, or the program could not.
func isAdvice(before, after string) bool {
	for _, w := range []string{"try ", "consider", "please", "should", "can't", "cannot", "not "} {
		if strings.Contains(before, w) {
			return true
		}
	}
	return strings.HasSuffix(before, "by ") || strings.HasPrefix(after, " failed")
}

// longestName bounds how much of a file's name is looked at on either side of a word, in bytes.
const longestName = 256

// inFilename: the word at i, as blanks divide them, is a path, or a source file or library with or without its line:
// "sort.cu:7:", "a.cu(12):".
func inFilename(text string, i int) bool {
	before, after := text[max(0, i-longestName):i], text[i:min(len(text), i+longestName)]
	after, _, _ = strings.Cut(after, " ")
	word := before[strings.LastIndexByte(before, ' ')+1:] + after
	if strings.ContainsAny(word, `/\\`) && !strings.Contains(word, "device:gpu:") {
		return true
	}
	return slices.Contains(fileSuffixes, path.Ext(strings.TrimRight(word, ":()[],.0123456789")))
}

var fileSuffixes = []string{".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".o", ".so", ".a", ".py",
	".ptx", ".f90", ".log"}
