package rig

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Try ends what Attempt is doing where something of a trial's own fails, so that nothing is judged by it.
func Try(err error) {
	if err != nil {
		panic(err)
	}
}

// Have is a value without its error.
func Have[T any](value T, err error) T {
	Try(err)
	return value
}

// Attempt is what ended a function, by Try or by a mistake of its own.
func Attempt(do func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			err = fmt.Errorf("panic: %w: %s", p, debug.Stack())
		case error:
			err = p
		default:
			err = fmt.Errorf("panic: %v: %s", p, debug.Stack())
		}
	}()
	do()
	return nil
}
