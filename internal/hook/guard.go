package hook

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/judge"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// checkpoint is all that SIGTERM and the watchdog, concurrently with the steps, touch and publish if they stop a hook:
// the exit code reached so far, the end that it follows from, and the record of an end that the steps could not write.
type checkpoint struct {
	exit       atomic.Int32
	judged     atomic.Pointer[record.End] // what a drain's exit code follows from
	unfinished atomic.Pointer[func(record.End)]
}

// judgedEnd returns what a stopped hook leaves on record, empty if the exit code reached follows from something else.
func (c *checkpoint) judgedEnd() (e record.End) {
	if judged := c.judged.Load(); judged != nil && judged.Verdict.Status() == c.exitCode() {
		e = *judged
	}
	return e
}

func (c *checkpoint) reach(exit int) { c.exit.Store(int32(exit)) }

func (c *checkpoint) exitCode() int { return int(c.exit.Load()) }

func (c *checkpoint) setUnfinished(put func(record.End)) { c.unfinished.Store(&put) }

// finish means that the steps write the record themselves.
func (c *checkpoint) finish() { c.unfinished.Store(nil) }

// giveUp records e, unless a record is written already.
func (c *checkpoint) giveUp(e record.End) {
	if put := c.unfinished.Swap(nil); put != nil {
		(*put)(e)
	}
}

// leave reports that a hook was stopped. It runs concurrently with the steps, and touches nothing of theirs.
func (c *checkpoint) leave(env Env, phase slurm.Context, start time.Duration, why string) {
	if phase == slurm.HealthCheck {
		c.reach(catalog.Exit(catalog.Deadline))
	}
	f := record.Saw(catalog.Deadline, "stopped by "+why, "a hook that ends in time")
	now, e := env.Clock.Boot(), c.judgedEnd()
	if e.Verdict.Exit == 0 {
		e = record.End{At: now, Verdict: judge.Stopped(c.exitCode(), f)}
	}
	e.Began, e.Wall, e.SlurmConf = start, env.Clock.Wall(), slurmConf(env, e.Verdict.Exit)
	e.Findings = append(slices.Clip(e.Findings), f)
	c.giveUp(e)
	fmt.Fprintf(env.Stderr, "bookend: %s: %s after %v\n", f.Code, f.Observed, (now - start).Round(time.Millisecond))
}

// watchdog ends a hook that is stuck.
type watchdog struct{ *time.Timer }

// newWatchdog bounds a hook before its configuration is known: that may be on a disk that does not answer.
func newWatchdog() watchdog { return watchdog{time.NewTimer(5 * time.Second)} }

func (w watchdog) limit(d child.Deadline) { w.Reset(d.Left(1<<62, 0)) }

// The time to report a stop. slurmd grants 10 ms from SIGTERM to SIGKILL, and a killed hook has failed. A deadline ends
// well before slurmd's own: there a hook that a busy machine starved may take longer.
const (
	termWords     = 5 * time.Millisecond
	deadlineWords = 200 * time.Millisecond
)

// guard calls end at the deadline or SIGTERM, even if the hook is stuck, and before that say.
func (w watchdog) guard(end func(), onPanic func(*child.Panic), say func(why string)) (stop func()) {
	term := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(term, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // else Go ends a process whose stderr has no reader
	child.Go(onPanic, func() {
		why, grace := "SIGTERM", termWords
		select {
		case <-done:
			return
		case <-term:
		case <-w.C:
			why, grace = "the deadline", deadlineWords
		}
		reported := make(chan struct{})
		child.Go(func(*child.Panic) {}, func() {
			defer close(reported)
			say(why)
		})
		select {
		case <-reported:
		case <-time.After(grace):
		}
		end()
	})
	return func() {
		close(done)
		w.Stop()
		signal.Stop(term)
	}
}
