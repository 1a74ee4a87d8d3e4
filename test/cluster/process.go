package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mark is the variable by which the cluster's daemons and jobs are known, beside SLURM_CONF.
const mark = "BOOKEND_TEST_CLUSTER"

// process is one line of /proc. pid and start together name a process for good: pids are used again.
type process struct {
	pid, parent int
	start       uint64 // ticks since boot
	uid         uint32
	ended       bool // a zombie: its parent has not asked yet, which in a container may be never
	terminal    bool // a person's shell or program
}

// processes reads /proc. Processes that vanish meanwhile are left out.
func processes() (all []process) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, e := range entries {
		pid, _ := strconv.Atoi(filepath.Base(e))
		if p, ok := readProcess(pid); ok {
			all = append(all, p)
		}
	}
	return all
}

func readProcess(pid int) (process, bool) {
	dir := procPath(pid)
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return process{}, false
	}
	// The name, in parentheses, may hold anything; the fields after the last one are proc(5)'s 3 and up.
	f := strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])
	if len(f) < 20 {
		return process{}, false
	}
	p := process{pid: pid, ended: f[0] == "Z" || f[0] == "X", terminal: f[4] != "0"}
	p.parent, _ = strconv.Atoi(f[1])
	p.start, _ = strconv.ParseUint(f[19], 10, 64)
	// The folder's owner would not do: it is root for an undumpable process.
	status, _ := os.ReadFile(filepath.Join(dir, "status"))
	_, uid, _ := strings.Cut(string(status), "\nUid:")
	_, err = fmt.Sscan(uid, &p.uid)
	return p, err == nil
}

func procPath(pid int) string { return filepath.Join("/proc", strconv.Itoa(pid)) }

// alive reports whether that very process still runs.
func (p process) alive() bool {
	now, ok := readProcess(p.pid)
	return ok && now.start == p.start && !now.ended
}

// hasEnv reports whether the process was started with one of the given NAME=value.
func (p process) hasEnv(settings ...string) bool {
	text, err := os.ReadFile(filepath.Join(procPath(p.pid), "environ"))
	if err != nil {
		return false
	}
	all := strings.Split(string(text), "\x00")
	return slices.ContainsFunc(settings, func(s string) bool { return slices.Contains(all, s) })
}

// signal sends a signal to that very process: the handle is opened first and the process looked at again, so
// that a pid used anew meanwhile is not hit. A process that is gone is no error.
func (p process) signal(sig os.Signal) error {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return err
	}
	defer handle.Release()
	if !p.alive() {
		return nil
	}
	if err := handle.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("signal process %d: %w", p.pid, err)
	}
	return nil
}

// end sends sig to all and waits until they are gone; it returns those that are not after patience.
func end(all []process, sig os.Signal, patience time.Duration) ([]process, error) {
	var errs []error
	for _, p := range all {
		errs = append(errs, p.signal(sig))
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		all = slices.DeleteFunc(slices.Clone(all), func(p process) bool { return !p.alive() })
		if len(all) == 0 || time.Now().After(deadline) {
			return all, errors.Join(errs...)
		}
	}
}

// descendants returns the processes of all that the given ones started, directly or not, and those themselves.
func descendants(all, roots []process) []process {
	found := slices.Clone(roots)
	for i := 0; i < len(found); i++ {
		for _, p := range all {
			if p.parent == found[i].pid && !slices.Contains(found, p) {
				found = append(found, p)
			}
		}
	}
	return found
}

// withoutUs leaves out this process and those it descends from, which may well work in the cluster's folder.
func withoutUs(all []process) []process {
	us := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !us[pid]; {
		us[pid] = true
		p, ok := readProcess(pid)
		if !ok {
			break
		}
		pid = p.parent
	}
	return slices.DeleteFunc(all, func(p process) bool { return us[p.pid] || p.ended })
}
