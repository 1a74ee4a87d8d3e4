package procscan

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

	"bookend/internal/child"
)

// Bounds for the workers that read in parallel: one alone could hang; more cores would wait for the kernel's locks.
const (
	minWorkers = 2
	maxWorkers = 8
)

func workers() int { return min(max(minWorkers, runtime.GOMAXPROCS(0)), maxWorkers) }

// crew reads processes in parallel until its time is up. A worker that hangs is abandoned and ends with the program.
type crew struct {
	over context.Context // done when the time is up
	end  context.CancelFunc

	mu       sync.Mutex
	troubles []string // reasons why something may have been missed
}

// maxTroubles bounds the reported reasons: the first few are enough.
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

// round is one pass over a list of processes by several workers.
type round struct {
	pids []int
	look func(*reader, int)
	idle chan struct{} // closed when the last worker ends

	mu     sync.Mutex
	next   int
	done   int
	active int // workers that have not ended
	spare  int // workers that may still be started to replace hanging ones
	at     map[int]bool
}

// maxRelief limits how many hanging workers a round replaces: each may be a thread that cannot be killed.
const maxRelief = 64

// patience is how long a worker may spend on one process before another worker starts. The additional worker does no
// harm if the machine is merely busy.
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
	panicked := func(p *child.Panic) { c.trouble("a search ended early: %v", p) }
	child.Go(panicked, func() {
		defer r.end()
		defer child.Recover(panicked) // before this worker counts as ended
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

// relieve starts a replacement for a worker that hangs, if there is work left for it.
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

// spareOne permits another replacement, because a worker that was replaced has not hung after all.
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

// put records that a worker is done with a process. It counts as unread if the time was up meanwhile.
func (r *round) put(pid int, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.at, pid)
	if whole {
		r.done++
	}
}

// hung returns how many processes were not read completely, and which processes workers are still reading.
func (r *round) hung() (unread int, at []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pids) - r.done, slices.Sorted(maps.Keys(r.at))
}

// await waits until every process was read or the time is up, and returns what hung returns.
func (c *crew) await(r *round) (unread int, at []int) {
	select {
	case <-r.idle:
	case <-c.over.Done():
	}
	return r.hung()
}

// wait calls await and records what was not read as a trouble.
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
