package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Alive reports whether an abandoned child still exists: process pid in proc ("/proc") that started at startTicks. A
// zombie counts as dead unless one of its threads lives on: a process killed with a thread stuck in a driver looks like
// a zombie from outside. If /proc gives no answer, the child counts as alive: to start another would be the worse
// mistake. If startTicks is 0 (unknown), it counts as dead: its PID may belong to another process by now.
func Alive(proc string, pid int, startTicks uint64) bool {
	if pid <= 0 || startTicks == 0 {
		return false
	}
	st, err := readStat(proc, pid)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return false
	}
	if err != nil {
		return true
	}
	return st.Ticks == startTicks && !st.dead()
}

func AliveIn(proc string) func(pid int, startTicks uint64) bool {
	return func(pid int, startTicks uint64) bool { return Alive(proc, pid, startTicks) }
}

// Uninterruptible reports a live process with a thread that no signal wakes: stuck in a driver, or briefly on disk.
func Uninterruptible(proc string, pid int, startTicks uint64) bool {
	if !Alive(proc, pid, startTicks) {
		return false
	}
	tasks := filepath.Join(proc, strconv.Itoa(pid), "task")
	// Threat: none, /proc itself. The process is root's own child, and reading these files takes none of its locks.
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return false
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if st, err := readStat(tasks, tid); err == nil && st.State == 'D' {
			return true
		}
	}
	return false
}

// Parent returns the parent of a process, and the start time of the process itself.
func Parent(proc string, pid int) (parent int, startTicks uint64, err error) {
	st, err := readStat(proc, pid)
	return st.Parent, st.Ticks, err
}

// Stat is the content of /proc/PID/stat.
type Stat struct {
	Name     string // chosen by the process
	State    byte
	Parent   int
	Flags    uint64
	Threads  int
	Ticks    uint64 // start time
	Terminal bool   // Terminal reports a controlling terminal, which a daemon does not have
}

func (s Stat) dead() bool { return (s.State == 'Z' || s.State == 'X') && s.Threads <= 1 }

func readStat(proc string, pid int) (st Stat, err error) {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err == nil {
		defer f.Close()
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(f, 4<<10)); err == nil { // 52 numbers and a name
			st, err = ParseStat(string(text))
		}
	}
	if err != nil {
		return Stat{}, fmt.Errorf("read start of process %d: %w", pid, err)
	}
	return st, nil
}

// Positions of the fields in proc(5), counted from the state, field 3.
const (
	fieldParent   = 4 - 3
	fieldTerminal = 7 - 3
	fieldFlags    = 9 - 3
	fieldThreads  = 20 - 3
	fieldStart    = 22 - 3
)

// ParseStat parses a stat line. Threat: the process chose its name, which may hold brackets, blanks, newlines and a
// forged rest of the line; only what follows the last bracket comes from the kernel.
func ParseStat(text string) (Stat, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("parse stat: no name in %.80q", text)
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) <= fieldStart || len(fields[0]) != 1 {
		return Stat{}, fmt.Errorf("parse stat: %d fields after the name", len(fields))
	}
	parent, errParent := strconv.ParseUint(fields[fieldParent], 10, 31)
	flags, errFlags := strconv.ParseUint(fields[fieldFlags], 10, 64)
	threads, errThreads := strconv.Atoi(fields[fieldThreads])
	ticks, errTicks := strconv.ParseUint(fields[fieldStart], 10, 64)
	if err := errors.Join(errParent, errFlags, errThreads, errTicks); err != nil {
		return Stat{}, fmt.Errorf("parse stat: %w", err)
	}
	terminal := fields[fieldTerminal] != "0"
	return Stat{text[open+1 : end], fields[0][0], int(parent), flags, threads, ticks, terminal}, nil
}

// ParseStatus returns the real uid in the text of /proc/PID/status, and whether the process has a PID in another
// namespace too: NSpid then has several numbers. Linux before 4.1 has no NSpid.
func ParseStatus(text string) (uid uint32, otherPIDs bool, err error) {
	otherPIDs = len(strings.Fields(statusLine(text, "NSpid"))) > 1
	line := statusLine(text, "Uid")
	if fields := strings.Fields(line); len(fields) == 4 {
		if uid, err := strconv.ParseUint(fields[0], 10, 32); err == nil {
			return uint32(uid), otherPIDs, nil
		}
	}
	return 0, otherPIDs, fmt.Errorf("parse status: Uid line %.80q", line)
}

// statusLine returns the value of a key in the text of /proc/PID/status. Threat: a kernel may not escape the name in
// the first line, which lets a process write lines of its own. The last line with the key is the kernel's.
func statusLine(text, key string) string {
	at := strings.LastIndex(text, "\n"+key+":")
	if at < 0 {
		return ""
	}
	line, _, _ := strings.Cut(text[at+len(key)+len("\n:"):], "\n")
	return line
}
