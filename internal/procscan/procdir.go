package procscan

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
)

// Sizes of files in /proc/PID. A longer file is not trusted, or not read further.
const (
	maxStat    = 4 << 10   // one line of 52 numbers and a name
	maxStatus  = 1 << 20   // up to 65536 groups, and CPU and memory masks of large machines
	maxCgroup  = 64 << 10  // 16 hierarchies of a PATH_MAX each
	maxEnviron = 256 << 10 // Slurm's variables come late in a large environment, but not later than that
	maxThreads = 4096      // searched for one that lives
	maxExe     = 200       // bytes kept of a program's path
	maxLine    = 64 << 10  // of maps: the path may be a page, each byte of it escaped to four
)

const ended = 'Z' // the state of a process or thread that has ended

var (
	// errTooLarge means that a file was longer than its bound. The text up to the bound is returned with it.
	errTooLarge = errors.New("longer than expected")
	// errBound means that the caller stopped reading before the end of the entries or lines.
	errBound = errors.New("stopped at a bound")
)

// procDir is an open directory /proc/PID. Threat: PIDs are reused; it keeps naming the process it was opened for.
type procDir struct {
	fd     int
	thread string // "task/TID" of the thread to ask instead of the first, which has ended; or empty
}

func openProcDir(proc string, pid int) (procDir, error) {
	name := filepath.Join(proc, strconv.Itoa(pid))
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	return procDir{fd: fd}, err
}

func (f procDir) close() { unix.Close(f.fd) }

// at opens a file or directory of the process. Threat: a process chooses where links lead; none is followed.
func (f procDir) at(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(f.fd, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|flags, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// ask picks the thread to read from, given the state of the process's first thread. A thread that has ended (Z) shows
// no descriptors, no environment and, on cgroup v1, no cgroup, although the other threads still hold them. A thread
// that is ending is picked only if no other thread lives on.
func (f procDir) ask(first child.Stat) (asked procDir, answer child.Stat) {
	if asked, answer = f.process(), first; goesOn(first) {
		return asked, answer
	}
	_ = f.eachThread(func(thread procDir) error {
		st, err := thread.stat()
		switch {
		case err != nil || st.State == ended:
		case goesOn(st):
			asked, answer = thread, st
			return errBound
		case answer.State == ended:
			asked, answer = thread, st
		}
		return nil
	})
	return asked, answer
}

// eachThread calls visit for each thread, until it returns an error other than that the thread is gone.
func (f procDir) eachThread(visit func(thread procDir) error) error {
	tasks, err := f.at("task", unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer tasks.Close()
	names, err := tasks.Readdirnames(maxThreads)
	for _, tid := range names {
		if err := visit(procDir{f.fd, path.Join("task", tid)}); err != nil && !gone(err) {
			return err
		}
	}
	switch {
	case len(names) == maxThreads:
		return fmt.Errorf("more than %d threads", maxThreads)
	case err == io.EOF:
		return nil
	}
	return err
}

// successor returns the process with a living thread to read from, if the present thread has ended or is ending.
func (f procDir) successor() (next procDir, found bool) {
	if asked, err := f.stat(); err == nil && goesOn(asked) {
		return f, false
	}
	first, err := f.process().stat()
	if err != nil {
		return f, false
	}
	next, _ = f.ask(first)
	return next, next.thread != f.thread
}

// gap returns nil if an error means that nothing was missed: one descriptor or thread has ended, or all threads have.
// If the process is gone it returns errEnded. The kernel answers EACCES, even to root, if a link's process is gone.
func (f procDir) gap(err error) error {
	if err == nil {
		return nil
	}
	first, now := f.process().stat()
	if gone(now) {
		return errEnded
	}
	_, answer := f.ask(first)
	if gone(err) || now == nil && answer.State == ended { // a zombie has nothing open or mapped
		return nil
	}
	return err
}

func (f procDir) text(name string, max int64) (string, error) {
	file, err := f.at(path.Join(f.thread, name), 0)
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

func (f procDir) stat() (child.Stat, error) {
	text, err := f.text("stat", maxStat)
	if err != nil {
		return child.Stat{}, err
	}
	return child.ParseStat(text)
}

// process returns the directory of the process itself, whichever thread is read.
func (f procDir) process() procDir { return procDir{fd: f.fd} }

func (f procDir) status() (uid uint32, otherPIDs bool, err error) {
	text, err := f.process().text("status", maxStatus)
	if err != nil {
		return 0, false, err
	}
	return child.ParseStatus(text)
}

// mapsAlone reports whether the process's user namespace maps this user by itself, as the kernel permits anyone to map
// himself: then it is the user's own making, and the UID is the user's.
// Threat: unshare -Up, by which a process could pass for a container that any user may have started.
func (f procDir) mapsAlone(uid uint32) bool {
	text, err := f.process().text("uid_map", maxStat)
	for line := range strings.Lines(text) {
		ids := strings.Fields(line) // the first inside, the first outside, and how many
		if err == nil && len(ids) == 3 && ids[1] == fmt.Sprint(uid) && ids[2] == "1" {
			return true
		}
	}
	return false
}

func (f procDir) link(name string) (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(f.fd, path.Join(f.thread, name), target)
	return string(target[:max(0, n)]), err
}

// exe returns the program's path, empty if unreadable. Threat: the process may choose one pages long; its end is kept.
func (f procDir) exe() string {
	target, err := f.link("exe")
	if err != nil {
		return ""
	}
	if len(target) > maxExe {
		return "..." + target[len(target)-maxExe:]
	}
	return target
}

const mountLink = "ns/mnt"

// foreign reports another root or mount namespace than mounts, or unreadable ones: more paths then count as nodes.
func (f procDir) foreign(mounts string) bool {
	root, err := f.link("root")
	if err != nil && !gone(err) || err == nil && root != "/" {
		return true
	}
	own, err := f.link(mountLink)
	return err != nil && !gone(err) || err == nil && own != mounts
}

// environ returns the initial environment, up to a bound.
func (f procDir) environ() (string, error) {
	text, err := f.text("environ", maxEnviron)
	if errors.Is(err, errTooLarge) {
		return wholeEntries(text), nil
	}
	return text, err
}

// gone reports whether an error means that the process, thread or descriptor no longer exists.
func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) }

// descriptors calls visit with the target of each descriptor while going reports true. Threads share one table, so one
// is read. A target is valid only during the call. Unreadable links are skipped and an error is returned at the end;
// gone reports true for it if they were only closed meanwhile. Threat: opening an entry would open the device, or hang
// on a pipe or a dead file system, and so would a stat of its target; only the links are read.
func (f procDir) descriptors(going func() bool, visit func(target []byte)) error {
	dir, err := f.at(path.Join(f.thread, "fd"), unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	var failed error
	fd, target := int(dir.Fd()), make([]byte, unix.PathMax)
	for {
		batch, err := dir.Readdirnames(1024)
		for _, name := range batch {
			n, err := unix.Readlinkat(fd, name, target)
			switch {
			case err == nil:
				visit(target[:n])
			case failed == nil || !gone(err): // a link that has only vanished does not replace an error
				failed = fmt.Errorf("read link %.20q: %w", name, err)
			}
			if !going() {
				return errBound
			}
		}
		switch {
		case err == io.EOF:
			return failed
		case err != nil:
			return err
		}
	}
}

// maps calls visit with each line of the maps file while going reports true. The line is valid only during the call.
func (f procDir) maps(going func() bool, visit func(line []byte)) error {
	file, err := f.at(path.Join(f.thread, "maps"), 0)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if visit(lines.Bytes()); !going() {
			return errBound
		}
	}
	return lines.Err()
}
