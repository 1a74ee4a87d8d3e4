package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
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

// role is a process that holds something.
type role struct {
	open string         // words that the nursery understands
	want attrib.Holding // what the search must say of it; one without anything must not be named
}

// roles are the holders, and those that must not pass for one: they have files of those names elsewhere.
func roles(dev, files string) []role {
	return []role{
		{dev + "/nvidia0", attrib.Holding{Minors: []int{0}}},
		{
			strings.Join([]string{dev + "/nvidia3", dev + "/nvidiactl", dev + "/nvidia-uvm", dev + "/nvidia0"}, " "),
			attrib.Holding{Minors: []int{0, 3}, Control: true, UVM: true},
		},
		{dev + "/nvidiactl", attrib.Holding{Control: true}},
		{dev + "/nvidia-uvm", attrib.Holding{UVM: true}},
		{dev + "/nvidia-caps/nvidia-cap1", attrib.Holding{Caps: true}},
		{"=" + dev + "/nvidia3", attrib.Holding{Minors: []int{3}, Mapped: true}},
		{files + "/nvidia0", attrib.Holding{}},
		{files + "/libnvidia-ml.so.1 =" + files + "/nvidia0", attrib.Holding{}},
	}
}

// minFDs is what a role may need: its nodes, the nursery's own descriptors, and a filler.
const minFDs = 8

// populate starts all processes and returns what the search must find. Stop ends them.
func populate(o options, dir, dev string) (want map[int]attrib.Holding, stop func(), err error) {
	stop = func() {}
	files := filepath.Join(dir, "files")
	all := roles(dev, files)
	if o.Processes < len(all) || o.FDs < minFDs {
		return nil, stop, fmt.Errorf("at least %d processes and %d descriptors are needed", len(all), minFDs)
	}
	fillers := "/dev/null /dev/zero /proc/self/stat " + files + "/libnvidia-ml.so.1 " + files + "/" + deep
	args := []string{fmt.Sprint(o.Processes), fmt.Sprint(o.FDs), fmt.Sprint(o.Maps), fillers}
	for _, r := range all {
		args = append(args, r.open)
	}
	cmd := exec.Command(o.Nursery, args...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, stop, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, stop, err
	}
	if err := cmd.Start(); err != nil {
		return nil, stop, err
	}
	stop = func() {
		stdin.Close()
		_ = cmd.Wait()
	}
	want = map[int]attrib.Holding{}
	for _, r := range all {
		var pid int
		if _, err := fmt.Fscan(stdout, &pid); err != nil {
			return nil, stop, fmt.Errorf("start processes: %w", err)
		}
		if len(r.want.Open()) > 0 {
			want[pid] = r.want
		}
	}
	return want, stop, nil
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
	defer stop()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "started %d processes x %d descriptors in %.1f s\n", o.Processes, o.FDs, time.Since(began).Seconds())
	if err := confine(o.CPUs); err != nil {
		return err
	}
	return measure(o, dev, want, out)
}

// deep is a long name.
var deep = strings.Repeat("deep", 20)

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
	for _, path := range []string{"dev/nvidia3", "files/nvidia0", "files/libnvidia-ml.so.1", "files/" + deep} {
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
	const row = "slowest %.3f s, allowed %.3f s; holders exactly those that hold\n"
	fmt.Fprintf(out, row, slowest.Seconds(), o.Max.Seconds())
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
