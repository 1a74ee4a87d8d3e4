package oom

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// worst are outputs that cost the most: 64 KiB each.
var worst = map[string]string{
	"out of memory":    "out of memory\n",
	"errors":           "CUDA error: out of memory\n",
	"with sizes":       "[rank3]: CUDA error: failed to allocate 3.5 GiB on GPU 1\n",
	"not said":         "if CUDA error: out of memory then retrying\n",
	"one giant line":   "CUDA error: out of memory, ",
	"giant and quoted": "\"CUDA error: out of memory, ",
	"brackets":         "[[((",
	"prefixes":         "[rank1]: 2024-01-01 10:00:00 ERROR 3: (w pid=7) [x] [y] [z] W\n",
	"colours":          "\x1b[31m\x1b[0m",
	"colour begun":     "\x1b[",
	"digits":           "1234567890",
	"digits and lines": "1 2 3 4 5 6 7 8 9\n",
	"line feeds":       "\n",
	"carriage returns": "\rx",
	"beginnings":       "out of memor failed to allocat cuda_error_out_of_memor cannot allocat std::bad_allo ",
	"no end":           "CUDA out of memory. Tried to allocate ",
	"torch": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 42.00 MiB. GPU 0 has a total capacity of 47.27 GiB " +
		"of which 9.38 MiB is free. Process 644963 has 5.59 MiB memory in use.\n",
	"wrapped":  "CUDA error: out of memory\na 1 b 2\nc 3\n",
	"ranks":    "[rank1]: CUDA error: out of memory\n[rank2]: x y 1\n[rank3]: CUDA out of memory. Tried to\n",
	"long":     strings.Repeat("out of memory, if CUDA failed ", 34) + "\n",
	"long too": "CUDA error: failed to allocate, " + strings.Repeat("out of memory error on host 1 ", 33) + "\n",
	"reports":  "| bookend: GPU 0 of n1 left clean\n",
	"plain":    "epoch 1 step 20 loss 0.5123 lr 1e-4 tokens 123456\n",
	"all signs": "CUDA_ERROR_OUT_OF_MEMORY cudaErrorMemoryAllocation CUBLAS_STATUS_ALLOC_FAILED MemoryError std::bad_alloc " +
		"Cannot allocate memory RESOURCE_EXHAUSTED: Out of memory while trying to allocate 5 bytes 'OutOfMemory' failed to allocate\n",
}

func BenchmarkFind(b *testing.B) {
	for name, unit := range worst {
		text := []byte(strings.Repeat(unit, MaxTail/len(unit)+1)[:MaxTail])
		text[0] = '\n'
		b.Run(name, func(b *testing.B) {
			before := used(b)
			for b.Loop() {
				Find(text)
			}
			b.ReportMetric((used(b)-before).Seconds()*1e3/float64(b.N), "cpu-ms/op")
		})
	}
}

// used is the processor time of the test: others' work on the machine is not in it.
func used(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
