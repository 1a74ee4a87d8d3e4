package child

import (
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// Panic is a recovered panic, with the stack of the goroutine that raised it.
type Panic struct {
	Value string
	Stack []byte
}

func (p *Panic) Error() string { return "panic: " + p.Value }

// Go runs f in a goroutine. No other package starts goroutines: an unrecovered panic ends the whole hook with exit code
// 2, which drains the node. If f panics, report gets the panic; report itself must not panic.
func Go(report func(*Panic), f func()) {
	go func() {
		defer Recover(report)
		f()
	}()
}

// Recover, when deferred, stops a panic of the current goroutine and passes it to report.
func Recover(report func(*Panic)) {
	if v := recover(); v != nil {
		report(&Panic{Value: fmt.Sprint(v), Stack: debug.Stack()})
	}
}

// Async calls f, which must end by itself, concurrently; call the returned function once to wait for its result.
func Async[T any](f func() (T, error)) (wait func() (T, error)) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	Go(func(p *Panic) { done <- result{err: p} }, func() {
		value, err := f()
		done <- result{value, err}
	})
	return func() (T, error) {
		r := <-done
		return r.value, r.err
	}
}

// Parallel calls f for 0 to n-1 concurrently and returns the results in order. A panic is returned as an error: an
// incomplete answer would look like a complete one.
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

// Clock tells the time. Durations between events use Boot, which clock steps do not affect; Wall is for display.
type Clock struct {
	Wall func() time.Time
	Boot func() time.Duration // CLOCK_BOOTTIME: time since boot, suspend included
}

// SystemClock returns the machine's clocks, for mains, which pass them on.
func SystemClock() Clock { return Clock{Wall: time.Now, Boot: boot} }

func (c Clock) Booted() time.Time { return c.Wall().Add(-c.Boot()) }

// Deadline is when a program must have ended.
type Deadline struct {
	Start, End time.Duration // CLOCK_BOOTTIME
	Clock      Clock
}

// Left returns the time for a step: limit, or what the deadline leaves after reserve for the later steps.
func (d Deadline) Left(limit, reserve time.Duration) time.Duration {
	return max(0, min(limit, d.End-d.Clock.Boot()-reserve))
}

func boot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // cannot fail on Linux >= 2.6.39 with a valid pointer
	}
	return time.Duration(ts.Nano())
}
