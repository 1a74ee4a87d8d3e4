package state

import (
	"fmt"

	"bookend/internal/child"
)

// AliveIn returns a function that reports, from proc ("/proc"), whether a stuck child still lives.
func AliveIn(proc string) func(Stuck) bool {
	return func(s Stuck) bool { return child.Alive(proc, s.PID, s.StartTicks) }
}

// Text describes a child that is stuck in the driver, for hooks and the command line.
func (s Stuck) Text(since string) string {
	return fmt.Sprintf("driver not answering since %s: PID %d (%s) cannot be killed", since, s.PID, s.Op)
}
