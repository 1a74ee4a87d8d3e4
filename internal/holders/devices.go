package holders

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

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

func listPIDs(proc string) ([]int, error) {
	folder, err := os.Open(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(maxProcesses)
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	if len(names) == maxProcesses {
		return pids, fmt.Errorf("list processes: %w", ErrPartial)
	}
	return pids, nil
}

type scan struct {
	dev     string
	uid     uint32
	in      slurm.Owner
	links   int // links that may still be read
	found   []Open
	partial error
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

// devices returns the GPU device nodes among a process's descriptors. Threads share one table, so one is asked.
// Threat: opening an entry would open the device, or hang on a pipe or a dead file system; only links are read.
func (s *scan) devices(f folder) ([]string, error) {
	dir, err := f.root.Open(path.Join(f.thread, "fd"))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := s.names(dir)
	var devices []string
	buf := make([]byte, unix.PathMax)
	for _, fd := range names {
		n, err := unix.Readlinkat(int(dir.Fd()), fd, buf)
		if err != nil {
			continue // closed meanwhile
		}
		if device, ok := parseDevice(string(buf[:n]), s.dev); ok {
			devices = append(devices, device)
		}
	}
	slices.Sort(devices)
	return slices.Compact(devices), err
}

// names lists a folder and takes its entries from what may still be read.
func (s *scan) names(dir *os.File) ([]string, error) {
	names, err := dir.Readdirnames(s.links + 1)
	if errors.Is(err, io.EOF) { // empty
		return nil, nil
	}
	if len(names) > s.links {
		names, err = names[:s.links], fmt.Errorf("%d entries read", maxLinks)
	}
	s.links -= len(names)
	return names, err
}
