// Command scan measures the search for holders: it starts thousands of real processes with open descriptors, lets a
// few of them hold fake device nodes, and fails when the search is slow or names others than those.
//
//	make bench-scan SCAN="-processes 20000 -fds 50 -cpus 4 -max 2s"
//
// It needs only the nursery, which lies beside it, so that both can be carried to another machine. Its exit code is 1
// when the search was too slow or wrong, 2 when it could not be measured.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/test/rig"
)

// options say what to start, and how fast it must be found.
type options struct {
	Processes, FDs, CPUs int
	Max                  time.Duration
	Nursery              string // the program that starts the processes
}

func main() {
	var o options
	flag.IntVar(&o.Processes, "processes", 20000, "processes to start")
	flag.IntVar(&o.FDs, "fds", 50, "descriptors that each has open")
	flag.IntVar(&o.CPUs, "cpus", 4, "CPUs that the search may use")
	flag.DurationVar(&o.Max, "max", 2*time.Second, "time that a search may take")
	flag.Parse()
	o.Nursery = filepath.Join(filepath.Dir(os.Args[0]), "nursery")
	if err := bench(o, os.Stdout); errors.Is(err, errFailed) {
		fmt.Fprintln(os.Stderr, "scanbench:", err)
		os.Exit(1)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "scanbench: cannot measure:", err)
		os.Exit(2)
	}
}

// maps are the mappings that each process has, beside those of its program; of so many searches the slowest counts.
const (
	maps     = 20
	searches = 3
)

// errFailed says that the search was measured and found wanting.
var errFailed = errors.New("failed")

// bench starts the processes, searches for the holders, and says how that went.
func bench(o options, out io.Writer) (err error) {
	if broken := rig.Attempt(func() { err = search(o, out) }); broken != nil {
		return broken
	}
	return err
}

func search(o options, out io.Writer) error {
	dir := rig.Have(os.MkdirTemp("", "scanbench"))
	defer os.RemoveAll(dir)
	dir = rig.Have(filepath.EvalSymlinks(dir))
	rig.Try(makeNodes(dir))
	began := time.Now()
	want, stop := populate(o, dir)
	defer stop()
	fmt.Fprintf(out, "started %d processes x %d descriptors in %.1f s\n", o.Processes, o.FDs,
		time.Since(began).Seconds())
	rig.Try(confine(o.CPUs))
	return measure(o, filepath.Join(dir, "dev"), want, out)
}

var deep = strings.Repeat("deep", 20)

// makeNodes makes the fake device nodes: character devices like /dev/null where that is allowed. The one to map is a
// file, and so are those of the same name elsewhere.
func makeNodes(dir string) error {
	err := errors.Join(os.MkdirAll(dir+"/dev/nvidia-caps", 0o755), os.Mkdir(dir+"/files", 0o755))
	for _, name := range []string{"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1"} {
		if path := filepath.Join(dir, "dev", name); unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) != nil {
			err = errors.Join(err, os.WriteFile(path, nil, 0o644))
		}
	}
	for _, path := range []string{"dev/nvidia3", "files/nvidia0", "files/libnvidia-ml.so.1", "files/" + deep} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, path), make([]byte, os.Getpagesize()), 0o644))
	}
	return err
}

// roles are the holders, and those that must not pass for one: they have files of those names elsewhere. Each opens
// words that the nursery understands; one with nothing to be said of it must not be named.
var roles = []struct {
	open string
	want record.Holding
}{
	{"D/nvidia0", record.Holding{Minors: []int{0}}},
	{"D/nvidia3 D/nvidiactl D/nvidia-uvm D/nvidia0", record.Holding{Minors: []int{0, 3}, Control: true, UVM: true}},
	{"D/nvidiactl", record.Holding{Control: true}},
	{"D/nvidia-uvm", record.Holding{UVM: true}},
	{"D/nvidia-caps/nvidia-cap1", record.Holding{Caps: true}},
	{"=D/nvidia3", record.Holding{Minors: []int{3}}},
	{"F/nvidia0", record.Holding{}},
	{"F/libnvidia-ml.so.1 =F/nvidia0", record.Holding{}},
}

// populate starts all processes and returns what the search must find. Stop ends them; so does the end of this program.
func populate(o options, dir string) (want map[int]record.Holding, stop func()) {
	const minFDs = 8 // what a role may need: its nodes, the nursery's own descriptors, and a filler
	if o.Processes < len(roles) || o.FDs < minFDs {
		panic(fmt.Errorf("at least %d processes and %d descriptors are needed", len(roles), minFDs))
	}
	in := strings.NewReplacer("D/", dir+"/dev/", "F/", dir+"/files/")
	args := []string{fmt.Sprint(o.Processes), fmt.Sprint(o.FDs), fmt.Sprint(maps),
		in.Replace("/dev/null /dev/zero /proc/self/stat F/libnvidia-ml.so.1 F/" + deep)}
	for _, r := range roles {
		args = append(args, in.Replace(r.open))
	}
	cmd := exec.Command(o.Nursery, args...)
	cmd.Stderr = os.Stderr
	stdin, stdout := rig.Have(cmd.StdinPipe()), rig.Have(cmd.StdoutPipe())
	rig.Try(cmd.Start())
	want = map[int]record.Holding{}
	for _, r := range roles {
		var pid int
		rig.Have(fmt.Fscan(stdout, &pid))
		if len(r.want.Open()) > 0 {
			want[pid] = r.want
		}
	}
	return want, func() {
		stdin.Close()
		_ = cmd.Wait()
	}
}

func confine(cpus int) error {
	runtime.GOMAXPROCS(min(cpus, runtime.NumCPU()))
	return exec.Command("taskset", "-apc", fmt.Sprint("0-", cpus-1), fmt.Sprint(os.Getpid())).Run()
}

// measure searches, and compares with what must be found.
func measure(o options, dev string, want map[int]record.Holding, out io.Writer) error {
	var slowest time.Duration
	var wrong []string
	for run := range searches {
		began := time.Now()
		scan := procscan.Scan("/proc", dev, time.Minute)
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

// compare says what a search got wrong: each holder must be named, as what it holds, and no one else.
func compare(scan record.Scan, want map[int]record.Holding) (wrong []string) {
	if scan.Partial != "" {
		wrong = append(wrong, "partial: "+scan.Partial)
	}
	missed := len(want)
	for _, h := range scan.Holdings {
		w, expected := want[h.PID]
		if w.Process = h.Process; expected {
			missed--
		}
		if h.Why != "" || h.Start == 0 || !expected || !reflect.DeepEqual(h, w) {
			wrong = append(wrong, fmt.Sprintf("process %d holds %v, want %v: %+v", h.PID, h.Open(), w.Open(), h))
		}
	}
	if missed != 0 {
		wrong = append(wrong, fmt.Sprintf("missed %d processes", missed))
	}
	return wrong
}
