package holders

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
)

// Bounds of one scan. A hostile holder fills some 3 KiB of the answer, which has 4 MiB.
const (
	maxHoldings    = 1024
	maxDescriptors = 1 << 20 // of one process: what the kernel grants at most by default (fs.nr_open)
)

// Scan searches all processes of proc (/proc) but the caller for those that have one of the driver's device nodes below
// dev (/dev) open or mapped: nvidiaN, nvidiactl, nvidia-uvm, nvidia-uvm-tools and what lies below nvidia-caps. A
// process in a container is known by the path that it sees. It returns in time, with what it has: first all descriptors
// are read, then the mappings, so that a short budget loses those. Partial says what was not looked at.
//
// Not seen are descriptors on their way through a socket, those in a table that a thread keeps for itself, and a node
// under a name that its holder chose, by a mount of its own, and what those to skip have mapped: whoever reads their
// memory hangs, and perhaps so that no signal ends it.
func Scan(proc, dev string, budget time.Duration, skip ...attrib.Instance) attrib.Scan {
	c, stop := newCrew(budget)
	defer stop()
	s, err := newSearch(c, proc, dev)
	if err != nil {
		return attrib.Scan{Holdings: []attrib.Holding{}, Partial: err.Error()}
	}
	s.skip = skip
	s.descriptors()
	s.mappings()
	return s.result()
}

// search is one scan under way.
type search struct {
	*crew
	proc, dev string
	dir       *os.File // proc
	mounts    string   // names the caller's mount namespace, empty where proc does not
	pids      []int
	skip      []attrib.Instance
	memory    []*round // that read memory

	mu       sync.Mutex
	looked   int
	found    map[int]held
	troubled map[int]bool // processes that could not be looked into as a whole
}

