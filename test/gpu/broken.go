package main

import (
	"time"

	"bookend/test/rig"
)

// Where a scene does not come about, or cannot be looked at, an error ends a run's step, and those after it. Whatever a
// run leaves then, reset takes away.

var (
	try     = rig.Try
	attempt = rig.Attempt
)

func must[T any](value T, err error) T { return rig.Have(value, err) }

// settled tries until a statement holds: what was killed may still be listed for a moment.
func settled(statement func()) {
	err := attempt(statement)
	for deadline := time.Now().Add(patience); err != nil && time.Now().Before(deadline); err = attempt(statement) {
		time.Sleep(50 * time.Millisecond)
	}
	try(err)
}
