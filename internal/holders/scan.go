package holders

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
	"bookend/internal/routine"
)

// maxHoldings bounds one scan. A hostile holder fills some 3 KiB of the answer, which has 4 MiB.
const maxHoldings = 1024

// Scan searches all processes of proc (/proc) but the caller for those that have one of the driver's device nodes below
// dev (/dev) open: nvidiaN, nvidiactl, nvidia-uvm, nvidia-uvm-tools and what lies below nvidia-caps. A process in a
// container is known by the path that it sees. It returns in time, with what it has. Partial says what was not looked
// at. The memory of those to skip is not read: whoever reads it hangs, and perhaps so that no signal ends it.
//
// Not seen are descriptors on their way through a socket, those in a table that a thread keeps for itself, a node under
// a name that its holder chose, by a mount of its own, and what is mapped by a process that has closed the descriptor.
func Scan(proc, dev string, budget time.Duration, skip ...attrib.Instance) attrib.Scan {
	c := newCrew(budget)
	defer c.end()
	s := newSearch(c, proc, dev)
	s.descriptors()
	return s.result(&survey{proc: proc, skip: skip, known: map[int]attrib.Process{}})
}

// search is one scan under way.
type search struct {
	*crew
	proc, dev string
	mounts    string // names the caller's mount namespace, empty where proc does not

	mu     sync.Mutex
	looked int
	found  map[int]held
}

func newSearch(c *crew, proc, dev string) *search {
	mounts, err := os.Readlink(filepath.Join(proc, "self", mountLink))
	s := &search{crew: c, proc: proc, dev: dev, mounts: mounts, found: map[int]held{}}
	if err != nil && !gone(err) {
		s.trouble("read own mount namespace: %v", err)
	}
	if pids, err := os.Readlink(filepath.Join(proc, "self/ns/pid")); err == nil && pids != hostPIDs {
		s.trouble("this hook runs in a PID namespace of its own: processes outside it cannot be seen")
	}
	return s
}

// hostPIDs is the machine's own PID namespace, whose number is the kernel's PROC_PID_INIT_INO.
const hostPIDs = "pid:[4026531836]"

// descriptors looks at the descriptors of every process, and of those that began meanwhile: a holder may have
// forked, and ended, before its turn came.
func (s *search) descriptors() {
	pids := s.list()
	s.wait(s.send(workers(), pids, s.look), "descriptors")
	if !s.going() {
		return
	}
	late := slices.DeleteFunc(s.list(), func(pid int) bool {
		_, seen := slices.BinarySearch(pids, pid)
		return seen
	})
	s.wait(s.send(workers(), late, s.look), "descriptors")
}

func (s *search) list() []int {
	pids, err := listPIDs(s.proc)
	if err != nil {
		s.trouble("%v", err)
	}
	return pids
}

// result is what was found, with what the holders' memory says, which can hang.
func (s *search) result(holders *survey) attrib.Scan {
	s.mu.Lock()
	found, looked := maps.Clone(s.found), s.looked
	s.mu.Unlock()
	scan := attrib.Scan{Holdings: []attrib.Holding{}, Looked: looked}
	for _, p := range holders.of(s.crew, slices.Sorted(maps.Keys(found))) {
		h := found[p.PID]
		if p.Hangs {
			scan.Hung = append(scan.Hung, attrib.Instance{PID: p.PID, Start: h.Start})
		}
		switch {
		case p.Gone, p.Why == "" && h.Why == "" && h.Start != p.Start: // it held the GPU when it was looked at
		case p.Why != "":
			h.Process = unread(h.Process, p.Why)
		default:
			h.Process = p
		}
		scan.Holdings = append(scan.Holdings, h.Holding)
	}
	if looked == 0 {
		s.trouble("no process could be looked into")
	}
	scan.Partial = s.partial()
	return scan
}

// look looks at a process's descriptors, and keeps it if it is a holder.
func (s *search) look(pid int) {
	h, err := twice(func() (held, error) { return s.read(pid) })
	if gone(err) {
		return
	}
	refused := s.refused(pid, err)
	if h.over {
		s.trouble("process %d: more than %d devices", pid, maxMinors)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !refused {
		s.looked++
	}
	switch {
	case !h.any():
	case len(s.found) == maxHoldings:
		s.trouble("more than %d holders", maxHoldings)
	default:
		s.found[pid] = h
	}
}

// refused notes an error that kept the search from looking into a process, unless the time is up, which is noted
// elsewhere. Process 1 is the init of the machine or container: where a sandbox keeps even root from it, that is no
// reason to trust a search less.
func (s *search) refused(pid int, err error) bool {
	if err == nil || gone(err) || !s.going() {
		return false
	}
	denied := errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
	if pid != 1 || !denied {
		s.trouble("process %d: %v", pid, err)
	}
	return true
}

// read reads a process's descriptors and, of a holder, what it is. One of which not everything could be read, or that
// cannot be told who it is, is a holder all the same.
func (s *search) read(pid int) (h held, err error) {
	f, err := openFolder(s.proc, pid)
	if err != nil {
		return h, err
	}
	defer f.close()
	in, some := place{s.dev, sync.OnceValue(func() bool { return f.foreign(s.mounts) })}, false
	visit := func(target []byte) {
		some = true
		h.add(target, in)
	}
	err = f.descriptors(s.going, visit)
	if !some { // the first thread of a process shows nothing once it has ended, whatever the others hold
		if st, _ := f.stat(); st.state == ended {
			f = f.ask(ended)
			err = f.descriptors(s.going, visit)
		}
	}
	if !h.any() {
		return h, err
	}
	var failed error
	if h.Process, failed = f.identify(pid); failed == nil {
		failed = f.stillOf(h.Process)
	}
	switch {
	case errors.Is(failed, errEnded): // what was read may be another's
		return held{}, failed
	case failed != nil:
		h.Process = attrib.Process{PID: pid, Why: failed.Error()}
	}
	if gone(err) { // a thread has ended, the process has not
		err = nil
	}
	return h, err
}

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

// send starts as many workers as have work, but so many at most, who call look for each process. As many processes
// as that may hang, and the others are looked at.
func (c *crew) send(most int, pids []int, look func(pid int)) *round {
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

func (r *round) work(c *crew, at *atomic.Int64, look func(pid int)) {
	for c.going() {
		i := int(r.next.Add(1)) - 1
		if i >= len(r.pids) {
			return
		}
		at.Store(int64(r.pids[i]))
		look(r.pids[i])
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