// newSearch leaves proc open: a worker that hangs may come back to it.
func newSearch(c *crew, proc, dev string) (*search, error) {
	dir, err := os.Open(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	mounts, err := os.Readlink(filepath.Join(proc, "self", mountLink))
	if err != nil && !gone(err) {
		return nil, fmt.Errorf("read own mount namespace: %w", err)
	}
	s := &search{crew: c, proc: proc, dev: dev, dir: dir, mounts: mounts, found: map[int]held{},
		troubled: map[int]bool{}}
	if pids, err := os.Readlink(filepath.Join(proc, "self/ns/pid")); err == nil && pids != hostPIDs {
		s.trouble("this hook runs in a PID namespace of its own: processes outside it cannot be seen")
	}
	return s, nil
}

// hostPIDs is the machine's own PID namespace, whose number is the kernel's PROC_PID_INIT_INO.
const hostPIDs = "pid:[4026531836]"

// held is a holder, and what it holds by which means.
type held struct {
	process      attrib.Process
	open, mapped nodes
}

// descriptors looks at the descriptors of every process, and of those that began meanwhile: a holder may have
// forked, and ended, before its turn came.
func (s *search) descriptors() {
	s.pids = s.list()
	s.wait(s.send(s.pids, s.lookAtLinks), "descriptors")
	if !s.going() {
		return
	}
	late := slices.DeleteFunc(s.list(), func(pid int) bool {
		_, seen := slices.BinarySearch(s.pids, pid)
		return seen
	})
	s.wait(s.send(late, s.lookAtLinks), "descriptors")
	s.pids = append(s.pids, late...)
}

func (s *search) list() []int {
	pids, err := listPIDs(s.proc)
	if err != nil {
		s.trouble("%v", err)
	}
	return pids
}

// mappings looks at the memory of every process: for files mapped, and a holder's for its environment. A process
// that hangs in the driver hangs whoever looks at its memory, and is most often a holder: those get workers of their
// own.
func (s *search) mappings() {
	if !s.going() {
		s.trouble("time was up: no mappings were read")
		return
	}
	s.mu.Lock()
	known := slices.Sorted(maps.Keys(s.found))
	s.mu.Unlock()
	others := slices.DeleteFunc(s.pids, func(pid int) bool {
		_, is := slices.BinarySearch(known, pid)
		return is
	})
	holders, rest := s.send(known, s.lookAgain), s.send(others, s.lookAtMaps)
	s.memory = []*round{holders, rest}
	s.wait(holders, "mappings and environments of holders")
	s.wait(rest, "mappings")
}

func (s *search) result() attrib.Scan {
	s.mu.Lock()
	defer s.mu.Unlock()
	scan := attrib.Scan{Holdings: []attrib.Holding{}, Looked: s.looked}
	for _, pid := range slices.Sorted(maps.Keys(s.found)) {
		h := s.found[pid]
		scan.Holdings = append(scan.Holdings, holding(h.process, h.open, h.mapped))
	}
	if s.looked == 0 {
		s.trouble("no process could be looked into")
	}
	scan.Partial = s.partial()
	for _, r := range s.memory {
		for i := range r.at {
			if pid := int(r.at[i].Load()); pid != 0 {
				scan.Hung = append(scan.Hung, attrib.Instance{PID: pid, Start: s.found[pid].process.Start})
			}
		}
	}
	return scan
}

// skips reports a process whose memory must not be read, and says so. One of which only the PID is known is skipped by
// that.
func (s *search) skips(pid int, start time.Duration) bool {
	is := func(i attrib.Instance) bool { return i.PID == pid && (i.Start == start || i.Start == 0 || start == 0) }
	if !slices.ContainsFunc(s.skip, is) {
		return false
	}
	if s.first(pid) {
		s.trouble("process %d: an earlier read of its memory still hangs", pid)
	}
	return true
}

// lookAtLinks looks at a process's descriptors; only one that seems to have a device node among them, or none at
// all, is opened and read as a whole.
// Threat: a PID is reused between two looks. The open folder of descriptors keeps naming one process.
func (s *search) lookAtLinks(r *reader, pid int) {
	seems, links := false, 0
	err := s.at(pid, "fd", unix.O_DIRECTORY, func(fd int) error {
		return r.links(fd, s.more(&links), func(target []byte) { seems = seems || mayBeNode(target) })
	})
	if gone(err) {
		return
	}
	if !s.refused(pid, err) {
		s.mu.Lock()
		s.looked++
		s.mu.Unlock()
	}
	if seems || links == 0 && s.leaderEnded(pid) {
		s.confirm(r, pid, false)
	}
}

// lookAtMaps does the same with the files that it has mapped.
func (s *search) lookAtMaps(r *reader, pid int) {
	if s.skips(pid, 0) {
		return
	}
	seems, lines := false, 0
	err := s.at(pid, "maps", 0, func(fd int) error {
		return r.lines(fd, s.going, func(line []byte) {
			lines++
			seems = seems || mayBeNode(line)
		})
	})
	s.refused(pid, err)
	if seems || lines == 0 && s.leaderEnded(pid) {
		s.confirm(r, pid, true)
	}
}

// lookAgain adds to what is known of a holder.
func (s *search) lookAgain(r *reader, pid int) { s.confirm(r, pid, true) }

// at opens a file or folder of a process. Threat: the proc folder is the kernel's, and a link in it would lead to
// what a process chose: none is followed.
func (s *search) at(pid int, name string, flags int, read func(fd int) error) error {
	fd, err := unix.Openat(int(s.dir.Fd()), strconv.Itoa(pid)+"/"+name,
		unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|flags, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(fd)
	return read(fd)
}

// more counts the links read of one process.
func (s *search) more(links *int) func() bool {
	return func() bool {
		*links++
		return *links <= maxDescriptors && s.going()
	}
}

// leaderEnded reports whether the first thread of a process has ended: it then shows neither descriptors nor
// mappings, whatever the others hold. Threads of the kernel show none either.
func (s *search) leaderEnded(pid int) bool {
	is := false
	_ = s.at(pid, "stat", 0, func(fd int) error {
		text := make([]byte, maxStat)
		n, err := unix.Read(fd, text)
		if err != nil {
			return err
		}
		st, err := parseStat(string(text[:n]))
		is = err == nil && st.state == ended
		return err
	})
	return is
}

// refused notes an error that kept the search from looking into a process, unless the process has ended or the
// time is up, which is noted elsewhere. Process 1 is the init of the machine or container: where a sandbox keeps even
// root from it, that is no reason to trust a search less.
func (s *search) refused(pid int, err error) bool {
	if err == nil || gone(err) || !s.going() {
		return false
	}
	denied := errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
	if pid == 1 && denied || !s.first(pid) {
		return true
	}
	s.trouble("process %d: %v", pid, err)
	return true
}

// first reports whether this is the first trouble with a process: one is enough to say.
func (s *search) first(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.troubled[pid]
	s.troubled[pid] = true
	return !before
}

// confirm reads a process that seems to be a holder as a whole, and keeps it if it is one. Deep is with what its
// memory holds.
func (s *search) confirm(r *reader, pid int, deep bool) {
	h, err := s.read(r, pid, deep)
	if errors.Is(err, errEnded) {
		h, err = s.read(r, pid, deep)
	}
	if gone(err) {
		return
	}
	s.refused(pid, err)
	if h.open.over || h.mapped.over {
		s.trouble("process %d: more than %d devices", pid, maxMinors)
	}
	if h.open.any() || h.mapped.any() {
		s.keep(pid, h)
	}
}

// read reads a process from one open folder. One that cannot be told who it is, is a holder all the same; so is
// one of which not everything could be read.
func (s *search) read(r *reader, pid int, deep bool) (held, error) {
	f, err := openFolder(s.proc, pid)
	if err != nil {
		return held{}, err
	}
	defer f.close()
	p, f, err := f.identify(pid)
	if errors.Is(err, errEnded) {
		return held{}, err
	}
	if err != nil {
		p = attrib.Process{PID: pid, Why: err.Error()}
	}
	h := held{process: p}
	in, links := place{s.dev, f.foreign(s.mounts)}, 0
	var failed, more error
	if h.open, failed = f.open(r, in, s.more(&links)); deep && !s.skips(pid, p.Start) {
		h.mapped, more = f.mapped(r, in, s.going)
		h.process.EnvJobID = f.environment()
	}
	if p.Why == "" {
		err = f.stillOf(p)
	} else {
		_, err = f.stat()
	}
	if err != nil { // what was read may be another's
		return held{}, err
	}
	return h, errors.Join(ofLiving(failed), ofLiving(more))
}

// ofLiving drops an error that says "ended" of a process that has not: a thread has, or nothing was there.
func ofLiving(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

// keep adds a holder, or what a second look at one found.
func (s *search) keep(pid int, h held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.found[pid]
	if !known && len(s.found) == maxHoldings {
		s.trouble("more than %d holders", maxHoldings)
		return
	}
	if known && before.process.Start == h.process.Start {
		h.open = h.open.with(before.open)
	}
	s.found[pid] = h
}
