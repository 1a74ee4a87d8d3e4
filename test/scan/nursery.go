package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
)

// nurseryEnv holds the order of a nursery: this program again, which starts processes and keeps them until its
// standard input ends. Small as it is, its copies are cheap.
const nurseryEnv = "BOOKEND_SCAN_NURSERY"

// order is what a nursery shall start.
type order struct {
	Processes, FDs, Maps int
	Roles                []role // of its first processes
	Files                []string
	Dev                  string
}

// nurseries is how many start processes side by side.
const nurseries = 4

// populate starts all processes and returns what the search must find. Stop ends them.
func populate(o options, dir, dev string) (want map[int]attrib.Holding, stop func(), err error) {
	all, want := roles(dir), map[int]attrib.Holding{}
	if least := nurseries * len(all); o.Processes < least || o.FDs < minFDs {
		return nil, nil, fmt.Errorf("at least %d processes and %d descriptors are needed", least, minFDs)
	}
	files := []string{"/dev/null", "/dev/zero", "/proc/self/stat", filepath.Join(dir, "files", "libnvidia-ml.so.1")}
	deep, err := filepath.Glob(filepath.Join(dir, "files", "deep*"))
	if err != nil {
		return nil, nil, err
	}
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	left := o.Processes
	for i := range nurseries {
		n := left / (nurseries - i)
		left -= n
		part := order{Processes: n, FDs: o.FDs, Maps: o.Maps, Files: append(files, deep...), Dev: dev}
		if i == nurseries-1 { // the largest share
			part.Roles = all
		}
		pids, end, err := startNursery(part)
		if err != nil {
			stop()
			return nil, nil, err
		}
		stops = append(stops, end)
		for j, pid := range pids {
			if h := all[j].want; len(h.Open()) > 0 {
				want[pid] = h
			}
		}
	}
	return want, stop, nil
}

// startNursery starts a nursery and returns the PIDs of those that play its roles.
func startNursery(o order) (pids []int, end func(), err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = []string{nurseryEnv + "=" + string(text)}, os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	end = func() {
		stdin.Close()
		io.Copy(io.Discard, stdout)
		cmd.Wait()
	}
	if err := json.NewDecoder(bufio.NewReader(stdout)).Decode(&pids); err != nil {
		end()
		return nil, nil, fmt.Errorf("start processes: %w", err)
	}
	return pids, end, nil
}

func serveNursery(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	// A fork copies one thread alone: nothing may interrupt it, or move it to another.
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil); err != nil {
		return err
	}
	if err := mapFiles(o); err != nil {
		return err
	}
	pids, err := o.bear()
	defer end(pids)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(pids[:len(o.Roles)]); err != nil {
		return err
	}
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// end ends the processes and waits until they are gone.
func end(pids []int) {
	for _, pid := range pids {
		unix.Kill(pid, unix.SIGKILL)
	}
	for _, pid := range pids {
		unix.Wait4(pid, nil, 0, nil)
	}
}

// mapFiles makes the mappings that every process inherits: alternately of two files, so that none are joined.
func mapFiles(o order) error {
	for i := range o.Maps {
		file, err := os.Open(o.Files[len(o.Files)-1-i%2])
		if err != nil {
			return err
		}
		_, err = unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
		file.Close()
		if err != nil {
			return fmt.Errorf("map file: %w", err)
		}
	}
	return nil
}

// bear starts the processes, and waits until each has opened what it shall.
func (o order) bear() (pids []int, err error) {
	var ready [2]int
	if err := unix.Pipe2(ready[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	for i := range o.Processes {
		l := newLife(ready[1], o.FDs)
		if i < len(o.Roles) {
			l.play(o.Roles[i], o.Dev)
		}
		l.fill(o.Files)
		pid, errno := fork(l)
		if errno != 0 {
			return pids, fmt.Errorf("start process %d: %w", i, errno)
		}
		pids = append(pids, pid)
	}
	answers := make([]byte, 4096)
	for heard := 0; heard < o.Processes; {
		n, err := unix.Read(ready[0], answers)
		if err != nil {
			return pids, err
		}
		if slices.Contains(answers[:n], failed) {
			return pids, fmt.Errorf("a process could not open its files")
		}
		heard += n
	}
	return pids, nil
}
