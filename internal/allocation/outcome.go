package allocation

import (
	"cmp"
	"fmt"
	"strings"

	"bookend/internal/backendkit"
	"bookend/internal/gpu"
)

// Library is a vendor's library: CUDA's driver API, or HIP, which has the same calls and codes.
type Library struct {
	Name   string // "CUDA"
	Prefix string // of its functions' names
	Means  []gpu.ReturnCode
	Slow   string // why it may take long to start
}

// Codes of both libraries; HIP has none for a GPU that accepts no new contexts.
const (
	outOfMemory       = 2
	deviceUnavailable = 46
	noDevice          = 100
	invalidDevice     = 101
	notSupported      = 801
)

// outcome is a call that failed; nil is success.
type outcome struct {
	of   *Library
	call string
	code int    // the library's code, gpu.Lacks, or 0 for gpu.Load
	text string // for gpu.Load: the linker's message
}

// LookUp returns the meaning of a code that a call returned.
func (l *Library) LookUp(call string, code int) (m gpu.ReturnCode, ok bool) {
	for _, m := range l.Means {
		if m.Code == code && (m.Call == "" || m.Call == call) {
			return m, true
		}
	}
	return gpu.ReturnCode{}, false
}

// explain returns what a failed call means. An unknown code gets the library's own name.
func (o outcome) explain() *gpu.CallError {
	m, known := o.of.LookUp(o.call, o.code)
	if !known {
		m.Name = strings.Clone(backendkit.Bounded(nameOf(o.code)))
	}
	name := cmp.Or(m.Name, "unknown to the driver")
	return &gpu.CallError{Call: o.call, Code: o.code, Name: name, Meaning: m.Meaning, Remedy: m.Remedy}
}

// words describes the failure in one line.
func (o outcome) words() string {
	if o.call == gpu.Load {
		return backendkit.Bounded(o.call + ": " + o.text)
	}
	return backendkit.Bounded(fmt.Sprintf("%s: %s (%d)", o.call, o.explain().Name, o.code))
}

// full reports whether no block of that size is free.
func (o outcome) full() bool { return o.code == outOfMemory && o.call == o.of.Prefix+"MemCreate" }

// fail marks a probe as broken, or as blocked if the GPU accepts no new contexts.
func fail(p *gpu.Probe, o outcome) {
	p.Result, p.Why, p.Error = gpu.ProbeBroken, o.words(), o.explain()
	if o.code == deviceUnavailable {
		p.Result = gpu.ProbeBlocked
	}
}

// skip marks a probe as not made or not finished.
func skip(p *gpu.Probe, why string) { p.Result, p.Why = gpu.ProbeSkipped, backendkit.Bounded(why) }

func skipped(id gpu.ID, why string) gpu.Probe {
	no := gpu.Unknown("not tested")
	p := gpu.Probe{Device: id, Free: no, Largest: no}
	skip(&p, why)
	return p
}
