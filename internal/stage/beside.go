package stage

import (
	"time"

	"bookend/internal/routine"
)

// answered is what became of an operation in a child.
type answered[Rep any] struct {
	reply Rep
	err   error
}

// beside starts one operation in a child while the hook goes on, and returns what waits for its reply: at most the
// timeout and the short grace of child.Run.
func beside[Rep any](op string, req any, timeout time.Duration) (collect func() (Rep, error)) {
	return aside(func() (Rep, error) { return ask[Rep](op, req, timeout) })
}

// aside starts what ends by itself while the hook goes on, and returns what waits for it.
func aside[Rep any](f func() (Rep, error)) (collect func() (Rep, error)) {
	done := make(chan answered[Rep], 1)
	routine.Go(func(p *routine.Panic) { done <- answered[Rep]{err: p} }, func() {
		reply, err := f()
		done <- answered[Rep]{reply, err}
	})
	return func() (Rep, error) {
		a := <-done
		return a.reply, a.err
	}
}
