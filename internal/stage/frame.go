package stage

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"bookend/internal/routine"
)

// frame holds a hook's deadline and the exit code reached so far, which the watchdog and SIGTERM end with.
type frame struct {
	env      Env
	start    time.Duration // CLOCK_BOOTTIME at process start
	deadline time.Duration
	watchdog *time.Timer
	exit     atomic.Int32
}

// newFrame bounds a hook before its configuration is known: even that may lie on a disk that does not answer.
func newFrame(env Env) *frame {
	const untilConfigured = 5 * time.Second
	start := env.Clock.Boot()
	return &frame{env: env, start: start, deadline: start + untilConfigured, watchdog: time.NewTimer(untilConfigured)}
}

// limit fixes the one absolute deadline of the hook, counted from process start.
func (f *frame) limit(total time.Duration) {
	f.deadline = f.start + total
	f.watchdog.Reset(f.left(1<<62, 0))
}

// left is the time for a step: its cap, or what the deadline leaves after reserve for the steps behind it.
func (f *frame) left(limit, reserve time.Duration) time.Duration {
	return max(0, min(limit, f.deadline-f.env.Clock.Boot()-reserve))
}

// lastWords is what is left for them: slurmd grants 10 ms between SIGTERM and SIGKILL, and a killed hook counts
// as failed.
const lastWords = 5 * time.Millisecond

// guard ends the process with the exit code reached, at the deadline or at SIGTERM, after say has had its say.
// It runs beside a hook that may be stuck anywhere.
func (f *frame) guard(onPanic func(*routine.Panic), say func(why string)) (stop func()) {
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
		case <-time.After(lastWords):
		}
		f.env.Exit(int(f.exit.Load()))
	})
	return func() {
		close(done)
		f.watchdog.Stop()
		signal.Stop(term)
	}
}
