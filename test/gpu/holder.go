package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"bookend/test/gpu/runrecord"
	"bookend/test/rig"
)

type holder struct {
	runrecord.Holder
	line  string // its ready line
	cmd   *exec.Cmd
	ended bool
}

// ready takes down what the program said of itself: also its PID, for what was started may only have started it. But
// in a PID namespace of its own it knows itself as 1.
func (h *holder) ready(line string, uid uint32) {
	h.line = line
	said := parseReady(line)
	pid := int(number(said["pid"]))
	if pid == 1 {
		pid = h.cmd.Process.Pid
	}
	h.Holder = runrecord.Holder{PID: pid, UID: uid, GPU: said["gpu"], Allocated: number(said["bytes"]),
		Gone: number(said["used"]), Cgroup: cgroupOf(pid)}
}

// kill ends what was started by SIGKILL and reaps it: afterwards its PID is nobody's. Its children live.
func (h *holder) kill() {
	if h.ended {
		return
	}
	h.ended = true
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait() // says that it was killed
}

// parseReady reads a program's "ready key=value ..." line.
func parseReady(line string) map[string]string {
	said := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		if key, value, ok := strings.Cut(word, "="); ok {
			said[key] = value
		}
	}
	return said
}

func number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

func cgroupOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "unknown: " + err.Error()
	}
	return strings.TrimSpace(string(text))
}

// marked lists the processes that were started with a setting in their environment.
func marked(setting string) (pids []int) {
	for _, p := range rig.Processes(func(p rig.Process) bool { return p.HasEnv(setting) }) {
		pids = append(pids, p.PID)
	}
	return pids
}

// The driver's device nodes, wherever they lie.
var deviceNode = regexp.MustCompile(`/nvidia(\d+|ctl|-uvm|-uvm-tools|-caps/[^/ ]+)$`)

// readProc writes down what /proc says of a process, read by nobody's code but the lane's.
func readProc(pid int) *runrecord.Proc {
	folder := fmt.Sprintf("/proc/%d", pid)
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return &runrecord.Proc{Problem: err.Error()}
	}
	exe, err := os.Readlink(filepath.Join(folder, "exe"))
	if err != nil {
		exe = err.Error()
	}
	p := &runrecord.Proc{
		Name: field(status, "Name"), State: field(status, "State"), NSpid: field(status, "NSpid"),
		UID: field(status, "Uid"), Threads: field(status, "Threads"), Exe: exe, Cgroup: cgroupOf(pid),
	}
	p.Open = openIn(folder, "")
	if len(p.Open) > 0 {
		return p
	}
	// The first thread may have ended: then the descriptors show under those that live.
	tasks, err := filepath.Glob(filepath.Join(folder, "task/*"))
	for _, task := range tasks {
		p.Open = append(p.Open, openIn(task, "task "+filepath.Base(task)+" ")...)
	}
	if err != nil {
		p.Problem = err.Error()
	}
	return p
}

// openIn lists the device nodes that a folder's descriptors are on, and those that are mapped, with how often.
func openIn(folder, whose string) (lines []string) {
	numbers, count := map[string][]int{}, map[string]int{}
	links, _ := filepath.Glob(filepath.Join(folder, "fd/*"))
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && deviceNode.MatchString(target) {
			numbers[target] = append(numbers[target], int(number(filepath.Base(link))))
		}
	}
	for _, target := range slices.Sorted(maps.Keys(numbers)) {
		fds := strings.Trim(fmt.Sprint(sorted(numbers[target])), "[]")
		lines = append(lines, fmt.Sprintf("%sfd %s -> %s", whose, fds, target))
	}
	text, _ := os.ReadFile(filepath.Join(folder, "maps")) // what cannot be read shows nothing
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 5 && deviceNode.MatchString(words[5]) {
			count[words[5]]++
		}
	}
	for _, target := range slices.Sorted(maps.Keys(count)) {
		lines = append(lines, fmt.Sprintf("%s%d maps -> %s", whose, count[target], target))
	}
	return lines
}

// driverUsers lists the processes that have one of the driver's device nodes open.
func driverUsers() (found []string) {
	for _, process := range rig.Processes(func(rig.Process) bool { return true }) {
		if open := openIn(fmt.Sprint("/proc/", process.PID), ""); len(open) > 0 {
			p := readProc(process.PID)
			found = append(found, fmt.Sprintf("process %d (%s, %s): %s", process.PID, p.Name, p.Cgroup,
				strings.Join(open, "; ")))
		}
	}
	return found
}

func awaitGone(pid int) {
	settled(func() {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			panic(fmt.Errorf("process %d does not go away: %w", pid, err))
		}
	})
}
