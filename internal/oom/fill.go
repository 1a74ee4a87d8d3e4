package oom

import (
	"strings"

	"bookend/internal/gpu"
)

// fill reads the figures that the statement has, false where its words were no message after all.
func (st statement) fill(m *Message) bool {
	switch {
	case m.Kind == Fault:
		return true
	case m.Kind == Device && m.Framework == PyTorch && isTorch(st.after):
		if _, rest, found := strings.Cut(st.sentence(), "memory. Tried to allocate "); found {
			return readTorch(m, rest)
		}
	case st.text == "free memory on device":
		return readVLLM(m, st.sentence())
	case m.Kind == Shared:
		m.Asked = sizeIn(st.sentence(), sharedAsked)
		return m.Asked.Known() || st.text != "out of resource: "
	}
	if text := st.line.body[st.pos-len(st.before):][:len(st.around)]; m.Kind == Host {
		m.take(sizesIn(text), asked)
	} else {
		m.take(sizesIn(text))
	}
	if m.Framework == CuPy && !m.Allocated.Known() { // its total is the pool's
		m.Allocated, m.Total = m.Total, notSaid
	}
	if text := st.whole(); !m.Asked.Known() && len(text) > len(st.line.body)-st.pos {
		m.take(sizesIn(text), asked)
	}
	return true
}

// isTorch: PyTorch's message, or its first sentence.
func isTorch(after string) bool {
	return strings.Contains(after, "tried to allocate ") || strings.HasSuffix(after, " out of memory.")
}

// maxWrapped bounds what is joined of a message that a console's width, or a progress display, has broken into lines.
const (
	maxWrapped      = 12
	maxWrappedBytes = 2 << 10
)

// whole is the statement's text from its sign on, with the lines below it as far as they may belong to it: up to an
// empty one, or another message.
func (st statement) whole() string {
	text := st.line.body[st.pos:min(len(st.line.body), st.pos+maxWrappedBytes)]
	for _, l := range st.near(1, maxWrapped) {
		if len(text)+len(l.body) > maxWrappedBytes || len(l.facts().hits) > 0 {
			break
		}
		text += "\n" + l.body
	}
	return text
}

// sentence is the whole text with single blanks, as no console breaks it.
func (st statement) sentence() string {
	return strings.Join(strings.Fields(st.whole()), " ")
}

// size stands in a form for a size.
const size = `([\d.,]+ ?\w*)`

func form(text string) pattern {
	return lazily(strings.ReplaceAll(text, "SIZE", size))
}

// What messages of a fixed wording have. Up to 2.0 PyTorch's gave figure and name, since then they are sentences.
var (
	torchAsked     = form(`^SIZE`)
	torchTotal     = form(`total capac\w* of SIZE|SIZE total capacity`)
	torchFree      = form(` of which SIZE|SIZE free`)
	torchInUse     = form(`this process has SIZE`)
	torchAllocated = form(`Of the allocated memory SIZE|SIZE already allocated`)
	torchIdle      = form(`SIZE is reserved by PyTorch but unallocated|SIZE cached`)
	torchReserved  = form(`SIZE reserved in total`)
	torchGPU       = lazily(`GPU (\d{1,3})\b`)
	torchProcess   = form(`Process (\d{1,7}) has SIZE memory in use`)
	// what comes then is advice, or another line
	torchEnd    = lazily(`^.*?(?:by PyTorch\)|cached\)|but unallocated)`)
	sharedAsked = form(`(?:Required: |requested |shared data \()(0x[0-9a-f]+|\d+)`)
	vllmForm    = form(`^(?i:free memory on device)(?: cuda:(\d{1,3}))? \(([\d.]+)/([\d.]+) ?(\w+)\)` +
		`.*?utilization \([\d.]+, SIZE\)`)
)

// sizeIn is the size that a form has found, unknown where there is none.
func sizeIn(text string, f pattern) gpu.Figure {
	if words := f().FindStringSubmatch(text); words != nil {
		n, _, _ := sized(strings.Join(words[1:], ""))
		return n
	}
	return notSaid
}

// readTorch reads all generations of PyTorch's message, from the size on.
func readTorch(m *Message, rest string) bool {
	if sentence := torchEnd().FindString(rest); sentence != "" {
		rest = sentence
	}
	if m.Asked = sizeIn(rest, torchAsked); m.Asked == notSaid && !strings.HasPrefix(rest, "more than 1EB") {
		return false
	}
	if words := torchGPU().FindStringSubmatch(rest); words != nil {
		m.GPU = number(words[1], maxGPU)
	}
	m.Total, m.Free = sizeIn(rest, torchTotal), sizeIn(rest, torchFree)
	m.Allocated, m.Idle, m.InUse = sizeIn(rest, torchAllocated), sizeIn(rest, torchIdle), sizeIn(rest, torchInUse)
	if kept := sizeIn(rest, torchReserved); kept.Known() && m.Allocated.Known() && kept.Bytes >= m.Allocated.Bytes {
		m.Idle = gpu.Bytes(kept.Bytes - m.Allocated.Bytes)
	}
	if m.InUse.Known() { // in a container the process itself may be listed by a number that it does not know
		for _, words := range torchProcess().FindAllStringSubmatch(rest, MaxOthers) {
			if pid := number(words[1], maxPID); pid != nil && *pid > 0 {
				n, _, _ := sized(words[2])
				m.Others = append(m.Others, Process{PID: *pid, Memory: n})
			}
		}
	}
	return true
}

// readVLLM reads "Free memory on device cuda:1 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization
// (0.9, 19.84 GiB)".
func readVLLM(m *Message, text string) bool {
	words := vllmForm().FindStringSubmatch(text)
	if words == nil {
		return false
	}
	m.GPU = number(words[1], maxGPU)
	m.Free, _, _ = sized(words[2] + " " + words[4])
	m.Total, _, _ = sized(words[3] + " " + words[4])
	m.Asked, _, _ = sized(words[5])
	return true
}
