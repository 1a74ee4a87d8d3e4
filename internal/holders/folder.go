package holders

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"bookend/internal/slurm"
)

// Sizes beyond which a file of /proc/PID is not believed or not read on.
const (
	maxStat    = 4 << 10   // one line of 52 numbers and a name
	maxStatus  = 16 << 10  // CPU and memory masks of large machines
	maxCgroup  = 64 << 10  // 16 hierarchies of a PATH_MAX each
	maxEnviron = 256 << 10 // Slurm's variables come late in a large environment, but not later than that
	maxThreads = 4096      // among which one that lives is looked for
)

const ended = "Z" // the state of a process or thread that has ended

// errTooLarge says that a file was longer than its bound; what was read up to there comes with it.
var errTooLarge = errors.New("longer than expected")

// folder is an open /proc/PID. Threat: a PID is reused between two looks. An open folder keeps naming the process
// it was opened for: once that has ended, everything below it is gone.
type folder struct {
	root   *os.Root
	thread string // "task/TID" of the thread to ask instead of the first, which has ended; or empty
}

func openFolder(proc string, pid int) (folder, error) {
	root, err := os.OpenRoot(filepath.Join(proc, strconv.Itoa(pid)))
	return folder{root: root}, err
}

func (f folder) close() { f.root.Close() }

// ask picks the thread that answers for the process, given the state of the first. One that has ended (Z) shows
// no descriptors, no environment and, on cgroup v1, no cgroup, though the others still hold all of them.
func (f folder) ask(state string) folder {
	if state != ended {
		return f
	}
	tasks, err := f.root.Open("task")
	if err != nil {
		return f
	}
	defer tasks.Close()
	names, _ := tasks.Readdirnames(maxThreads)
	for _, tid := range names {
		thread := path.Join("task", tid)
		text, err := f.text(path.Join(thread, "stat"), maxStat)
		if err != nil {
			continue
		}
		if st, err := parseStat(text); err == nil && st.state != ended {
			f.thread = thread
			return f
		}
	}
	return f
}

func (f folder) text(name string, max int64) (string, error) {
	file, err := f.root.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, max+1))
	if err == nil && int64(len(text)) > max {
		return string(text[:max]), fmt.Errorf("read %s: %w: %d bytes", name, errTooLarge, max)
	}
	return string(text), err
}

func (f folder) stat() (stat, error) {
	text, err := f.text("stat", maxStat)
	if err != nil {
		return stat{}, err
	}
	return parseStat(text)
}

func (f folder) uid() (uint32, error) {
	text, err := f.text("status", maxStatus)
	if err != nil {
		return 0, err
	}
	return parseUID(text)
}

func (f folder) owner() (slurm.Owner, error) {
	text, err := f.text(path.Join(f.thread, "cgroup"), maxCgroup)
	if err != nil {
		return slurm.Owner{}, err
	}
	return slurm.OwnerOfCgroup(text), nil
}

// environment returns the job id in the process's initial environment, 0 when there is none or it cannot be read:
// kernel threads and zombies have no environment, and even root may be refused another's.
func (f folder) environment() slurm.JobID {
	text, err := f.text(path.Join(f.thread, "environ"), maxEnviron)
	if err != nil && !errors.Is(err, errTooLarge) {
		return 0
	}
	return parseEnviron(text, err != nil)
}

// gone reports whether an error says that there is no such process (any more).
func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) }
