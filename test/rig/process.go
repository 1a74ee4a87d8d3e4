package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Process is one line of /proc. PID and Start together name a process for good: PIDs are used again.
type Process struct {
	PID, Parent int
	State       string // of its first thread, "D" for one that sleeps in the kernel; "" for none
	Start       uint64 // ticks since boot
	UID         uint32
	Terminal    bool // a person's shell or program
}

// ReadProcess reads a process, as far as it is there.
func ReadProcess(pid int) (p Process) {
	p.PID = pid
	text, _ := os.ReadFile(p.file("stat"))
	// The name, in parentheses, may hold anything; the fields after the last one are proc(5)'s 3 and up.
	f := strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])
	if len(f) < 20 {
		return p
	}
	p.State, p.Terminal = f[0], f[4] != "0"
	p.Parent, _ = strconv.Atoi(f[1])
	p.Start, _ = strconv.ParseUint(f[19], 10, 64)
	// The folder's owner would not do: it is root for an undumpable process.
	status, _ := os.ReadFile(p.file("status"))
	_, uid, _ := strings.Cut(string(status), "\nUid:")
	_, _ = fmt.Sscan(uid, &p.UID)
	return p
}

// Processes are those of this machine that are so.
func Processes(are func(Process) bool) (all []Process) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, e := range entries {
		pid, _ := strconv.Atoi(filepath.Base(e))
		if p := ReadProcess(pid); p.State != "" && are(p) {
			all = append(all, p)
		}
	}
	return all
}

func (p Process) file(name string) string { return fmt.Sprintf("/proc/%d/%s", p.PID, name) }

// Over reports a process that is gone, or a zombie: its parent has not asked yet, which in a container may be never.
func (p Process) Over() bool { return p.State == "" || p.State == "Z" || p.State == "X" }

// Killed reports a process, or a thread of one, that SIGKILL waits for: it is asleep in the kernel.
func (p Process) Killed() bool {
	statuses, _ := filepath.Glob(p.file("task/*/status"))
	return slices.ContainsFunc(statuses, func(file string) bool {
		text, _ := os.ReadFile(file)
		_, mask, _ := strings.Cut(string(text), "\nSigPnd:\t")
		pending, err := strconv.ParseUint(strings.SplitN(mask, "\n", 2)[0], 16, 64)
		return err == nil && pending&(1<<(syscall.SIGKILL-1)) != 0
	})
}

// Exe is the program that it runs.
func (p Process) Exe() string {
	exe, _ := os.Readlink(p.file("exe"))
	return exe
}

// Args are the words of its command line.
func (p Process) Args() []string {
	line, _ := os.ReadFile(p.file("cmdline"))
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
}

// Doing is what a process with this command line does for a hook: the operation of its child, "disk" or "backend"; "" for a
// hook itself.
func Doing(words []string) string {
	program := filepath.Base(words[0])
	switch {
	case len(words) == 3 && words[1] == "--child":
		return words[2]
	case len(words) == 3 && words[1] == "--disk":
		return "disk"
	case program == "bookend-gpu" || program == filepath.Base(Backend):
		return "backend"
	}
	return ""
}

// HasEnv reports whether the process was started with one of the given NAME=value.
func (p Process) HasEnv(settings ...string) bool {
	text, _ := os.ReadFile(p.file("environ"))
	all := strings.Split(string(text), "\x00")
	return slices.ContainsFunc(settings, func(s string) bool { return slices.Contains(all, s) })
}
