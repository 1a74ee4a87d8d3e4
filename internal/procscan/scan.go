package procscan

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/record"
)

// maxHoldings bounds one scan. A hostile holder takes some 3 KiB of an answer that may have 4 MiB.
const maxHoldings = 1024

// Scan searches proc (/proc) for processes, except the caller, that have a device node of a GPU driver below dev (/dev)
// open or mapped: nvidiaN, nvidiactl, nvidia-uvm, nvidia-uvm-tools, nodes below nvidia-caps, and AMD's render nodes. A
// process in a container is recognized by the path that it sees. Scan returns within budget with what it has. It reads
// all descriptors first, then the mappings, so a short budget loses those. Partial says what was not read.
//
// Scan does not see descriptors in transit through a socket, those in a table of a single thread, a node whose holder
// chose its name with a mount of its own, and what the processes in skip have mapped: reading their memory hangs,
// perhaps beyond any signal. An empty Instance in skip stands for all processes.
func Scan(proc, dev string, budget time.Duration, skip ...record.Instance) record.Scan {
	c := newCrew(budget - budget/forSteps - budget/forUnread)
	defer c.end()
	s := newSearch(c, proc, dev)
	s.skip = skip
	s.descriptors()
	s.mappings()
	unread := s.unread(budget / forUnread)
	scan := s.result()
	scan.Unread = unread
	all := pointers(scan.Unread)
	for i := range scan.Holdings {
		all = append(all, &scan.Holdings[i].Process)
	}
	backEnvironments(proc, budget/forSteps, all)
	return scan
}

const (
	maxUnread = 160 // more processes than a search can hang at
	forUnread = 16  // budget/forUnread is reserved for identifying them
)

type search struct {
	*crew
	proc, dev string
	pids      []int
	skip      []record.Instance
	memory    []*round // the passes that read memory

	mu     sync.Mutex
	looked int
	found  map[int]held
	missed map[int]string // why a process was not read completely
}

func newSearch(c *crew, proc, dev string) *search {
	s := &search{crew: c, proc: proc, dev: dev, found: map[int]held{}, missed: map[int]string{}}
	if err := onHost(proc); err != nil {
		s.trouble("%v", err)
	}
	return s
}

// onHost returns an error outside of the host's PID namespace, whose number is the kernel's PROC_PID_INIT_INO.
func onHost(proc string) error {
	if pids, err := os.Readlink(filepath.Join(proc, "self/ns/pid")); err == nil && pids != "pid:[4026531836]" {
		return errors.New("this hook runs in a PID namespace of its own: processes outside it cannot be seen")
	}
	return nil
}

type part int

const (
	links  part = 1 << iota // its descriptors
	memory                  // its mappings, and a holder's environment
)

// descriptors reads those of every process, also of processes started meanwhile: a holder may have forked and ended.
func (s *search) descriptors() {
	s.pids = s.list()
	s.wait(s.send(workers(), s.pids, s.look(links)), "descriptors")
	if !s.going() {
		return
	}
	late := slices.DeleteFunc(s.list(), func(pid int) bool {
		_, seen := slices.BinarySearch(s.pids, pid)
		return seen
	})
	s.wait(s.send(workers(), late, s.look(links)), "descriptors")
	s.pids = append(s.pids, late...)
}

func (s *search) list() []int {
	pids, err := listPIDs(s.proc)
	if err != nil {
		s.trouble("%v", err)
	}
	return pids
}

// mappings reads the mappings of every process, and the environment of holders. A process that hangs in the driver also
// hangs the worker that reads its memory, and is most often a holder: so holders get workers of their own.
func (s *search) mappings() {
	if !s.going() {
		s.trouble("time was up: no mappings were read")
		return
	}
	if skipsAll(s.skip) {
		s.trouble("no mappings were read: too many earlier reads of mappings still hang")
		return
	}
	s.mu.Lock()
	known := slices.Sorted(maps.Keys(s.found))
	s.mu.Unlock()
	others := slices.DeleteFunc(s.pids, func(pid int) bool {
		_, is := slices.BinarySearch(known, pid)
		return is
	})
	holders, rest := s.send(workers(), known, s.look(links|memory)), s.send(workers(), others, s.look(memory))
	s.memory = []*round{holders, rest}
	for _, r := range s.memory {
		unread, at := s.await(r)
		for _, pid := range at {
			s.miss(pid, "it does not answer: its memory was not read in time")
		}
		if unread > len(at) {
			s.trouble("time was up: mappings of %d of %d processes were not read", unread-len(at), len(r.pids))
		}
	}
}

func (s *search) miss(pid int, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed[pid] = why
}

// unread identifies processes that were not read completely, by files whose reading cannot hang: those of an ended job
// excuse nothing. If one has ended since, only the fact that it was missed is known.
func (s *search) unread(budget time.Duration) (known []record.Process) {
	s.mu.Lock()
	missed := maps.Clone(s.missed)
	s.mu.Unlock()
	pids := slices.Sorted(maps.Keys(missed))
	if len(pids) > maxUnread {
		s.trouble("%d more processes could not be read", len(pids)-maxUnread)
		pids = pids[:maxUnread]
	}
	c := newCrew(budget)
	defer c.end()
	reader := &survey{proc: s.proc, skip: []record.Instance{{}}, known: map[int]record.Process{}}
	for _, p := range reader.of(c, pids) {
		if p.Gone {
			s.trouble("process %d: %s", p.PID, missed[p.PID])
			continue
		}
		p.EnvUnknown = missed[p.PID]
		known = append(known, p)
	}
	return known
}

