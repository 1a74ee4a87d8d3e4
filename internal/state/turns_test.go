package state

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// Of each turn there is one holder at a time, and the turns of other jobs and phases are others.
func TestTurns(t *testing.T) {
	s := fresh(t)
	end := must.Have(s.Turns.Claim(100, slurm.Epilog, 0))(t)
	must.Fail(t, "an end next to another", must.Err(s.Turns.Claim(100, slurm.Epilog, 0)), ErrLocked)
	for _, id := range []slurm.JobID{101, 100 + jobLocks, 1<<32 - 1} {
		must.Have(s.Turns.Claim(id, slurm.Epilog, 0))(t)()
	}
	must.Have(s.Turns.Claim(100, slurm.Prolog, 0))(t)()
	end()
	must.Have(s.Turns.Claim(100, slurm.Epilog, 0))(t)()
	check := must.Have(s.Turns.Check(0))(t)
	must.Fail(t, "a health check next to another", must.Err(s.Turns.Check(0)), ErrLocked)
	check()
	must.Have(s.Turns.Check(0))(t)()
}

const (
	gpu0 = gpu.ID("GPU-00000000-1111-2222-3333-444444444444")
	gpu1 = gpu.ID("GPU-00000000-1111-2222-3333-555555555555")
)

// A probe on one GPU keeps that one from being judged, and no other. Judging keeps probes away, and
// not others that judge.
func TestQuiet(t *testing.T) {
	s := fresh(t)
	ended := must.Have(safefile.Lock(s.Turns.ProbeLock(gpu0), 0, true))(t)
	free := func() bool { // a probe could begin on the other GPU
		unlock, err := safefile.Lock(s.Turns.ProbeLock(gpu1), 0, true)
		if err == nil {
			unlock()
		}
		return err == nil
	}
	busy, release := s.Turns.Quiet([]gpu.ID{gpu0, gpu1, gpu0}, 20*time.Millisecond)
	must.Be(t, "busy", busy, map[gpu.ID]string{gpu0: "a probe of Bookend was still at work on it"})
	must.Be(t, "while it is judged", free(), false)
	again, releaseAgain := s.Turns.Quiet([]gpu.ID{gpu1}, 0)
	must.Be(t, "busy by another reader", len(again), 0)
	releaseAgain()
	must.Be(t, "after another reader's release", free(), false)
	release()
	_, unlock := s.Turns.Quiet([]gpu.ID{gpu1}, 0)
	release() // again: must not close what has its descriptor's number by now
	must.Be(t, "after a second release", free(), false)
	unlock()
	must.Be(t, "released", free(), true)
	ended()
	busy, release = s.Turns.Quiet([]gpu.ID{gpu0}, time.Minute)
	must.Be(t, "busy once the probe has ended", len(busy), 0)
	release()
	must.Do(t, errors.Join(os.Remove(s.Turns.ProbeLock(gpu0)), os.Symlink("elsewhere", s.Turns.ProbeLock(gpu0))))
	busy, _ = s.Turns.Quiet([]gpu.ID{gpu0}, 0) // a lock that cannot be taken for another reason is no proof of quiet
	must.Not(t, !strings.Contains(busy[gpu0], "could not be told"), "busy: %v", busy)
}

// Of hooks that begin at once one asks the driver first; the others ask once it has an answer, or in turn if it gets none.
// None waits shortly after an answer to any hook, or to the recorder.
func TestOneHookAsksTheDriverFirst(t *testing.T) {
	s := fresh(t)
	later := time.Now().Add(time.Hour)
	next, err := s.Turns.AskDriver(Library, later, time.Hour)
	must.Do(t, err)
	_, err = s.Turns.AskDriver(Library, later, 0)
	must.Fail(t, "another while it waits", err, ErrLocked)
	const others = 8
	asking := make(chan func(bool), others)
	for range others {
		go func() {
			next, err := s.Turns.AskDriver(Library, time.Now(), time.Hour)
			if err != nil {
				t.Error(err)
			}
			asking <- next
		}()
	}
	must.Be(t, "before it has an answer", len(asking), 0)
	next(false)
	for range others / 2 {
		next := <-asking
		must.Fail(t, "of the rest, another", must.Err(s.Turns.AskDriver(Library, later, 0)), ErrLocked)
		next(false)
	}
	(<-asking)(true)
	for range others/2 - 1 {
		<-asking // all at once
	}
	next(true) // again, without effect
	next, err = s.Turns.AskDriver(Library, later, 0)
	must.Do(t, err)
	s.Turns.DriverAnswered(Library)
	now := time.Now()
	for _, at := range []time.Time{now, now.Add(2 * time.Second), now.Add(-2 * time.Second)} {
		must.Do(t, must.Err(s.Turns.AskDriver(Library, at, 0)))
	}
	for _, at := range []time.Time{now.Add(time.Minute), now.Add(-time.Minute)} { // the clock was set back
		must.Fail(t, at.String(), must.Err(s.Turns.AskDriver(Library, at, 0)), ErrLocked)
	}
	next(true)
}

// In a boot's first seconds no hook takes the file that another has just made for an answer of the driver's.
func TestFirstHookOfABoot(t *testing.T) {
	s := fresh(t)
	next, err := s.Turns.AskDriver(Library, time.Now(), 0)
	must.Do(t, err)
	for range 2 {
		must.Fail(t, "another while it waits", must.Err(s.Turns.AskDriver(Library, time.Now(), 0)), ErrLocked)
	}
	next(true)
	must.Do(t, must.Err(s.Turns.AskDriver(Library, time.Now(), 0)))
}

// Which readers of /proc keep a new one from being started.
func TestHungAt(t *testing.T) {
	at := []record.Instance{{PID: 70, Start: 1}}
	many := make([]Stuck, MaxReaders)
	for i := range many {
		many[i] = Stuck{Op: "holders", At: at}
	}
	for name, tt := range map[string]struct {
		readers []Stuck
		at      int
		blocked bool
	}{
		"none":              {nil, 0, false},
		"one":               {many[:1], 1, false},
		"did not say":       {[]Stuck{{Op: "holders"}}, 0, true},
		"another operation": {[]Stuck{{Op: "processes"}}, 0, false},
		"nearly too many":   {many[1:], MaxReaders - 1, false},
		"too many":          {many, 1, false}, // the one that stands for all
	} {
		skip, blocked := HungAt("holders", tt.readers)
		must.Not(t, len(skip) != tt.at || blocked != tt.blocked, "%s: got %d places, blocked %v", name, len(skip), blocked)
	}
}
