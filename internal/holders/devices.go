package holders

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"bookend/internal/slurm"
)

// Bounds of one scan: it runs at the end of every task, in a second.
const (
	maxProcesses = 1 << 16
	maxLinks     = 100_000 // about 0.2 s
	maxOpen      = 64
)

// ErrPartial says that a scan stopped at a bound, or could not look into a process of the job: it may have missed
// some.
var ErrPartial = errors.New("not every process was looked into")

// Open is a process that has GPUs open.
type Open struct {
	PID     int
	Name    string        // comm: the process chose it
	Start   time.Duration // CLOCK_BOOTTIME, to the tick
	Devices []string      // names below dev, sorted: "nvidia0"
}

// OpenDevices lists the job's processes that have a GPU's device node below dev (/dev) open, in order of PID,
// without the caller and without Slurm's own. It needs no privilege for processes of the caller's user.
//
// A process is the job's when its cgroup names in. One whose cgroup names no job is, when it runs under uid and
// its environment names in.ID: by uid alone it could be of any job of that user. An open descriptor proves a
// holder, not memory. With ErrPartial the list holds what was found.
func OpenDevices(proc, dev string, uid uint32, in slurm.Owner) ([]Open, error) {
	pids, err := listPIDs(proc)
	if err != nil && !errors.Is(err, ErrPartial) {
		return nil, err
	}
	s := scan{dev: dev, uid: uid, in: in, links: maxLinks, partial: err}
	for _, pid := range pids {
		s.look(proc, pid)
	}
	return s.found, s.partial
}

// listPIDs lists the processes but the caller, sorted; with ErrPartial only the first maxProcesses of them.
func listPIDs(proc string) ([]int, error) {
	folder, err := os.Open(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer folder.Close()
	var pids []int
	err = newReader().names(int(folder.Fd()), func(name []byte) bool {
		pid, err := strconv.Atoi(string(name))
		if err != nil || pid <= 0 || pid == os.Getpid() {
			return true
		}
		if len(pids) == maxProcesses {
			return false
		}
		pids = append(pids, pid)
		return true
	})
	slices.Sort(pids)
	if errors.Is(err, errBound) {
		err = fmt.Errorf("more than %d processes: %w", maxProcesses, ErrPartial)
	}
	return pids, err
}

type scan struct {
	dev     string
	uid     uint32
	in      slurm.Owner
	links   int // links that may still be read
	found   []Open
	partial error
	reader  *reader
}

func (s *scan) look(proc string, pid int) {
	f, err := openFolder(proc, pid)
	if err != nil {
		return // ended
	}
	defer f.close()
	st, err := f.stat()
	if err != nil {
		return
	}
	f = f.ask(st.state)
	if !s.ours(f) {
		return
	}
	devices, err := s.devices(f)
	if err != nil && !gone(err) {
		s.partial = fmt.Errorf("process %d: %w: %v", pid, ErrPartial, err)
	}
	if len(devices) == 0 {
		return
	}
	if len(s.found) == maxOpen {
		s.partial = fmt.Errorf("more than %d: %w", maxOpen, ErrPartial)
		return
	}
	s.found = append(s.found, Open{PID: pid, Name: st.name, Start: st.start, Devices: devices})
}

func (s *scan) ours(f folder) bool {
	owner, err := f.owner()
	switch {
	case err != nil || owner.Conflict != "" || owner.Daemon:
		return false
	case owner.Found():
		return owner.SLUID != "" && owner.SLUID == s.in.SLUID || owner.ID != 0 && owner.ID == s.in.ID
	case s.in.ID == 0:
		return false
	}
	uid, err := f.uid()
	return err == nil && uid == s.uid && f.environment() == s.in.ID
}

// devices returns the GPU device nodes among a process's descriptors, and takes what it reads from what may still
// be read.
func (s *scan) devices(f folder) ([]string, error) {
	var devices []string
	more := func() bool {
		s.links--
		return s.links >= 0
	}
	if s.reader == nil {
		s.reader = newReader()
	}
	err := f.links(s.reader, more, func(target []byte) {
		if device, ok := parseDevice(string(target), s.dev); ok {
			devices = append(devices, device)
		}
	})
	if s.links = max(0, s.links); errors.Is(err, errBound) {
		err = fmt.Errorf("%d entries read", maxLinks)
	}
	slices.Sort(devices)
	return slices.Compact(devices), err
}
