// Package routine starts goroutines. It is the only place with a go statement: a panic in a goroutine that
// nobody recovers ends the whole hook with exit code 2, which drains the node.
package routine

import (
	"fmt"
	"runtime/debug"
)

// Panic is a recovered panic, with the stack of the goroutine that raised it.
type Panic struct {
	Value string
	Stack []byte
}

// Error makes a Panic an error.
func (p *Panic) Error() string { return "panic: " + p.Value }

// Go runs f in a goroutine. When f panics, report gets the panic; it must not panic itself.
func Go(report func(*Panic), f func()) {
	go func() {
		defer Recover(report)
		f()
	}()
}

// Recover, deferred, hands a panic of the current goroutine to report and stops it there.
func Recover(report func(*Panic)) {
	if v := recover(); v != nil {
		report(&Panic{Value: fmt.Sprint(v), Stack: debug.Stack()})
	}
}
