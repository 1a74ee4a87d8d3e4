package serve

import (
	"fmt"
	"strings"

	"bookend/internal/gpu"
)

// Library is what is known of a vendor's library for test allocations.
type Library struct {
	Means  []Meaning
	Own    func(code int) string // its own name for a code; empty for none
	Full   func(Outcome) bool    // it has no such block
	Nobody int                   // its code for a card that takes no one in
}

// Meaning is what one of its codes means for whoever has to act on it.
type Meaning struct {
	Code    int
	Call    string // empty: whichever call returned it
	Name    string
	Meaning string
	Remedy  string
}

// Means is a row of a library's table.
func Means(code int, call, name, meaning, remedy string) Meaning {
	return Meaning{code, call, name, meaning, remedy}
}

// Load is the call that loads a library. Lacks is the code of a function that the library does not have.
const (
	Load  = "dlopen"
	Lacks = -1
)

// Outcome is a call that did not succeed; nil is success.
type Outcome struct {
	Of   *Library
	Call string
	Code int    // the library's, Lacks, or 0 of Load
	Text string // of Load: the linker's words
}

// Returned is the outcome of a call that returned a code.
func (l *Library) Returned(call string, code int) *Outcome {
	if code == 0 {
		return nil
	}
	return &Outcome{Of: l, Call: call, Code: code}
}

// LookUp returns the words for a code, as one call returned it.
func (l *Library) LookUp(call string, code int) (m Meaning, ok bool) {
	for _, m := range l.Means {
		if m.Code == code && (m.Call == "" || m.Call == call) {
			return m, true
		}
	}
	return Meaning{}, false
}

// Explain says what a failed call means. A code that nothing is known of gets the library's own name.
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

// Words are the failure in a line.
func (o Outcome) Words() string {
	if o.Call == Load {
		return Bounded(o.Call + ": " + o.Text)
	}
	return Bounded(fmt.Sprintf("%s: %s (%d)", o.Call, o.Explain().Name, o.Code))
}

func (o Outcome) full() bool { return o.Of.Full(o) }

// Fail is a driver that said no, or a card that takes nobody in.
func Fail(p *gpu.Probe, o Outcome) {
	p.Result, p.Why, p.Error = gpu.ProbeBroken, o.Words(), o.Explain()
	if o.Code == o.Of.Nobody {
		p.Result = gpu.ProbeBlocked
	}
}

// Skip is a test that was not made, or came to no end.
func Skip(p *gpu.Probe, why string) { p.Result, p.Why = gpu.ProbeSkipped, Bounded(why) }

// Skipped is a test that was not made.
func Skipped(id gpu.ID, why string) gpu.Probe {
	no := gpu.Unknown("not tested")
	p := gpu.Probe{Device: id, Free: no, Largest: no}
	Skip(&p, why)
	return p
}

// Bounded keeps a text of a driver's short enough for a reply.
func Bounded(s string) string {
	const most = 512 // bytes
	return s[:min(len(s), most)]
}
