// Package routine has what every program of Bookend does in one place alone. It starts goroutines: a panic in one that
// nobody recovers ends the whole hook with exit code 2, which drains the node. And it reads the time.
package routine

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
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
		stack := make([]byte, 64<<10) // not of runtime/debug, whose initialisation is late: nogpu.go
		report(&Panic{Value: fmt.Sprint(v), Stack: stack[:runtime.Stack(stack, false)]})
	}
}

// Parallel calls f for 0 to n-1 at once and returns the results in order. A panic is returned as an error: half an
// answer would look like a whole one.
func Parallel[T any](n int, f func(int) T) ([]T, error) {
	results := make([]T, n)
	ended := make(chan *Panic, n)
	for i := range n {
		Go(func(p *Panic) { ended <- p }, func() {
			results[i] = f(i)
			ended <- nil
		})
	}
	for range n {
		if defect := <-ended; defect != nil {
			return nil, defect
		}
	}
	return results, nil
}

// Clock tells the time. Durations between events use Boot, which clock steps do not move; Wall is for display.
type Clock struct {
	Wall func() time.Time
	Boot func() time.Duration // CLOCK_BOOTTIME: time since boot, suspend included
}

// SystemClock returns the machine's clocks, for mains, which pass them on.
func SystemClock() Clock { return Clock{Wall: time.Now, Boot: boot} }

// Booted is when the machine was booted, by the wall clock of now.
func (c Clock) Booted() time.Time { return c.Wall().Add(-c.Boot()) }

func boot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // cannot fail on Linux >= 2.6.39 with a valid pointer
	}
	return time.Duration(ts.Nano())
}
