package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/cluster"
)

// holder is a process that has the card open now, as the kernel shows it to root.
type holder struct {
	PID   int
	Start string // field 22 of stat: tells a pid used again
	UID   uint32
	Name  string
	Job   cluster.JobID // whose job started it, "" for none
}

func (h holder) String() string {
	if h.Job == "" {
		return fmt.Sprintf("process %d (%s)", h.PID, h.Name)
	}
	return fmt.Sprintf("process %d (%s) of job %s", h.PID, h.Name, h.Job)
}

// card is the GPU that the story is about.
type card struct {
	node string // device node
	real bool

	python string // with PyTorch, for jobs on a real card; empty without
}

// holders looks for processes with the card open. Root's are services of the node, not jobs.
func (c card) holders() ([]holder, error) {
	var want unix.Stat_t
	if err := unix.Stat(c.node, &want); err != nil {
		return nil, fmt.Errorf("look at %q: %w", c.node, err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []holder
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !c.open(pid, want) {
			continue
		}
		if h, ok := readHolder(pid); ok && h.UID != 0 {
			found = append(found, h)
		}
	}
	return found, nil
}

// open reports whether a process has the device node open. Nodes of fake GPUs may share their number with
// others', so there the file itself counts; real ones may have a file in each container.
func (c card) open(pid int, want unix.Stat_t) bool {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		var is unix.Stat_t
		if unix.Stat(link, &is) != nil || is.Mode&unix.S_IFMT != want.Mode&unix.S_IFMT {
			continue
		}
		if is.Dev == want.Dev && is.Ino == want.Ino || c.real && is.Rdev == want.Rdev {
			return true
		}
	}
	return false
}

func readHolder(pid int) (holder, bool) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	var owner unix.Stat_t
	stat, err := os.ReadFile(dir + "stat")
	if err != nil || unix.Stat(dir, &owner) != nil {
		return holder{}, false
	}
	name, rest, _ := cutLast(string(stat), ")")
	_, name, _ = strings.Cut(name, "(")
	fields := strings.Fields(rest) // from field 3 on
	if len(fields) < 20 || fields[0] == "Z" {
		return holder{}, false
	}
	h := holder{PID: pid, Start: fields[19], UID: owner.Uid, Name: name}
	environ, _ := os.ReadFile(dir + "environ")
	for setting := range strings.SplitSeq(string(environ), "\x00") {
		if id, ok := strings.CutPrefix(setting, "SLURM_JOB_ID="); ok {
			h.Job = cluster.JobID(id)
		}
	}
	return h, true
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// stop ends a process, firmly where asking does not help, and waits until it is gone.
func (h holder) stop() error {
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if now, ok := readHolder(h.PID); !ok || now.Start != h.Start {
			return nil
		}
		_ = unix.Kill(h.PID, signal) // it may have ended by itself
		for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if now, ok := readHolder(h.PID); !ok || now.Start != h.Start {
				return nil
			}
		}
	}
	return fmt.Errorf("%v does not end", h)
}

// both returns those of a that are still in b.
func both(a, b []holder) []holder {
	return slices.DeleteFunc(slices.Clone(a), func(h holder) bool { return !slices.Contains(b, h) })
}

// of returns those that a job started.
func of(all []holder, job cluster.JobID) []holder {
	return slices.DeleteFunc(slices.Clone(all), func(h holder) bool { return h.Job != job })
}

func list(all []holder) string {
	if len(all) == 0 {
		return "nobody"
	}
	words := make([]string, len(all))
	for i, h := range all {
		words[i] = h.String()
	}
	return strings.Join(words, ", ")
}
