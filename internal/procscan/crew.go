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
	look func(pid int)
	free chan struct{} // one for each worker that may start
	over chan struct{} // closed when all were read
	busy sync.WaitGroup
	// spare is how many workers may still be added to replace hanging ones; below 0, as many would be needed.
	spare atomic.Int32

	mu   sync.Mutex
	done int
	at   map[int]bool // the processes being read
}

// maxRelief limits how many hanging workers a round replaces: each may be a thread that cannot be killed.
const maxRelief = 64

// send has up to most workers at a time call look for each process, and one more for each that hangs.
func (c *crew) send(most int, pids []int, look func(pid int)) *round {
	r := &round{pids: pids, look: look, over: make(chan struct{}), free: make(chan struct{}, most), at: map[int]bool{}}
	r.spare.Store(maxRelief)
	for range most {
		r.free <- struct{}{}
	}
	child.Go(c.panicked, func() {
		for _, pid := range pids {
			select {
			case <-r.free:
			case <-c.over.Done():
			}
			if !c.going() {
				return
			}
			r.mu.Lock()
			r.at[pid] = true
			r.mu.Unlock()
			r.busy.Add(1)
			child.Go(c.panicked, func() {
				defer r.busy.Done()
				defer child.Recover(c.panicked) // before this worker counts as ended
				r.work(c, pid)
			})
		}
		r.busy.Wait()
		close(r.over)
	})
	return r
}

func (c *crew) panicked(p *child.Panic) { c.trouble("a search ended early: %v", p) }

// patience is how long a worker may spend on one process before another starts: no harm if the machine is merely busy.
const patience = 50 * time.Millisecond

// work reads one process. It counts as unread if the time was up meanwhile.
func (r *round) work(c *crew, pid int) {
	replace := sync.OnceFunc(func() { r.free <- struct{}{} })
	late := time.AfterFunc(patience, func() {
		if r.spare.Add(-1) >= 0 {
			replace()
		}
	})
	r.look(pid)
	if !late.Stop() { // it has not hung after all
		r.spare.Add(1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.going() {
		r.done++
	}
	delete(r.at, pid)
	replace()
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
	case <-r.over:
	case <-c.over.Done():
	}
	return r.hung()
}

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
