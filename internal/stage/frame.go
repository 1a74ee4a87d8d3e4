package stage

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"bookend/internal/ledger"
	"bookend/internal/routine"
)

// Frame is a hook's deadline, and its Checkpoint.
type Frame struct {
	Checkpoint
	Start    time.Duration // CLOCK_BOOTTIME at process start
	deadline time.Duration
	clock    routine.Clock
	watchdog *time.Timer
}

// Checkpoint is all that SIGTERM and the watchdog publish of a hook that they stop: the exit code reached so far, and
// the record of an end that the steps could not write. They run beside the steps and touch nothing else.
type Checkpoint struct {
	exit       atomic.Int32
	unfinished atomic.Pointer[func(ledger.End)]
}

// Reach sets the exit code reached.
func (c *Checkpoint) Reach(exit int) { c.exit.Store(int32(exit)) }

// Reached is the exit code reached.
func (c *Checkpoint) Reached() int { return int(c.exit.Load()) }

// Unfinished sets what puts an end on record if the steps do not come to it.
func (c *Checkpoint) Unfinished(put func(ledger.End)) { c.unfinished.Store(&put) }

// Finish says that the steps write the record themselves.
func (c *Checkpoint) Finish() { c.unfinished.Store(nil) }

// GiveUp puts on record what there is, where nothing has been put there yet.
func (c *Checkpoint) GiveUp(e ledger.End) {
	if put := c.unfinished.Swap(nil); put != nil {
		(*put)(e)
	}
}

// NewFrame bounds a hook before its configuration is known: even that may lie on a disk that does not answer.
func NewFrame(now routine.Clock) *Frame {
	const untilConfigured = 5 * time.Second
	start := now.Boot()
	return &Frame{Start: start, deadline: start + untilConfigured, clock: now, watchdog: time.NewTimer(untilConfigured)}
}

// Limit fixes the one absolute deadline, counted from process start.
func (f *Frame) Limit(total time.Duration) {
	f.deadline = f.Start + total
	f.watchdog.Reset(f.Left(1<<62, 0))
}

// Left is the time for a step: its cap, or what the deadline leaves after reserve for the steps behind it.
func (f *Frame) Left(limit, reserve time.Duration) time.Duration {
	return max(0, min(limit, f.deadline-f.clock.Boot()-reserve))
}

// LastWords is what is left for them: slurmd grants 10 ms between SIGTERM and SIGKILL, and a killed hook counts
// as failed.
const LastWords = 5 * time.Millisecond

// Guard ends the process with the exit code reached, at the deadline or at SIGTERM, after say has had its say.
// It runs beside a hook that may be stuck anywhere.
func (f *Frame) Guard(end func(int), onPanic func(*routine.Panic), say func(why string)) (stop func()) {
	term := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(term, syscall.SIGTERM)
	routine.Go(onPanic, func() {
		why := "SIGTERM"
		select {
		case <-done:
			return
		case <-term:
		case <-f.watchdog.C:
			why = "the deadline"
		}
		said := make(chan struct{})
		routine.Go(func(*routine.Panic) {}, func() {
			defer close(said)
			say(why)
		})
		select {
		case <-said:
		case <-time.After(LastWords):
		}
		end(f.Reached())
	})
	return func() {
		close(done)
		f.watchdog.Stop()
		signal.Stop(term)
	}
}
