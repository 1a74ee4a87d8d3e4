// Package stage knows the order of things: what each hook does, one step after another, and how long each
// step may take. It is the only package that knows all the others.
//
//	slurm env ─► Job ─► config ─► backend ─► Snapshot ─► attribution ─► findings ─► policy ─► outputs ─► exit code
//
// What may sleep in the kernel or crash runs in children: the vendor's backend, or this very binary started
// again as "--child OP" (children.go).
package stage

import (
	"io"

	"bookend/internal/clock"
)

// Env is the outside world as a main hands it over.
type Env struct {
	Args    []string
	Getenv  func(string) string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	EUID    int
	PID     int
	Clock   clock.Clock
	Exit    func(int) // ends the process at once: only the watchdog needs it
	Version string
}
