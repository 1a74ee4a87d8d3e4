package holders

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"bookend/internal/routine"
)

// Bounds of how many processes are looked at side by side. One alone would leave all others to one that hangs; on
// more cores the kernel's locks, not the work, take the time.
const (
	minWorkers = 2
	maxWorkers = 8
)

// workers is how many processes a search looks at side by side.
func workers() int { return min(max(minWorkers, runtime.GOMAXPROCS(0)), maxWorkers) }

// crew looks at processes side by side until its time is up. A look can hang, on the locks of the process looked
// at: it is then left alone, and ends with this program.
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

// going reports whether there is time left.
func (c *crew) going() bool { return c.over.Err() == nil }

// trouble notes why something may have been missed.
func (c *crew) trouble(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.troubles) < maxTroubles {
		c.troubles = append(c.troubles, clip(fmt.Sprintf(format, args...), 200))
	}
}

// partial says why something may have been missed, empty when nothing was.
func (c *crew) partial() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.troubles, "; ")
}

// round is a crew's walk through a list of processes.
type round struct {
	pids []int
	next atomic.Int64
	done atomic.Int64
	at   []atomic.Int64 // the process that each worker is at, 0 for none
	busy sync.WaitGroup
}

// send starts as many workers as have work, but so many at most, who call look for each process, each with a reader of
// its own. As many processes as that may hang, and the others are looked at.
func (c *crew) send(most int, pids []int, look func(r *reader, pid int)) *round {
	r := &round{pids: pids, at: make([]atomic.Int64, min(most, len(pids)))}
	r.busy.Add(len(r.at))
	panicked := func(p *routine.Panic) { c.trouble("a search ended early: %v", p) }
	for i := range r.at {
		routine.Go(panicked, func() {
			defer r.busy.Done()
			defer routine.Recover(panicked) // before this worker counts as done
			r.work(c, &r.at[i], look)
		})
	}
	return r
}

func (r *round) work(c *crew, at *atomic.Int64, look func(*reader, int)) {
	own := newReader()
	for c.going() {
		i := int(r.next.Add(1)) - 1
		if i >= len(r.pids) {
			return
		}
		at.Store(int64(r.pids[i]))
		look(own, r.pids[i])
		at.Store(0)
		if c.going() { // else it may have been cut short
			r.done.Add(1)
		}
	}
}

// hung are the processes that workers are still at.
func (r *round) hung() (pids []int) {
	for i := range r.at {
		if pid := r.at[i].Load(); pid != 0 {
			pids = append(pids, int(pid))
		}
	}
	slices.Sort(pids)
	return pids
}

// wait returns once every process was looked at or the time is up; then it notes how many were not. What names
// what is looked at.
func (c *crew) wait(r *round, what string) {
	idle := make(chan struct{})
	routine.Go(func(*routine.Panic) {}, func() {
		defer close(idle)
		r.busy.Wait()
	})
	select {
	case <-idle:
	case <-c.over.Done():
	}
	left := len(r.pids) - int(r.done.Load())
	if left == 0 {
		return
	}
	text := fmt.Sprintf("time was up: %s of %d of %d processes were not read", what, left, len(r.pids))
	if pids := r.hung(); len(pids) > 0 {
		text += fmt.Sprintf(" (at %d)", pids)
	}
	c.trouble("%s", text)
}
