package holders

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
	"bookend/internal/routine"
	"bookend/internal/slurm"
	"bookend/test/must"
)

func one(t *testing.T, proc string, pid int) attrib.Process {
	t.Helper()
	got := Processes(proc, []int{pid}, time.Hour)
	if len(got) != 1 || got[0].PID != pid {
		t.Fatalf("Processes(%d) = %+v", pid, got)
	}
	return got[0]
}

func TestRealProcess(t *testing.T) {
	before := routine.SystemClock().Boot()
	pid := start(t, "idle", func(c *exec.Cmd) {
		c.Env = append(c.Env, "SLURM_JOB_ID=4711")
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	})
	after := routine.SystemClock().Boot()
	p := one(t, "/proc", pid)
	if p.Gone || p.Why != "" || p.UID != 65534 || p.EnvJobID != 4711 || p.Name != "exe" || p.State == "" {
		t.Errorf("%+v", p)
	}
	if p.Start < before-attrib.Tick || p.Start > after {
		t.Errorf("started at %v, not between %v and %v", p.Start, before, after)
	}
	if again := one(t, "/proc", pid); again.Start != p.Start {
		t.Errorf("start time moved: %v, %v", p.Start, again.Start)
	}
}

func TestRealZombies(t *testing.T) {
	for name, tt := range map[string]struct {
		pid  int
		gone bool
	}{
		"ended":             {zombie(t), true},
		"first thread ends": {awaitZombie(t, start(t, "first thread ends", nil)), false},
	} {
		p := one(t, "/proc", tt.pid)
		if p.Gone != tt.gone || p.Why != "" || p.State != "Z" || p.Start == 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// awaitZombie waits for the first thread of a process to be gone: it ends beside the line that says ready.
func awaitZombie(t *testing.T, pid int) int {
	t.Helper()
	for {
		p := one(t, "/proc", pid)
		if p.Gone {
			t.Fatal("the whole process ended")
		}
		if p.State == "Z" {
			return pid
		}
		unix.Nanosleep(&unix.Timespec{Nsec: int64(time.Millisecond)}, nil)
	}
}

// fixture writes a process's folder.
func fixture(t *testing.T, proc, pid, cgroup, environ string) string {
	t.Helper()
	folder := filepath.Join(proc, pid)
	put(t, filepath.Join(folder, "stat"), pid+" (py (x) S"+statTail)
	put(t, filepath.Join(folder, "status"), "Name:\tpy (x\nUid:\t1000\t1000\t1000\t1000\n")
	put(t, filepath.Join(folder, "cgroup"), cgroup)
	put(t, filepath.Join(folder, "environ"), environ)
	return folder
}

const jobCgroup = "0::/system.slice/n1_slurmstepd.scope/job_77/step_0/user/task_0\n"

func TestProcessesOfATree(t *testing.T) {
	proc := t.TempDir()
	fixture(t, proc, "10", jobCgroup, "SLURM_JOB_ID=78\x00")
	sluid := fixture(t, proc, "11", strings.Replace(jobCgroup, "job_77", "sCHNM7Y8WBK900", 1), "")
	must.Do(t, os.Remove(filepath.Join(sluid, "environ")))
	base := attrib.Process{PID: 10, Start: 1234560 * time.Millisecond, UID: 1000, Name: "py (x", State: "S",
		Cgroup: slurm.Owner{ID: 77, Step: "0"}, EnvJobID: 78}
	second := base
	second.PID, second.Cgroup, second.EnvJobID = 11, slurm.Owner{SLUID: "sCHNM7Y8WBK900", Step: "0"}, 0
	want := []attrib.Process{second, {PID: 12, Gone: true}, base}
	if got := Processes(proc, []int{11, 12, 10}, time.Hour); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// The memory of a process at which an earlier reader hangs is not read: here that would wait for ever for a writer. By
// its start time another process under that PID is known to be another.
func TestSkippedProcesses(t *testing.T) {
	proc := t.TempDir()
	start := 1234560 * time.Millisecond
	for pid, cgroup := range map[string]string{"10": jobCgroup, "11": "0::/\n", "12": "0::/\n"} {
		folder := fixture(t, proc, pid, cgroup, "SLURM_JOB_ID=78\x00")
		check(os.Mkdir(filepath.Join(folder, "fd"), 0o755))
		check(os.Symlink("/dev/nvidia1", filepath.Join(folder, "fd/3")))
		put(t, filepath.Join(folder, "maps"), "")
		if pid == "12" {
			continue
		}
		for _, name := range []string{"environ", "maps"} {
			check(os.Remove(filepath.Join(folder, name)))
			check(unix.Mkfifo(filepath.Join(folder, name), 0o600))
		}
	}
	skip := []attrib.Instance{{PID: 10, Start: start}, {PID: 11, Start: start}, {PID: 12, Start: start + time.Second}}
	got := Processes(proc, []int{10, 11, 12}, time.Hour, skip...)
	if got[0].Cgroup.ID != 77 || got[0].Why != "" || got[1].Why == "" || got[1].Start != start ||
		got[2].EnvJobID != 78 {
		t.Errorf("%+v", got)
	}
	scan := Scan(proc, "/dev", time.Hour, skip[:2]...)
	if len(scan.Holdings) != 3 || !strings.Contains(scan.Partial, "process 10: ") ||
		!strings.Contains(scan.Partial, "process 11: ") || len(scan.Hung) != 0 {
		t.Errorf("%+v", scan)
	}
}

func TestUnreadableIsUnknown(t *testing.T) {
	for file, text := range map[string]string{
		"stat":   "garbage",
		"status": "garbage",
		"cgroup": strings.Repeat("x", maxCgroup+1),
	} {
		proc := t.TempDir()
		put(t, filepath.Join(fixture(t, proc, "10", jobCgroup, ""), file), text)
		if p := one(t, proc, 10); p.Why == "" || p.Gone || p.UID != 0 || p.Cgroup.Found() {
			t.Errorf("%s: %+v", file, p)
		}
	}
}

// swapAtCgroup makes a process's cgroup a named pipe, so that a reader stops there, and runs change while it does.
func swapAtCgroup(t *testing.T, folder string, change func()) (done chan struct{}) {
	t.Helper()
	pipe := filepath.Join(folder, "cgroup")
	must.Do(t, os.Remove(pipe))
	must.Do(t, unix.Mkfifo(pipe, 0o600))
	done = make(chan struct{})
	go func() {
		defer close(done)
		f, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when the reader is there
		if err != nil {
			t.Error(err)
			return
		}
		change()
		f.WriteString(jobCgroup)
		f.Close()
	}()
	return done
}

// A process that ends, or whose PID is another's, while it is read is read again: nothing is a mix of two.
func TestReadAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(t *testing.T, proc, folder string)
		want   attrib.Process
	}{
		"reused": {func(t *testing.T, proc, folder string) {
			check(os.Remove(filepath.Join(folder, "stat"))) // what the open folder shows once its process has ended
			check(os.Rename(folder, filepath.Join(proc, "old")))
			next := fixture(t, proc, "10", "0::/\n", "SLURM_JOB_ID=99\x00")
			put(t, filepath.Join(next, "stat"), "10 (next) R"+statTail)
		}, attrib.Process{PID: 10, Start: 1234560 * time.Millisecond, UID: 1000, Name: "next", State: "R", EnvJobID: 99}},
		"another start": {func(t *testing.T, proc, folder string) {
			put(t, filepath.Join(folder, "stat"), "10 (next) R"+strings.Replace(statTail, "123456", "123457", 1))
			check(os.Remove(filepath.Join(folder, "cgroup")))
			put(t, filepath.Join(folder, "cgroup"), "0::/\n")
		}, attrib.Process{PID: 10, Start: 1234570 * time.Millisecond, UID: 1000, Name: "next", State: "R"}},
		"ended": {func(t *testing.T, proc, folder string) {
			check(os.Remove(filepath.Join(folder, "stat")))
			check(os.Rename(folder, filepath.Join(proc, "old")))
		}, attrib.Process{PID: 10, Gone: true}},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			folder := fixture(t, proc, "10", jobCgroup, "")
			done := swapAtCgroup(t, folder, func() { tt.change(t, proc, folder) })
			got := one(t, proc, 10)
			if <-done; !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// However many processes hang, at whatever is read of them, all others are answered for; and who was proven to be a
// job's before the memory of the process was asked for is known all the same.
func TestHungProcessesAreUnknownAlone(t *testing.T) {
	const others = 100
	proc, hung := t.TempDir(), map[int]string{}
	pids := []int{0}
	for pid, file := range map[int]string{10: "stat", 11: "status", 12: "cgroup", 13: "environ", 14: "environ"} {
		hung[pid] = file
	}
	for i := range maxWorkers + 1 { // as many as a crew has hands
		hung[20+i] = "stat"
	}
	var pipes []string
	for pid, file := range hung {
		cgroup := jobCgroup
		if pid == 14 {
			cgroup = "0::/\n"
		}
		pipe := filepath.Join(fixture(t, proc, strconv.Itoa(pid), cgroup, ""), file)
		check(os.Remove(pipe))
		check(unix.Mkfifo(pipe, 0o600))
		pids, pipes = append(pids, pid), append(pipes, pipe)
	}
	for i := range others {
		fixture(t, proc, strconv.Itoa(100+i), jobCgroup, "SLURM_JOB_ID=78\x00")
		pids = append(pids, 100+i)
	}
	c := newCrew(time.Hour)
	defer c.end()
	s, answer := &survey{proc: proc, known: map[int]attrib.Process{}}, make(chan []attrib.Process)
	go func() { answer <- s.of(c, pids) }()
	for _, pipe := range pipes {
		f := must.Have(os.OpenFile(pipe, os.O_WRONLY, 0))(t) // returns when the reader is there, who then waits for text
		defer f.Close()
	}
	for read := 0; read < others; { // while those hang
		unix.Nanosleep(&unix.Timespec{Nsec: int64(time.Millisecond)}, nil)
		read = 0
		s.mu.Lock()
		for i := range others {
			if p := s.known[100+i]; p.EnvJobID == 78 {
				read++
			}
		}
		s.mu.Unlock()
	}
	c.end()
	for i, p := range <-answer {
		proven := p.PID == 13 && p.Why == "" && p.EnvJobID == 0 || p.PID >= 100 && p.Why == "" && p.EnvJobID == 78
		unknown := strings.Contains(p.Why, "does not answer") && p.UID == 0 && !p.Cgroup.Found() && !p.Gone ||
			p.PID == 0 && p.Why != ""
		if wantProven := pids[i] == 13 || pids[i] >= 100; p.PID != pids[i] ||
			wantProven != (proven && p.Cgroup.ID == 77) || wantProven == unknown {
			t.Errorf("process %d: %+v", pids[i], p)
		}
	}
}

// The test binary is also the process the tests look at: with BOOKEND_TEST_ROLE set it plays a role, says so in
// one line, and stays until its standard input ends.
func init() { // before the runtime may move the main goroutine to another thread
	if os.Getenv("BOOKEND_TEST_ROLE") != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	role := os.Getenv("BOOKEND_TEST_ROLE")
	if role == "" {
		os.Exit(m.Run())
	}
	play(role)
}

func play(role string) {
	for _, name := range os.Args[1:] {
		if _, err := os.Open(name); err != nil { // stays open: there is no variable left to collect
			panic(err)
		}
	}
	switch role {
	case "container":
		contain(os.Getenv("BOOKEND_TEST_PATH"))
	case "odd name":
		check(os.WriteFile("/proc/self/comm", []byte(oddName), 0))
	case "first thread ends":
		go stay() // the only other goroutine: it ends the process
		unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
	stay()
}

// contain makes dir the root of this process, with a /dev of its own, as an engine for containers does. It holds
// nvidia2 there, and nvidia3, which has lost its name, and nvidia4, whose file system was taken away.
func contain(dir string) {
	check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	check(unix.Mount("none", dir, "tmpfs", 0, ""))
	check(unix.Chroot(dir))
	check(unix.Chdir("/"))
	check(os.MkdirAll("/dev", 0o755))
	check(unix.Mount("none", "/dev", "tmpfs", 0, ""))
	for _, name := range []string{"/dev/nvidia2", "/dev/nvidia3"} {
		check(os.WriteFile(name, nil, 0o644))
		_, err := unix.Open(name, unix.O_RDONLY, 0)
		check(err)
	}
	check(os.Remove("/dev/nvidia3"))
	check(os.MkdirAll("/gone/away", 0o755))
	check(unix.Mount("none", "/gone/away", "tmpfs", 0, ""))
	check(os.WriteFile("/gone/away/nvidia4", nil, 0o644))
	_, err := unix.Open("/gone/away/nvidia4", unix.O_RDONLY, 0)
	check(err)
	check(unix.Unmount("/gone/away", unix.MNT_DETACH))
}

const oddName = "a) R (\n1 (b"

func stay() {
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// start runs the test binary in a role, with the named files open, and returns its PID once it is ready.
func start(t *testing.T, role string, set func(*exec.Cmd), files ...string) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", files...)
	cmd.Env = []string{"BOOKEND_TEST_ROLE=" + role}
	if set != nil {
		set(cmd)
	}
	stdin := must.Have(cmd.StdinPipe())(t)
	stdout := must.Have(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("role %q: %q, %v", role, line, err)
	}
	return cmd.Process.Pid
}

// zombie returns the PID of a process that has ended and is not waited for before the test's end.
func zombie(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("/bin/true")
	must.Do(t, cmd.Start())
	t.Cleanup(func() { cmd.Wait() })
	must.Do(t, unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	return cmd.Process.Pid
}

// devices makes a folder of plain files with the names of device nodes: only the names count.
func devices(t *testing.T, names ...string) (dev string) {
	t.Helper()
	dev = must.Have(filepath.EvalSymlinks(t.TempDir()))(t)
	for _, name := range names {
		put(t, filepath.Join(dev, name), "")
	}
	must.Do(t, os.Chmod(filepath.Dir(dev), 0o755))
	return dev
}

func put(t *testing.T, path, text string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, []byte(text), 0o644))
}
