package main

import (
	"fmt"
	"runtime/debug"
)

// broken is why a scene did not come about, or could not be looked at: it ends a run's step, and those after it. Whatever a
// run leaves then, reset takes away.
type broken struct{ error }

func brokenf(format string, args ...any) broken { return broken{fmt.Errorf(format, args...)} }

// try ends the step where something of the lane's own fails.
func try(err error) {
	if err != nil {
		panic(broken{err})
	}
}

func must[T any](value T, err error) T {
	try(err)
	return value
}

// attempt is what breaks something; a panic of the lane's own does too.
func attempt(do func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case broken:
			err = p.error
		default:
			err = fmt.Errorf("panic: %v: %s", p, debug.Stack())
		}
	}()
	do()
	return nil
}
