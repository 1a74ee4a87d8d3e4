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
	maxStatus  = 1 << 20   // up to 65536 groups, and CPU and memory masks of large machines
	maxCgroup  = 64 << 10  // 16 hierarchies of a PATH_MAX each
	maxEnviron = 256 << 10 // Slurm's variables come late in a large environment, but not later than that
	maxThreads = 4096      // among which one that lives is looked for
	maxExe     = 200       // bytes of a program's path
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

// cgroup returns the text that names the process's cgroups.
func (f folder) cgroup() (string, error) { return f.text(path.Join(f.thread, "cgroup"), maxCgroup) }

func (f folder) owner() (slurm.Owner, error) {
	text, err := f.cgroup()
	if err != nil {
		return slurm.Owner{}, err
	}
	return slurm.OwnerOfCgroup(text), nil
}

// exe returns what the process runs, nothing where that may not be asked. Threat: the process may choose any path,
// pages long; its end is kept, which has the program's name.
func (f folder) exe() string {
	target, err := f.root.Readlink(path.Join(f.thread, "exe"))
	if err != nil {
		return ""
	}
	if len(target) > maxExe {
		return "..." + target[len(target)-maxExe:]
	}
	return target
}

// foreign reports whether the process has another root or mount namespace than mounts names, as far as it may be
// asked. One that may not is taken for foreign: then its paths are given the wider meaning.
func (f folder) foreign(mounts string) bool {
	root, err := f.root.Readlink(path.Join(f.thread, "root"))
	if err != nil && !gone(err) || err == nil && root != "/" {
		return true
	}
	own, err := f.root.Readlink(path.Join(f.thread, mountLink))
	return err != nil && !gone(err) || err == nil && own != mounts
}

// mountLink is the link of /proc/PID that names the process's mount namespace.
const mountLink = "ns/mnt"

// open returns the device nodes among the process's descriptors. Threads share one table, so one is asked.
func (f folder) open(r *reader, in place, more func() bool) (nodes, error) {
	var found nodes
	err := f.links(r, more, func(target []byte) { found.add(target, in) })
	return found, err
}

func (f folder) links(r *reader, more func() bool, visit func(target []byte)) error {
	dir, err := f.root.Open(path.Join(f.thread, "fd"))
	if err != nil {
		return err
	}
	defer dir.Close()
	return r.links(int(dir.Fd()), more, visit)
}

// mapped returns the device nodes among the files that the process has mapped.
func (f folder) mapped(r *reader, in place, more func() bool) (nodes, error) {
	file, err := f.root.Open(path.Join(f.thread, "maps"))
	if err != nil {
		return nodes{}, err
	}
	defer file.Close()
	var found nodes
	err = r.lines(int(file.Fd()), more, func(line []byte) { found.add(parseMap(line), in) })
	return found, err
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
