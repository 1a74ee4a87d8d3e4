package oom

import (
	"strings"

	"bookend/internal/gpu"
)

// readTorch reads all generations of PyTorch's message. Older ones give, in brackets, figure and name; since 2.1
// they are sentences. What is idle in the pool was "cached" up to 1.3 and has to be worked out up to 2.0.
func readTorch(m *Message, text string) bool {
	_, rest, _ := strings.Cut(text, "memory. Tried to allocate ")
	// what comes then is advice, or another line
	for _, last := range []string{"by PyTorch)", "cached)", "but unallocated"} {
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
		if kept := before(rest, " reserved in total"); kept.Known() && m.Allocated.Known() &&
			kept.Bytes >= m.Allocated.Bytes {
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

// readVLLM reads "Free memory on device cuda:1 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization
// (0.9, 19.84 GiB)".
func readVLLM(m *Message, text string) bool {
	name, figures, _ := strings.Cut(strings.TrimPrefix(text, "Free memory on device"), "(")
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
