package child

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Alive says whether an abandoned child is still there: the process pid under proc ("/proc") that started at
// startTicks. A zombie counts as dead, but not while a thread of it lives on: a process killed with one thread
// stuck in a driver looks like a zombie from outside. When /proc gives no answer the child counts as alive,
// since starting another beside it is the worse mistake; when startTicks is 0, unknown, it counts as dead,
// since its number may belong to anybody by now.
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
	return st.ticks == startTicks && !st.dead()
}

// Uninterruptible reports whether a thread of a process that is Alive sleeps in the kernel so that no signal wakes
// it: what a child stuck in a driver does, and one that waits for a disk for a moment.
func Uninterruptible(proc string, pid int, startTicks uint64) bool {
	if !Alive(proc, pid, startTicks) {
		return false
	}
	tasks := filepath.Join(proc, strconv.Itoa(pid), "task")
	// Threat: none, /proc itself; the process is root's own child, and these files take none of its locks.
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return false
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if st, err := readStat(tasks, tid); err == nil && st.state == 'D' {
			return true
		}
	}
	return false
}

// Orphaned reports whether a process that is Alive has lost its parent: whoever started it as parent has ended.
func Orphaned(proc string, pid int, startTicks uint64, parent int) bool {
	st, err := readStat(proc, pid)
	return err == nil && st.ticks == startTicks && !st.dead() && st.parent != parent
}

// Parent reads the parent of a process, and when the process itself started.
func Parent(proc string, pid int) (parent int, startTicks uint64, err error) {
	st, err := readStat(proc, pid)
	return st.parent, st.ticks, err
}

// stat is what is needed of /proc/PID/stat.
type stat struct {
	state   byte
	parent  int
	threads int
	ticks   uint64
}

func (s stat) dead() bool { return (s.state == 'Z' || s.state == 'X') && s.threads <= 1 }

func readStat(proc string, pid int) (stat, error) {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, fmt.Errorf("read start of process %d: %w", pid, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4<<10)) // 52 numbers and a name
	if err != nil {
		return stat{}, fmt.Errorf("read start of process %d: %w", pid, err)
	}
	return parseStat(b)
}

// Places of the fields in proc(5), counted from the state, field 3: the name before it may hold anything,
// brackets, blanks and newlines too, so the line is cut at the last bracket.
const (
	fieldParent  = 4 - 3
	fieldThreads = 20 - 3
	fieldStart   = 22 - 3
)

func parseStat(b []byte) (stat, error) {
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= fieldStart || len(fields[0]) != 1 {
		return stat{}, fmt.Errorf("parse stat: %d fields after the name", len(fields))
	}
	parent, err := strconv.Atoi(string(fields[fieldParent]))
	if err != nil || parent < 0 {
		return stat{}, fmt.Errorf("parse stat: parent %.20q", fields[fieldParent])
	}
	threads, err := strconv.Atoi(string(fields[fieldThreads]))
	if err != nil {
		return stat{}, fmt.Errorf("parse stat: threads: %w", err)
	}
	ticks, err := strconv.ParseUint(string(fields[fieldStart]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("parse stat: start time: %w", err)
	}
	return stat{state: fields[0][0], parent: parent, threads: threads, ticks: ticks}, nil
}
