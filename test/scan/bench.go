package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
	"bookend/internal/holders"
)

// role is a process that holds something: the nodes it has open, below the folder of device nodes unless they begin
// with a slash, and the one it has only mapped.
type role struct {
	Open   []string
	Mapped string
	want   attrib.Holding // what the search must say of it; one without anything must not be named
}

// roles are the holders, and those that must not pass for one.
func roles(dir string) []role {
	return []role{
		{Open: []string{"nvidia0"}, want: attrib.Holding{Minors: []int{0}}},
		{Open: []string{"nvidia3", "nvidiactl", "nvidia-uvm", "nvidia0"}, want: attrib.Holding{Minors: []int{0, 3}, Control: true, UVM: true}},
		{Open: []string{"nvidiactl"}, want: attrib.Holding{Control: true}},
		{Open: []string{"nvidia-uvm"}, want: attrib.Holding{UVM: true}},
		{Open: []string{"nvidia-caps/nvidia-cap1"}, want: attrib.Holding{Caps: true}},
		{Mapped: "nvidia3", want: attrib.Holding{Minors: []int{3}, Mapped: true}},
		{Open: []string{filepath.Join(dir, "files", "nvidia0")}},
		{Open: []string{filepath.Join(dir, "files", "libnvidia-ml.so.1")}, Mapped: filepath.Join(dir, "files", "nvidia0")},
	}
}

// bench starts the processes, searches for the holders, and says how that went.
func bench(o options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "scanbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	dev, err := makeNodes(dir)
	if err != nil {
		return err
	}
	began := time.Now()
	want, stop, err := populate(o, dir, dev)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(out, "started %d processes x %d descriptors in %.1f s\n", o.Processes, o.FDs, time.Since(began).Seconds())
	if err := confine(o.CPUs); err != nil {
		return err
	}
	return measure(o, dev, want, out)
}

// makeNodes makes the fake device nodes: character devices like /dev/null where that is allowed. The one to map is a
// file, and so are those of the same name elsewhere.
func makeNodes(dir string) (dev string, err error) {
	dev = filepath.Join(dir, "dev")
	for _, sub := range []string{"dev/nvidia-caps", "files"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return "", err
		}
	}
	for _, name := range []string{"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1"} {
		path := filepath.Join(dev, name)
		if unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) == nil {
			continue
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			return "", err
		}
	}
	for _, path := range []string{"dev/nvidia3", "files/nvidia0", "files/libnvidia-ml.so.1", "files/" + strings.Repeat("deep", 20)} {
		if err := os.WriteFile(filepath.Join(dir, path), make([]byte, os.Getpagesize()), 0o644); err != nil {
			return "", err
		}
	}
	return dev, nil
}

// confine keeps this process to so many CPUs.
func confine(cpus int) error {
	var all, some unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := 0; some.Count() < min(cpus, all.Count()); cpu++ {
		if all.IsSet(cpu) {
			some.Set(cpu)
		}
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks { // threads begun later inherit it
		var tid int
		if _, err := fmt.Sscan(task.Name(), &tid); err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &some); err != nil && err != unix.ESRCH {
			return err
		}
	}
	runtime.GOMAXPROCS(some.Count())
	return nil
}

// measure searches, and compares with what must be found.
func measure(o options, dev string, want map[int]attrib.Holding, out io.Writer) error {
	var slowest time.Duration
	var wrong []string
	for run := range o.Runs {
		began := time.Now()
		scan := holders.Scan("/proc", dev, time.Minute)
		took := time.Since(began)
		slowest = max(slowest, took)
		fmt.Fprintf(out, "search %d: %d processes, %d descriptors, %d holders, %d cores: %.3f s\n",
			run+1, scan.Looked, o.Processes*o.FDs, len(scan.Holdings), runtime.GOMAXPROCS(0), took.Seconds())
		wrong = append(wrong, compare(scan, want)...)
		if scan.Looked < o.Processes {
			wrong = append(wrong, fmt.Sprintf("looked into %d processes of %d", scan.Looked, o.Processes))
		}
	}
	switch {
	case len(wrong) > 0:
		return fmt.Errorf("%w: %s", errFailed, strings.Join(wrong, "; "))
	case slowest > o.Max:
		return fmt.Errorf("%w: a search took %v, more than %v", errFailed, slowest, o.Max)
	}
	fmt.Fprintf(out, "slowest %.3f s, allowed %.3f s; holders exactly those that hold\n", slowest.Seconds(), o.Max.Seconds())
	return nil
}

// compare says what a search got wrong.
func compare(scan attrib.Scan, want map[int]attrib.Holding) (wrong []string) {
	if scan.Partial != "" {
		wrong = append(wrong, "partial: "+scan.Partial)
	}
	seen := map[int]bool{}
	for _, h := range scan.Holdings {
		w, expected := want[h.PID]
		seen[h.PID] = true
		if h.Why != "" || h.Start == 0 || !expected {
			wrong = append(wrong, fmt.Sprintf("named process %d: %+v", h.PID, h))
		}
		w.Process = h.Process
		if expected && !reflect.DeepEqual(h, w) {
			wrong = append(wrong, fmt.Sprintf("process %d holds %v, want %v", h.PID, h.Open(), w.Open()))
		}
	}
	for pid := range want {
		if !seen[pid] {
			wrong = append(wrong, fmt.Sprintf("missed process %d", pid))
		}
	}
	slices.Sort(wrong)
	return wrong
}
