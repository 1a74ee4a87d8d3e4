package holders

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"bookend/internal/routine"
)

// Bounds of processes read side by side: one alone could hang all; more cores wait for the kernel's locks.
const (
	minWorkers = 2
	maxWorkers = 8
)

func workers() int { return min(max(minWorkers, runtime.GOMAXPROCS(0)), maxWorkers) }

// crew looks at processes side by side until its time is up. One that hangs is left alone, and ends with the program.
type crew struct {
	over context.Context // done when the time is up
	end  context.CancelFunc

	mu       sync.Mutex
	troubles []string // why something may have been missed
}

// maxTroubles bounds what is said about what was missed: the first few stand for the rest.
const maxTroubles = 6

func newCrew(budget time.Duration) *crew {
	over, end := context.WithTimeout(context.Background(), budget)
	return &crew{over: over, end: end}
}

func (c *crew) going() bool { return c.over.Err() == nil }

func (c *crew) trouble(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.troubles) < maxTroubles {
		c.troubles = append(c.troubles, fmt.Sprintf("%.200s", fmt.Sprintf(format, args...)))
	}
}

func (c *crew) partial() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.troubles, "; ")
}

// round is one pass over some processes, by several workers.
type round struct {
	pids []int
	look func(*reader, int)
	idle chan struct{} // closed when the last worker ends

	mu     sync.Mutex
	next   int
	done   int
	active int // workers
	spare  int // workers that may still be started for others that hang
	at     map[int]bool
}

// maxRelief is how many workers of one round may hang with another in their place: each may be a thread that cannot be
// killed.
const maxRelief = 64

// patience is how long a worker may be at one process before another worker starts. A round that is only slow because
// the machine is busy loses nothing by that.
const patience = 50 * time.Millisecond

// send starts workers that call look for each process, and one more for each that hangs, so that the others are read.
func (c *crew) send(most int, pids []int, look func(r *reader, pid int)) *round {
	r := &round{pids: pids, look: look, idle: make(chan struct{}), spare: maxRelief, at: map[int]bool{}}
	r.active = min(most, len(pids))
	if r.active == 0 {
		close(r.idle)
	}
	for range r.active {
		r.start(c)
	}
	return r
}

func (r *round) start(c *crew) {
	panicked := func(p *routine.Panic) { c.trouble("a search ended early: %v", p) }
	routine.Go(panicked, func() {
		defer r.end()
		defer routine.Recover(panicked) // before this worker counts as ended
		r.work(c)
	})
}

func (r *round) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active--; r.active == 0 {
		close(r.idle)
	}
}

func (r *round) work(c *crew) {
	own := newReader()
	for c.going() {
		pid, left := r.take()
		if !left {
			return
		}
		var relieved atomic.Bool
		late := time.AfterFunc(patience, func() { relieved.Store(r.relieve(c)) })
		r.look(own, pid)
		late.Stop()
		r.put(pid, c.going())
		if relieved.Load() {
			r.spareOne()
			return
		}
	}
}

// relieve starts a worker in place of one that hangs, if there is work left for it.
func (r *round) relieve(c *crew) (started bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active == 0 || r.spare == 0 || r.next == len(r.pids) {
		return false
	}
	r.active, r.spare = r.active+1, r.spare-1
	r.start(c)
	return true
}

// spareOne makes room for another worker: one that was relieved has not hung after all.
func (r *round) spareOne() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spare++
}

func (r *round) take() (pid int, left bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == len(r.pids) {
		return 0, false
	}
	pid = r.pids[r.next]
	r.next++
	r.at[pid] = true
	return pid, true
}

// put says that a process was read: to its end, unless time was up meanwhile.
func (r *round) put(pid int, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.at, pid)
	if whole {
		r.done++
	}
}

// hung returns how many processes were not read to their end, and at which of them workers still are.
func (r *round) hung() (unread int, at []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pids) - r.done, slices.Sorted(maps.Keys(r.at))
}

// await returns once every process was looked at or the time is up: how many were not, and at which workers still are.
func (c *crew) await(r *round) (unread int, at []int) {
	select {
	case <-r.idle:
	case <-c.over.Done():
	}
	return r.hung()
}

// wait is await, and notes what was not read.
func (c *crew) wait(r *round, what string) {
	unread, at := c.await(r)
	if unread == 0 {
		return
	}
	text := fmt.Sprintf("time was up: %s of %d of %d processes were not read", what, unread, len(r.pids))
	if len(at) > 0 {
		text += fmt.Sprintf(" (at %d)", at)
	}
	c.trouble("%s", text)
}