func (s *search) result() record.Scan {
	s.mu.Lock()
	defer s.mu.Unlock()
	scan := record.Scan{Holdings: []record.Holding{}, Looked: s.looked}
	for _, pid := range slices.Sorted(maps.Keys(s.found)) {
		h := s.found[pid].Holding
		h.EnvUnknown = s.missed[pid]
		scan.Holdings = append(scan.Holdings, h)
	}
	if s.looked == 0 {
		s.trouble("no process could be looked into")
	}
	scan.Partial = s.partial()
	for _, r := range s.memory {
		_, at := r.hung()
		for _, pid := range at {
			scan.Hung = append(scan.Hung, record.Instance{PID: pid, Start: s.found[pid].Start})
		}
	}
	return scan
}

// skips reports and records that a process's memory must not be read. PIDs suffice if a start time is unknown.
func (s *search) skips(pid int, start time.Duration) bool {
	is := func(i record.Instance) bool { return i.PID == pid && (i.Start == start || i.Start == 0 || start == 0) }
	if !slices.ContainsFunc(s.skip, is) {
		return false
	}
	s.miss(pid, "an earlier read of its memory still hangs")
	return true
}

// look returns the function of a worker, which reads a process and keeps it if it is a holder.
func (s *search) look(what part) func(int) {
	return func(pid int) {
		h, err := twice(func() (held, error) { return s.read(pid, what) })
		if gone(err) {
			return
		}
		if !s.refused(pid, err) && what == links {
			s.mu.Lock()
			s.looked++
			s.mu.Unlock()
		}
		if h.over {
			s.miss(pid, fmt.Sprintf("more than %d devices", maxMinors))
		}
		if h.any() {
			s.keep(pid, h)
		}
	}
}

// refused reports an error before the time is up. It records it, unless a sandbox keeps even root from process 1.
func (s *search) refused(pid int, err error) bool {
	if err == nil || gone(err) || !s.going() {
		return false
	}
	denied := errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
	if pid != 1 || !denied {
		s.miss(pid, err.Error())
	}
	return true
}

// read reads a process from one open directory, and completely only if it has a device node. A holder that cannot be
// identified or not be read completely is still a holder.
func (s *search) read(pid int, what part) (h held, err error) {
	f, err := openProcDir(s.proc, pid)
	if err != nil {
		return h, err
	}
	defer f.close()
	var failed [2]error
	if what&links != 0 {
		failed[0] = f.answered(func(n *int) error {
			in := placeOf(s.proc, s.dev, f)
			return f.descriptors(s.going, func(target []byte) { *n++; h.add(target, in) })
		})
	}
	if err := h.identify(&f, pid); err != nil {
		return held{}, err
	}
	if what&memory != 0 && !s.skips(pid, h.Start) {
		failed[1] = f.answered(func(n *int) error {
			in := placeOf(s.proc, s.dev, f)
			return f.maps(s.going, func(line []byte) { *n++; h.add(parseMap(line), in) })
		})
		if err := h.identify(&f, pid); err != nil {
			return held{}, err
		}
		if h.PID != 0 {
			s.keep(pid, h) // reading its environment may hang too
			h.EnvJobID, h.Notebook = parseEnviron(f.environ())
		}
	}
	if h.PID != 0 {
		if err := f.stillOf(h.Process); err != nil { // what was read may be of another process
			return held{}, err
		}
	}
	return h, errors.Join(failed[:]...)
}

// maxAsked is how many threads of one process are tried in turn if each ends before it was read.
const maxAsked = 4

// answered calls read until it found something in a living thread: one that ends shows less than all, or nothing,
// without an error. read counts in n what it found.
func (f *procDir) answered(read func(n *int) error) error {
	for range maxAsked {
		n := 0
		err := read(&n)
		if n > 0 && err == nil {
			return nil
		}
		next, found := f.successor()
		if !found {
			return f.gap(err)
		}
		*f = next
	}
	return fmt.Errorf("%d threads ended while they were read", maxAsked)
}

// identify fills in what a holder is, as far as that can be read, once something that it holds was found.
func (h *held) identify(f *procDir, pid int) (err error) {
	if !h.any() || h.PID != 0 {
		return nil
	}
	h.Process, err = f.identify(pid)
	if err != nil && !errors.Is(err, errEnded) {
		h.Process, err = record.Process{PID: pid, Why: err.Error()}, nil
	}
	return err
}

func (s *search) keep(pid int, h held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.found[pid]
	if !known && len(s.found) == maxHoldings {
		s.trouble("more than %d holders", maxHoldings)
		return
	}
	if known && before.Start == h.Start {
		h.join(before)
	}
	s.found[pid] = h
}
