package backendkit

import (
	"fmt"
	"strings"

	"bookend/internal/gpu"
)

// Library describes a vendor's library for test allocations.
type Library struct {
	Means  []Meaning
	Own    func(code int) string // the library's name for a code; empty if it has none
	Full   func(Outcome) bool    // whether it means that no such block is free
	Nobody int                   // the code for a GPU that accepts no new contexts
}

// Meaning explains one of the library's codes to the admin who has to act on it.
type Meaning struct {
	Code    int
	Call    string // empty: any call
	Name    string
	Meaning string
	Remedy  string
}

// Means returns a row of a library's table.
func Means(code int, call, name, meaning, remedy string) Meaning {
	return Meaning{code, call, name, meaning, remedy}
}

// Load is the call that loads a library. Lacks is the code for a function that the library does not have.
const (
	Load  = "dlopen"
	Lacks = -1
)

// Outcome is a call that failed; nil is success.
type Outcome struct {
	Of   *Library
	Call string
	Code int    // the library's code, Lacks, or 0 for Load
	Text string // for Load: the linker's message
}

// Returned returns the outcome of a call, nil for code 0.
func (l *Library) Returned(call string, code int) *Outcome {
	if code == 0 {
		return nil
	}
	return &Outcome{Of: l, Call: call, Code: code}
}

// LookUp returns the meaning of a code that a call returned.
func (l *Library) LookUp(call string, code int) (m Meaning, ok bool) {
	for _, m := range l.Means {
		if m.Code == code && (m.Call == "" || m.Call == call) {
			return m, true
		}
	}
	return Meaning{}, false
}

// Explain returns what a failed call means. An unknown code gets the library's own name.
func (o Outcome) Explain() *gpu.CallError {
	m, known := o.Of.LookUp(o.Call, o.Code)
	if !known {
		m.Name = strings.Clone(Bounded(o.Of.Own(o.Code)))
	}
	if m.Name == "" {
		m.Name = "unknown to the driver"
	}
	return &gpu.CallError{Call: o.Call, Code: o.Code, Name: m.Name, Meaning: m.Meaning, Remedy: m.Remedy}
}

// Words describes the failure in one line.
func (o Outcome) Words() string {
	if o.Call == Load {
		return Bounded(o.Call + ": " + o.Text)
	}
	return Bounded(fmt.Sprintf("%s: %s (%d)", o.Call, o.Explain().Name, o.Code))
}

func (o Outcome) full() bool { return o.Of.Full(o) }

// Fail marks a probe as broken, or as blocked if the GPU accepts no new contexts.
func Fail(p *gpu.Probe, o Outcome) {
	p.Result, p.Why, p.Error = gpu.ProbeBroken, o.Words(), o.Explain()
	if o.Code == o.Of.Nobody {
		p.Result = gpu.ProbeBlocked
	}
}

// Skip marks a probe as not made or not finished.
func Skip(p *gpu.Probe, why string) { p.Result, p.Why = gpu.ProbeSkipped, Bounded(why) }

// Skipped returns a probe that was not made.
func Skipped(id gpu.ID, why string) gpu.Probe {
	no := gpu.Unknown("not tested")
	p := gpu.Probe{Device: id, Free: no, Largest: no}
	Skip(&p, why)
	return p
}

// Bounded cuts a driver's text to a length that fits in a reply.
func Bounded(s string) string {
	const most = 512 // bytes
	return s[:min(len(s), most)]
}
