package procscan

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

func one(t *testing.T, proc string, pid int) record.Process {
	t.Helper()
	got := Processes(proc, "", []int{pid}, time.Hour)
	must.Not(t, len(got) != 1 || got[0].PID != pid, "Processes(%d) = %+v", pid, got)
	return got[0]
}

func TestRealProcess(t *testing.T) {
	before := child.SystemClock().Boot()
	pid := start(t, "idle", func(c *exec.Cmd) {
		c.Env = append(c.Env, "SLURM_JOB_ID=4711")
		as(65534)(c)
	})
	after := child.SystemClock().Boot()
	p := one(t, "/proc", pid)
	must.Not(t, p.Gone || p.Why != "" || p.UID != 65534 || p.EnvJobID != 4711 || p.Name != "exe" || p.State == "",
		"%+v", p)
	must.Not(t, p.Start < before-record.Tick || p.Start > after,
		"started at %v, not between %v and %v", p.Start, before, after)
	again := one(t, "/proc", pid)
	must.Not(t, again.Start != p.Start, "start time moved: %v, %v", p.Start, again.Start)
}

func as(uid uint32) func(*exec.Cmd) {
	return func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
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
		must.Not(t, p.Gone != tt.gone || p.Why != "" || p.State != "Z" || p.Start == 0, "%s: %+v", name, p)
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

// The driver lists a process that has a GPU open: another that has none took the PID of one that has ended. Of one in a
// file system of its own that cannot be told, and one that is ending has closed everything already.
func TestReusedPIDs(t *testing.T) {
	dev := devices(t, "nvidia0", "other")
	node := filepath.Join(dev, "nvidia0")
	read := func(pid int) record.Process { return Processes("/proc", dev, []int{pid}, time.Hour)[0] }
	for name, pid := range map[string]int{
		"descriptor":         start(t, "idle", nil, node),
		"mapped":             start(t, "mapped", nil, node),
		"a thread's own":     start(t, "thread of its own", nil, node),
		"its first has gone": awaitZombie(t, start(t, "first thread ends", nil, node)),
	} {
		p := read(pid)
		must.Not(t, p.Reused || p.Gone || p.Why != "" || p.DeviceUnknown != "" || p.Start == 0, "%s: %+v", name, p)
	}
	pid := start(t, "idle", nil, filepath.Join(dev, "other"))
	must.Be(t, "another process", read(pid), record.Process{PID: pid, Gone: true, Reused: true})
	must.Not(t, one(t, "/proc", pid).Gone, "no GPU was asked for")
}

// What cannot be read of a process is no proof that it has no GPU open.
func TestMayHaveAGPUOpen(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(t *testing.T, folder string)
		want   string // the reason why it cannot be told; empty where it can
	}{
		"nothing open": {func(*testing.T, string) {}, ""},
		"its descriptors": {func(t *testing.T, folder string) {
			must.Do(t, os.Remove(filepath.Join(folder, "fd")))
			must.Write(t, filepath.Join(folder, "fd"), "")
		}, "fd"},
		"its mappings": {func(t *testing.T, folder string) {
			must.Do(t, os.Remove(filepath.Join(folder, "maps")))
			must.Do(t, os.Mkdir(filepath.Join(folder, "maps"), 0o755))
		}, "maps"},
		"its own root":            {func(t *testing.T, folder string) { must.Link(t, filepath.Join(folder, "root"), "/var/lib/x") }, "file system of its own"},
		"its own mount namespace": {func(t *testing.T, folder string) { must.Link(t, filepath.Join(folder, "ns/mnt"), "mnt:[2]") }, "file system of its own"},
	} {
		proc := t.TempDir()
		must.Link(t, filepath.Join(proc, "self/ns/mnt"), "mnt:[1]")
		folder := fixture(t, proc, "10", jobCgroup, "")
		must.Do(t, os.Mkdir(filepath.Join(folder, "fd"), 0o755))
		must.Write(t, filepath.Join(folder, "maps"), "")
		if tt.change(t, folder); name != "its own mount namespace" {
			must.Link(t, filepath.Join(folder, "ns/mnt"), "mnt:[1]")
		}
		p := Processes(proc, "/dev", []int{10}, time.Hour)[0]
		must.Not(t, p.Reused != (tt.want == "") || !strings.Contains(p.DeviceUnknown, tt.want) || !p.Reused && p.Cgroup.ID != 77,
			"%s: %+v", name, p)
	}
	proc := t.TempDir()
	ending := fixture(t, proc, "10", jobCgroup, "")
	must.Write(t, filepath.Join(ending, "stat"), "10 (py) R"+strings.Replace(statTail, "4194560", "4194564", 1))
	p := Processes(proc, "/dev", []int{10}, time.Hour)[0]
	must.Not(t, p.Gone || p.State != "X", "%+v", p)
}

// A process is ending once all of its threads that live are: the state of none of them says so, and neither does its
// first thread alone.
func TestEnding(t *testing.T) {
	const going, exits = "4194560", "4194564"
	thread := func(state, flags string) string {
		return "10 (py) " + state + strings.Replace(statTail, going, flags, 1)
	}
	for name, tt := range map[string]struct {
		threads []string // the first thread first
		want    string
		gone    bool
	}{
		"sleeps in the kernel":                {[]string{thread("D", going)}, "D", false},
		"ends":                                {[]string{thread("D", exits)}, "X", false},
		"the first has ended":                 {[]string{thread("Z", exits), thread("S", going)}, "Z", false},
		"the first has ended, the others end": {[]string{thread("Z", exits), thread("R", exits)}, "X", false},
		"the first ends alone":                {[]string{thread("D", exits), thread("S", going)}, "D", false},
		"one of them does not end": {[]string{thread("Z", exits), thread("R", exits), thread("S", going)}, "Z",
			false},
		"all have ended": {[]string{thread("Z", exits), thread("Z", exits)}, "Z", true},
	} {
		proc := t.TempDir()
		folder := fixture(t, proc, "10", jobCgroup, "")
		must.Write(t, filepath.Join(folder, "stat"), tt.threads[0])
		for i, stat := range tt.threads {
			for file, text := range map[string]string{"stat": stat, "cgroup": jobCgroup, "environ": ""} {
				must.Write(t, filepath.Join(folder, "task", strconv.Itoa(10+i), file), text)
			}
		}
		p := one(t, proc, 10)
		must.Not(t, p.State != tt.want || p.Gone != tt.gone || p.Why != "", "%s: %+v", name, p)
	}
}

func fixture(t *testing.T, proc, pid, cgroup, environ string) string {
	t.Helper()
	folder := filepath.Join(proc, pid)
	must.Write(t, filepath.Join(folder, "stat"), pid+" (py (x) S"+statTail)
	must.Write(t, filepath.Join(folder, "status"), "Name:\tpy (x\nUid:\t1000\t1000\t1000\t1000\n")
	must.Write(t, filepath.Join(folder, "cgroup"), cgroup)
	must.Write(t, filepath.Join(folder, "environ"), environ)
	return folder
}

const jobCgroup = "0::/system.slice/n1_slurmstepd.scope/job_77/step_0/user/task_0\n"

// A PID namespace that a user made without help does not hide whose its process is: anyone can make one.
func TestPIDNamespaces(t *testing.T) {
	for name, tt := range map[string]struct {
		uid         int
		pids, users string
		want        bool
	}{
		"none":                             {1000, "10", "0 0 4294967295", false},
		"root's, as container daemons do":  {1000, "10\t1", "0 0 4294967295", true},
		"its user's":                       {1000, "10\t1", "         0       1000          1", false},
		"root of its user's container":     {1000, "10\t1", "0 1000 1\n1 231072 65536", false},
		"another user of that container":   {231072, "10\t1", "0 1000 1\n1 231072 65536", true},
		"a container that remaps its root": {231072, "10\t1", "0 231072 65536", true},
		"one that maps another user":       {1000, "10\t1", "1000 1001 1", true},
		"the map was not read":             {1000, "10\t1", "", true},
	} {
		proc := t.TempDir()
		folder := fixture(t, proc, "10", "0::/\n", "")
		must.Write(t, filepath.Join(folder, "status"), fmt.Sprintf("Name:\tx\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\nNSpid:\t%s\n", tt.uid, tt.pids))
		if tt.users != "" {
			must.Write(t, filepath.Join(folder, "uid_map"), tt.users+"\n")
		}
		must.Be(t, name, one(t, proc, 10).OtherPIDs, tt.want)
	}
}

func TestProcessesOfATree(t *testing.T) {
	proc := t.TempDir()
	fixture(t, proc, "10", jobCgroup, "SLURM_JOB_ID=78\x00")
	sluid := fixture(t, proc, "11", strings.Replace(jobCgroup, "job_77", "sCHNM7Y8WBK900", 1), "")
	must.Do(t, os.Remove(filepath.Join(sluid, "environ")))
	must.Write(t, filepath.Join(sluid, "stat"), "11 (py (x) S"+strings.Replace(statTail, "4194560", "4194564", 1)) // it is exiting
	base := record.Process{PID: 10, Start: 1234560 * time.Millisecond, UID: 1000, Name: "py (x", State: "S",
		Cgroup: slurm.Owner{ID: 77, Node: "n1", Step: "0"}, EnvJobID: 78}
	second := base
	second.PID, second.State = 11, "X"
	second.Cgroup, second.EnvJobID = slurm.Owner{SLUID: "sCHNM7Y8WBK900", Node: "n1", Step: "0"}, 0
	want := []record.Process{second, {PID: 12, Gone: true}, base}
	must.Be(t, "processes", Processes(proc, "", []int{11, 12, 10}, time.Hour), want)
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
		must.Write(t, filepath.Join(folder, "maps"), "")
		if pid == "12" {
			continue
		}
		for _, name := range []string{"environ", "maps"} {
			pipe(folder, name)
		}
	}
	skip := []record.Instance{{PID: 10, Start: start}, {PID: 11, Start: start}, {PID: 12, Start: start + time.Second}}
	got := Processes(proc, "", []int{10, 11, 12}, time.Hour, skip...)
	if got[0].Cgroup.ID != 77 || got[0].Why != "" || got[1].EnvUnknown == "" || got[1].Start != start ||
		got[2].EnvJobID != 78 || got[2].EnvUnknown != "" {
		t.Errorf("%+v", got)
	}
	scan := Scan(proc, "/dev", time.Hour, skip[:2]...)
	if len(scan.Holdings) != 3 || scan.Partial != "" || len(scan.Hung) != 0 || scan.Holdings[1].EnvUnknown == "" {
		t.Errorf("%+v", scan)
	}
	must.Be(t, "unread", unreadOf(scan), []int{10, 11})
	must.Not(t, scan.Unread[0].Cgroup.ID != 77 || scan.Unread[1].UID != 1000 || scan.Unread[1].Start != start, "%+v", scan.Unread)
}

func unreadOf(scan record.Scan) (pids []int) {
	for _, p := range scan.Unread {
		pids = append(pids, p.PID)
	}
	return pids
}

func TestUnreadableIsUnknown(t *testing.T) {
	for file, text := range map[string]string{
		"stat":   "garbage",
		"status": "garbage",
		"cgroup": strings.Repeat("x", maxCgroup+1),
	} {
		proc := t.TempDir()
		must.Write(t, filepath.Join(fixture(t, proc, "10", jobCgroup, ""), file), text)
		p := one(t, proc, 10)
		must.Not(t, p.Why == "" || p.Gone || p.UID != 0 || p.Cgroup.Found(), "%s: %+v", file, p)
	}
}

// swapAtCgroup makes a process's cgroup a named pipe, so that a reader stops there, and runs change while it does.
func swapAtCgroup(t *testing.T, folder string, change func()) (done chan struct{}) {
	t.Helper()
	pipe := pipe(folder, "cgroup")
	done = make(chan struct{})
	go func() {
		defer close(done)
		f, err := writer(pipe)
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
		want   record.Process
	}{
		"reused": {func(t *testing.T, proc, folder string) {
			check(os.Remove(filepath.Join(folder, "stat"))) // what the open folder shows once its process has ended
			check(os.Rename(folder, filepath.Join(proc, "old")))
			next := fixture(t, proc, "10", "0::/\n", "SLURM_JOB_ID=99\x00")
			must.Write(t, filepath.Join(next, "stat"), "10 (next) R"+statTail)
		}, record.Process{PID: 10, Start: 1234560 * time.Millisecond, UID: 1000, Name: "next", State: "R", EnvJobID: 99}},
		"another start": {func(t *testing.T, proc, folder string) {
			must.Write(t, filepath.Join(folder, "stat"), "10 (next) R"+strings.Replace(statTail, "123456", "123457", 1))
			check(os.Remove(filepath.Join(folder, "cgroup")))
			must.Write(t, filepath.Join(folder, "cgroup"), "0::/\n")
		}, record.Process{PID: 10, Start: 1234570 * time.Millisecond, UID: 1000, Name: "next", State: "R"}},
		"ended": {func(t *testing.T, proc, folder string) {
			check(os.Remove(filepath.Join(folder, "stat")))
			check(os.Rename(folder, filepath.Join(proc, "old")))
		}, record.Process{PID: 10, Gone: true}},
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

// pipe makes a file of a process a named pipe: whoever reads it waits for a writer.
func pipe(folder, file string) string {
	name := filepath.Join(folder, file)
	check(os.Remove(name))
	check(unix.Mkfifo(name, 0o600))
	return name
}

// writer opens a named pipe for writing when its reader is there. It does not sleep in open: a signal that interrupts
// that makes its reader, which has met it, read an end, and then waits for another reader for ever.
func writer(pipe string) (*os.File, error) {
	for {
		fd, err := unix.Open(pipe, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), pipe), nil
		case !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.EINTR):
			return nil, err
		}
		time.Sleep(time.Millisecond)
	}
}

// However many processes hang, at whatever is read of them, all others are answered for; and who was proven to be a
// job's before the memory of the process was asked for is known all the same.
func TestHungProcessesAreUnknownAlone(t *testing.T) {
	const others = 100
	proc, pids := t.TempDir(), []int{0}
	hung := map[int]string{10: "stat", 11: "status", 12: "cgroup", 13: "environ", 14: "environ"}
	for i := range maxWorkers + 1 { // as many as a crew has hands
		hung[20+i] = "stat"
	}
	var pipes []string
	for pid, file := range hung {
		cgroup := jobCgroup
		if pid == 14 {
			cgroup = "0::/\n"
		}
		pids, pipes = append(pids, pid), append(pipes, pipe(fixture(t, proc, strconv.Itoa(pid), cgroup, ""), file))
	}
	for i := range others {
		fixture(t, proc, strconv.Itoa(100+i), jobCgroup, "SLURM_JOB_ID=78\x00")
		pids = append(pids, 100+i)
	}
	c := newCrew(time.Hour)
	s, answer := &survey{proc: proc, known: map[int]record.Process{}}, make(chan []record.Process)
	go func() { answer <- s.of(c, pids) }()
	for _, pipe := range pipes {
		f := must.Have(writer(pipe))(t) // the reader then waits for text
		defer f.Close()
	}
	for read := false; !read; { // while those hang
		unix.Nanosleep(&unix.Timespec{Nsec: int64(time.Millisecond)}, nil)
		s.mu.Lock()
		read = true
		for i := range others {
			read = read && s.known[100+i].EnvJobID == 78
		}
		s.mu.Unlock()
	}
	c.end()
	for i, p := range <-answer {
		proven := p.PID == pids[i] && p.Why == "" && p.Cgroup.ID == 77 && (p.EnvJobID == 78) == (p.PID >= 100)
		unknown := p.PID == pids[i] && !p.Cgroup.Found() && !p.Gone && (p.UID == 0 || p.PID == 14) &&
			(strings.Contains(p.Why+p.EnvUnknown, "does not answer") || p.PID == 0 && p.Why != "")
		want := pids[i] == 13 || pids[i] >= 100
		must.Not(t, want != proven || want == unknown, "process %d: %+v", pids[i], p)
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
		if role == "thread of its own" {
			break
		}
		fd, err := unix.Open(name, unix.O_RDONLY, 0)
		check(err)
		if role == "mapped" { // and has no descriptor
			_, err = unix.Mmap(fd, 0, 1, unix.PROT_READ, unix.MAP_PRIVATE)
			check(err)
			check(unix.Close(fd))
		}
	}
	switch role {
	case "container":
		contain(os.Getenv("BOOKEND_TEST_PATH"))
	case "odd name":
		check(os.WriteFile("/proc/self/comm", []byte(oddName), 0))
	case "thread of its own": // with a table of descriptors that no other has
		opened := make(chan error)
		go func() {
			runtime.LockOSThread()
			err := unix.Unshare(unix.CLONE_FILES)
			if err == nil {
				_, err = unix.Open(os.Args[1], unix.O_RDONLY, 0)
			}
			opened <- err
			select {}
		}()
		check(<-opened)
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
		must.Write(t, filepath.Join(dev, name), "")
	}
	must.Do(t, os.Chmod(filepath.Dir(dev), 0o755))
	return dev
}

// A process that uses a GPU is a job's by its cgroup; where that names no job, by its user and its environment. One that
// cannot be looked into hides no other.
func TestUsing(t *testing.T) {
	const env = "SLURM_JOB_ID=77\x00"
	for name, tc := range map[string]struct {
		cgroup, environ string
		in              slurm.Owner
		want            bool
	}{
		"job":       {jobCgroup, "", slurm.Owner{ID: 77}, true},
		"other job": {jobCgroup, env, slurm.Owner{ID: 78}, false},
		"sluid": {"0::/system.slice/slurmstepd.scope/sCHNM7Y8WBK900/step_0/user/task_0\n", "",
			slurm.Owner{SLUID: "sCHNM7Y8WBK900"}, true},
		"left the run's cgroup": {"0::/\n", env, slurm.Owner{ID: 77, SLUID: "sCHNM7Y8WBK900"}, true},
		"slurm's own": {"0::/system.slice/slurmstepd.scope/job_77/step_0/slurm\n", env, slurm.Owner{ID: 77},
			false},
		"two jobs named":     {jobCgroup + "1:cpu:/slurm/uid_0/job_78/step_0\n", env, slurm.Owner{ID: 77}, false},
		"no cgroup, environ": {"0::/\n", env, slurm.Owner{ID: 77}, true},
		"no cgroup, sluid":   {"0::/\n", "SLURM_JOB_ID=0\x00", slurm.Owner{SLUID: "sCHNM7Y8WBK900"}, false},
	} {
		proc := t.TempDir()
		must.Write(t, filepath.Join(fixture(t, proc, "100000009", tc.cgroup, tc.environ), "fd"), "") // cannot be listed
		must.Link(t, filepath.Join(fixture(t, proc, "100000010", tc.cgroup, tc.environ), "fd/3"), "/dev/nvidia1")
		must.Link(t, filepath.Join(fixture(t, proc, "100000011", tc.cgroup, tc.environ), "fd/3"), "/dev/nvidiactl")
		var want []OfJob
		if tc.want {
			want = []OfJob{{100000010, "py (x"}}
		}
		must.Be(t, name, must.Have(openDevices(JobRequest{Proc: proc, Dev: "/dev", UID: 1000, Owner: tc.in}))(t), want)
	}
}

// Of the job's processes those of a name.
func TestNamed(t *testing.T) {
	proc := t.TempDir()
	for pid, name := range map[string]string{"100000001": "srun", "100000002": "bash", "100000003": "srun"} {
		must.Write(t, filepath.Join(fixture(t, proc, pid, jobCgroup, ""), "stat"), pid+" ("+name+") S"+statTail)
	}
	want := []OfJob{{100000001, "srun"}, {100000003, "srun"}}
	must.Be(t, "the job's", must.Have(Named(proc, "srun", 1000, slurm.Owner{ID: 77}))(t), want)
	must.Be(t, "another's", must.Have(Named(proc, "srun", 1000, slurm.Owner{ID: 78}))(t), nil)
}

// A user looks into no other's process, root into all.
func TestForeign(t *testing.T) {
	proc, owner := t.TempDir(), os.Geteuid()
	fixture(t, proc, "5", jobCgroup, "")
	if owner == 0 {
		owner = 1000
		must.Do(t, os.Chown(filepath.Join(proc, "5"), owner, owner))
	}
	for euid, want := range map[int]bool{owner: false, owner + 1: true, 0: false} {
		must.Be(t, fmt.Sprintf("user %d's view of one of user %d", euid, owner), foreign(proc, euid)(5), want)
	}
	must.Be(t, "one that has ended", foreign(proc, owner)(6), true)
}

// holdersOf searches the real /proc and returns who holds what, without the processes themselves.
func holdersOf(t *testing.T, dev string) (map[int]record.Process, map[int]record.Holding) {
	t.Helper()
	must.SeeAll(t)
	scan := Scan("/proc", dev, time.Minute)
	must.Not(t, scan.Looked == 0 || scan.Partial != "", "looked into %d, partial: %s", scan.Looked, scan.Partial)
	processes, held := map[int]record.Process{}, map[int]record.Holding{}
	for _, h := range scan.Holdings {
		pid := h.PID
		processes[pid], h.Process = h.Process, record.Process{}
		held[pid] = h
	}
	return processes, held
}

func TestRealHolders(t *testing.T) {
	dev := devices(t, "nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps/nvidia-cap1",
		"nvidia-modeset")
	other := devices(t, "nvidia0")
	at := func(names ...string) (files []string) {
		for _, name := range names {
			files = append(files, filepath.Join(dev, name))
		}
		return files
	}
	want := map[int]record.Holding{
		start(t, "idle", nil, at("nvidia3", "nvidiactl", "nvidia-uvm", "nvidia0", "nvidia3")...): {Minors: []int{0, 3},
			Control: true, UVM: true},
		start(t, "idle", nil, at("nvidiactl")...):                            {Control: true},
		start(t, "idle", nil, at("nvidia-uvm")...):                           {UVM: true},
		start(t, "idle", nil, at("nvidia-uvm-tools")...):                     {UVM: true},
		start(t, "idle", nil, at("nvidia-caps/nvidia-cap1")...):              {Caps: true},
		start(t, "idle", as(65534), at("nvidia0")...):                        {Minors: []int{0}},
		start(t, "odd name", nil, at("nvidia0")...):                          {Minors: []int{0}},
		start(t, "mapped", nil, at("nvidia3", "nvidia-uvm")...):              {Minors: []int{3}, UVM: true},
		awaitZombie(t, start(t, "first thread ends", nil, at("nvidia3")...)): {Minors: []int{3}},
	}
	inside := start(t, "idle", func(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID} },
		at("nvidia0")...)
	want[inside] = record.Holding{Minors: []int{0}}
	start(t, "idle", nil, at("nvidia-modeset")...)
	start(t, "idle", nil, filepath.Join(other, "nvidia0"))
	start(t, "idle", nil)
	own := must.Have(os.Open(filepath.Join(dev, "nvidia0")))(t)
	defer own.Close()
	processes, got := holdersOf(t, dev)
	must.Be(t, "holders", got, want)
	for pid, p := range processes {
		if again := one(t, "/proc", pid); !alike(p, again) || p.Start == 0 || p.Exe == "" || p.OtherPIDs != (pid == inside) {
			t.Errorf("a holder is %+v, looked up it is %+v", p, again)
		}
	}
}

// alike compares what two looks at one process found; what it was doing just then may differ.
func alike(a, b record.Process) bool {
	a.State, b.State = "", ""
	return reflect.DeepEqual(a, b)
}

// A container's /dev shows as /dev, whatever the host's is called.
func TestRealContainer(t *testing.T) {
	dev := filepath.Join(devices(t), "dev")
	root := t.TempDir()
	pid := start(t, "container", func(c *exec.Cmd) {
		c.Env = append(c.Env, "BOOKEND_TEST_PATH="+root)
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	})
	_, got := holdersOf(t, dev)
	must.Be(t, "held", got[pid], record.Holding{Minors: []int{2, 3, 4}})
}

// holder writes a process's folder with descriptors on these files.
func holder(t *testing.T, proc, pid string, targets ...string) string {
	t.Helper()
	folder := fixture(t, proc, pid, jobCgroup, "SLURM_JOB_ID=78\x00")
	for i, target := range targets {
		must.Link(t, filepath.Join(folder, "fd", string(rune('3'+i))), target)
	}
	if len(targets) == 0 {
		check(os.Mkdir(filepath.Join(folder, "fd"), 0o755))
	}
	must.Write(t, filepath.Join(folder, "maps"), mapLine("/usr/lib/libcuda.so.1"))
	return folder
}

func mapLine(path string) string {
	return "7f65389df000-7f65389e0000 r--p 00000000 00:28 2                          " + path + "\n"
}

// pidsOf are the holders that a search of a tree names.
func pidsOf(scan record.Scan) (pids []int) {
	for _, h := range scan.Holdings {
		pids = append(pids, h.PID)
	}
	return pids
}

func TestScanOfATree(t *testing.T) {
	proc := t.TempDir()
	must.Link(t, filepath.Join(proc, "self/ns/mnt"), "mnt:[1]")
	holder(t, proc, "10", "/dev/nvidia1", "/dev/nvidiactl")
	holder(t, proc, "11", "/srv/dev/nvidia1", "/memfd:x/dev/nvidia1 (deleted)", "/dev/null")
	mapped := holder(t, proc, "12", "/dev/null")
	must.Write(t, filepath.Join(mapped, "maps"),
		mapLine("/usr/lib/libcuda.so.1")+mapLine("/dev/nvidia1")+mapLine("/dev/nvidia-uvm (deleted)"))
	chroot := holder(t, proc, "13", "/srv/dev/nvidia1")
	must.Link(t, filepath.Join(chroot, "root"), "/srv")
	container := holder(t, proc, "14", "/host/dev/nvidia-caps/nvidia-cap2")
	must.Link(t, filepath.Join(container, "ns/mnt"), "mnt:[2]")
	must.Write(t, filepath.Join(container, "cgroup"), "0::/system.slice/docker-"+hex64+".scope\n")
	must.Link(t, filepath.Join(container, "exe"), "/usr/bin/python3")
	scan := Scan(proc, "/dev/", time.Minute)
	must.Be(t, "holders", pidsOf(scan), []int{10, 12, 13, 14})
	must.Not(t, scan.Looked != 5 || scan.Partial != "", "%+v", scan)
	own, maps, foreign := scan.Holdings[0], scan.Holdings[1], scan.Holdings[3]
	must.Not(t, !own.Control || own.Cgroup.ID != 77 || own.EnvJobID != 78 || own.UID != 1000, "%+v", own)
	must.Not(t, !maps.UVM || !slices.Equal(maps.Minors, []int{1}) || maps.EnvJobID != 78, "%+v", maps)
	must.Not(t, !foreign.Caps || foreign.Container != "docker:0123456789ab" || foreign.Service != "" ||
		foreign.Exe != "/usr/bin/python3", "%+v", foreign)
}

func says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		must.Not(t, !strings.Contains(text, word), "no %q in %q", word, text)
	}
}

// What was not looked at is said; as from inside a PID namespace of its own, where the rest of the node cannot be seen.
func TestScanWithoutTime(t *testing.T) {
	proc, inside := t.TempDir(), t.TempDir()
	holder(t, proc, "10", "/dev/nvidia1")
	scan := Scan(proc, "/dev", 0)
	must.Be(t, "holders", len(scan.Holdings), 0)
	says(t, scan.Partial, "descriptors of 1 of 1 processes", "no mappings")
	says(t, Scan(filepath.Join(proc, "none"), "/dev", time.Minute).Partial, "list processes: ")
	says(t, Scan(t.TempDir(), "/dev", time.Minute).Partial, "no process could be looked into")
	holder(t, inside, "10", "/dev/nvidia1")
	must.Link(t, filepath.Join(inside, "self/ns/pid"), "pid:[4026532999]")
	says(t, Scan(inside, "/dev", time.Minute).Partial, "PID namespace")
}

// What cannot be read is said, and does not hide what can.
func TestScanUnreadable(t *testing.T) {
	proc := t.TempDir()
	holder(t, proc, "10", "/dev/nvidia1")
	noFolder := fixture(t, proc, "11", jobCgroup, "")
	must.Write(t, filepath.Join(noFolder, "fd"), "")
	must.Write(t, filepath.Join(noFolder, "maps"), "")
	noLink := holder(t, proc, "12", "/dev/nvidiactl")
	must.Write(t, filepath.Join(noLink, "fd/9"), "")
	unknown := holder(t, proc, "13", "/dev/nvidia2")
	must.Write(t, filepath.Join(unknown, "status"), "garbage")
	noLine := holder(t, proc, "14", "/dev/null")
	must.Write(t, filepath.Join(noLine, "maps"), strings.Repeat("x", 1<<17))
	scan := Scan(proc, "/dev", time.Minute)
	must.Be(t, "holders", pidsOf(scan), []int{10, 12, 13})
	h := scan.Holdings[2]
	must.Not(t, h.Why == "" || h.UID != 0 || !reflect.DeepEqual(h.Minors, []int{2}), "%+v", h)
	must.Be(t, "unread", unreadOf(scan), []int{11, 12, 14})
	says(t, scan.Missed(), "process 11: ", "2 more")
}

// A holder ends while it is read: who has its PID then is another, and a child that it forked was in no list yet.
func TestScanWhileAHolderEnds(t *testing.T) {
	for next, name := range map[string]string{"10": "next", "9": "py (x"} {
		proc := t.TempDir()
		folder := holder(t, proc, "10", "/dev/nvidia1")
		done := swapAtCgroup(t, folder, func() {
			check(os.Remove(filepath.Join(folder, "stat")))
			check(os.Rename(folder, filepath.Join(proc, "old")))
			must.Write(t, filepath.Join(holder(t, proc, next, "/dev/nvidia2"), "stat"), next+" ("+name+") R"+statTail)
		})
		scan := Scan(proc, "/dev", time.Minute)
		<-done
		if h := scan.Holdings; len(h) != 1 || strconv.Itoa(h[0].PID) != next || h[0].Name != name ||
			!reflect.DeepEqual(h[0].Minors, []int{2}) || scan.Partial != "" {
			t.Errorf("%s: %+v", next, scan)
		}
	}
}

// A process or thread that ends while it is read leaves no doubt, whatever error the kernel gives for it: another thread
// is asked if one lives. An error about a process that still exists is reported.
func TestScanOfAProcessThatEnds(t *testing.T) {
	ends := func(file string) { check(os.WriteFile(file, []byte("10 (x) Z"+statTail), 0o644)) }
	for name, tt := range map[string]struct {
		change func(folder string)
		unread bool
		found  []int
	}{
		"lives": {func(string) {}, true, nil},
		"vanishes": {func(folder string) {
			check(os.Remove(filepath.Join(folder, "stat"))) // what the open directory shows from then on
			check(os.Rename(folder, folder+".old"))
		}, false, nil},
		"becomes a zombie": {func(folder string) { ends(filepath.Join(folder, "stat")) }, false, nil},
		"first thread ends": {func(folder string) {
			other := filepath.Join(folder, "task/11")
			must.Write(t, filepath.Join(other, "stat"), "11 (x) S"+statTail)
			must.Write(t, filepath.Join(other, "cgroup"), jobCgroup)
			must.Write(t, filepath.Join(other, "maps"), mapLine("/dev/nvidia2"))
			ends(filepath.Join(folder, "stat"))
		}, false, []int{10}},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			folder := holder(t, proc, "10", "/dev/null")
			maps, answer := pipe(folder, "maps"), make(chan record.Scan)
			go func() { answer <- Scan(proc, "/dev", time.Hour) }()
			await(t, maps, func() string {
				unreadable := strings.Repeat("x", maxLine) // an error, as a directory tree refuses nothing to root
				check(os.Remove(maps))
				must.Write(t, maps, unreadable)
				tt.change(folder)
				return unreadable
			})
			scan := <-answer
			must.Not(t, scan.Partial != "" || (len(scan.Unread) > 0) != tt.unread, "%+v", scan)
			must.Be(t, "holders", pidsOf(scan), tt.found)
		})
	}
}

// A thread that ends after its descriptors were listed shows only some of them: the others are read from another thread.
func TestDescriptorsOfAThreadThatEnds(t *testing.T) {
	proc := t.TempDir()
	folder := holder(t, proc, "10", "/dev/null", "/dev/null", "/dev/nvidia1")
	other := filepath.Join(folder, "task/11")
	must.Write(t, filepath.Join(other, "stat"), "11 (x) S"+statTail)
	must.Link(t, filepath.Join(other, "fd/5"), "/dev/nvidia1")
	f := must.Have(openProcDir(proc, 10))(t)
	defer f.close()
	var seen []string
	once := sync.OnceFunc(func() {
		must.Write(t, filepath.Join(folder, "stat"), "10 (x) Z"+statTail)
		check(os.RemoveAll(filepath.Join(folder, "fd")))
	})
	going := func() bool { once(); return true }
	err := f.answered(func(n *int) error {
		return f.descriptors(going, func(target []byte) { *n++; seen = append(seen, string(target)) })
	})
	must.Not(t, err != nil || !slices.Contains(seen, "/dev/nvidia1"), "%q, %v", seen, err)
}

// A defect ends one worker, and says so; of too many holders the first are kept.
func TestScanBounds(t *testing.T) {
	c := newCrew(time.Hour)
	defer c.end()
	c.wait(c.send(1, []int{10, 11}, func(int) { panic("defect") }), "descriptors")
	says(t, c.partial(), "ended early: panic: defect", "2 of 2")
	s := &search{crew: newCrew(time.Hour), found: map[int]held{}}
	defer s.end()
	for pid := range maxHoldings + 1 {
		s.keep(pid, held{})
	}
	must.Be(t, "holders", len(s.found), maxHoldings)
	says(t, s.partial(), "more than 1024 holders")
}

// await gives a reader that waits at the pipe what text returns then.
func await(t *testing.T, pipe string, text func() string) {
	t.Helper()
	f := must.Have(writer(pipe))(t)
	defer f.Close()
	must.Have(f.WriteString(text()))(t)
}

// However many processes hang, the others are read, at no cost but what the hanging ones were asked; the search names all
// at which it hangs.
func TestHangingProcesses(t *testing.T) {
	const many = 2*maxWorkers + 1 // of holders, and of others
	proc := t.TempDir()
	var stuck []string
	for i := range many {
		stuck = append(stuck,
			pipe(holder(t, proc, strconv.Itoa(100+i), "/dev/nvidia1"), "maps"),
			pipe(holder(t, proc, strconv.Itoa(200+i), "/dev/null"), "maps"))
	}
	holder(t, proc, "199", "/dev/nvidia3") // the last of the holders
	slow := pipe(holder(t, proc, "298", "/dev/null"), "maps")
	last := pipe(holder(t, proc, "299", "/dev/null"), "maps")
	c := newCrew(time.Hour)
	defer c.end()
	s := newSearch(c, proc, "/dev")
	answer := make(chan record.Scan)
	go func() {
		s.descriptors()
		s.mappings()
		answer <- s.result()
	}()
	for _, pipe := range stuck {
		f := must.Have(writer(pipe))(t) // the reader then waits for text
		defer f.Close()
	}
	await(t, slow, func() string { // it seems to be a holder, and is read again as a whole
		must.Write(t, slow+".next", mapLine("/dev/nvidia2"))
		check(os.Rename(slow+".next", slow))
		return mapLine("/dev/nvidia2")
	})
	await(t, last, func() string { return "" })
	for read := false; !read; { // while those hang
		unix.Nanosleep(&unix.Timespec{Nsec: int64(time.Millisecond)}, nil)
		s.mu.Lock()
		read = s.found[199].EnvJobID == 78 && s.found[298].EnvJobID == 78
		s.mu.Unlock()
	}
	c.end()
	scan := <-answer
	must.Be(t, "holders", len(scan.Holdings), many+2)
	h := scan.Holdings[0]
	must.Not(t, h.Why != "" || h.Cgroup.ID != 77 || h.EnvJobID != 0, "a holder that hangs: %+v", h)
	var hung []int // those that were read when time was up may be among them: their worker had not said so yet
	for _, at := range scan.Hung {
		hung = append(hung, at.PID)
	}
	stuckOf := func(pids []int) int {
		return len(slices.DeleteFunc(pids, func(pid int) bool { return pid%100 > many }))
	}
	must.Be(t, "hung", stuckOf(hung), 2*many)
	must.Be(t, "unread", stuckOf(unreadOf(record.Scan{Unread: s.unread(time.Hour)})), 2*many)
}

// Where the memory of no process may be read, descriptors and cgroups still are.
func TestMemoryOfAllIsSkipped(t *testing.T) {
	proc, every := t.TempDir(), record.Instance{}
	own := holder(t, proc, "10", "/dev/nvidia1")
	for _, file := range []string{"maps", "environ"} {
		pipe(own, file)
	}
	scan := Scan(proc, "/dev", time.Hour, every)
	must.Be(t, "holders", pidsOf(scan), []int{10})
	says(t, scan.Partial, "no mappings")
	p := Processes(proc, "", []int{10}, time.Hour, every)[0]
	must.Not(t, p.Cgroup.ID != 77 || p.EnvJobID != 0 || p.Why != "", "%+v", p)
}

func TestRefused(t *testing.T) {
	for _, tc := range []struct {
		pid      int
		err      error
		is, said bool
	}{
		{10, nil, false, false},
		{10, unix.ENOENT, false, false},
		{10, unix.ESRCH, false, false},
		{10, unix.EACCES, true, true},
		{10, errEnded, true, true},
		{1, unix.EACCES, true, false}, // the init of a sandbox
		{1, unix.EIO, true, true},
	} {
		c := newCrew(time.Hour)
		s := newSearch(c, "/proc", "/dev")
		is := s.refused(tc.pid, tc.err)
		must.Not(t, is != tc.is || (s.missed[tc.pid] != "") != tc.said, "%+v: %v, %v", tc, is, s.missed)
		c.end()
	}
}

var update = flag.Bool("update", false, "rewrite the files of testdata that say what follows")

func TestNodes(t *testing.T) {
	golden.Lines(t, *update, "testdata/nodes.txt", func(target string) (said string) {
		for _, foreign := range []bool{false, true} {
			var got held
			got.add([]byte(target), place{"/dev/", func() bool { return foreign }})
			said += fmt.Sprint(got.Open())
		}
		return said
	})
}

// statTail is what a kernel writes behind state and name, up to and with a start time of 1234.56 s.
const statTail = " 1 2 3 0 -1 4194560 100 0 0 0 5 6 0 0 20 0 1 0 123456 1000 200 18446744073709551615 1 1 0\n"

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestLongExe(t *testing.T) {
	proc := t.TempDir()
	must.Link(t, filepath.Join(fixture(t, proc, "10", jobCgroup, ""), "exe"),
		strings.Repeat("/deep", 100)+"/nvidia-cuda-mps-server")
	if p := one(t, proc, 10); len(p.Exe) != maxExe+len("...") || !strings.HasPrefix(p.Exe, "...") || !p.OfMPS() {
		t.Errorf("%d bytes: %q", len(p.Exe), p.Exe)
	}
	if p := one(t, "/proc", start(t, "idle", nil)); p.Exe != must.Have(os.Executable())(t) {
		t.Errorf("%q", p.Exe)
	}
}

// The job is that of the first entry of its name, and one that was cut off is none.
func FuzzEnviron(f *testing.F) {
	f.Add("A=1\x00SLURM_JOB_ID=77\x00B=2\x00", 9)
	f.Add("SLURM_JOB_ID=4294967295", 3)
	for _, text := range []string{
		"XSLURM_JOB_ID=1\x00SLURM_JOB_ID=\x00SLURM_JOB_ID=5\x00", "SLURM_JOB_ID=7\x00SLURM_JOB_ID=8\x00", "SLURM_JOB_ID=77",
		"A=SLURM_JOB_ID=77\x00", "SLURM_JOB_ID=7x\x00SLURM_JOB_ID=8\x00", "SLURM_JOB_ID=4294967296\x00",
		"A=1\x00SLURM_JOB_ID=77", "SLURM_JOB_ID=77\x00A=", "", "JPY_PARENT_PID=7\x00SLURM_JOB_ID=77\x00", "XJPY_PARENT_PID=7\x00",
	} {
		f.Add(text, max(0, len(text)-1))
		f.Add(text, len(text))
	}
	f.Fuzz(func(t *testing.T, text string, at int) {
		plain := slurm.JobID(0)
		whole, notebook := parseEnviron(text, nil)
		for _, entry := range strings.Split(text, "\x00") {
			if name, value, _ := strings.Cut(entry, "="); name == "SLURM_JOB_ID" && strings.Contains(entry, "=") {
				if id, ok := slurm.ParseJobID(value); ok {
					plain = id
				}
				break
			}
		}
		must.Not(t, whole != plain, "%q: %d, not %d", text, whole, plain)
		if at < 0 || at > len(text) {
			return
		}
		part, also := parseEnviron(wholeEntries(text[:at]), nil)
		must.Not(t, also && !notebook, "cut at %d, %q is a notebook's", at, text)
		must.Not(t, part != 0 && part != whole, "cut at %d, %q reads %d for %d", at, text, part, whole)
	})
}

// nodeForm is what the driver's nodes are called, below any folder.
var nodeForm = regexp.MustCompile(`(?s)^(/.*)?/(nvidiactl|nvidia-uvm|nvidia-uvm-tools|nvidia(0|[1-9][0-9]{0,6})|nvidia-caps/nvidia-cap[^/]*|dri/renderD(0|[1-9][0-9]{0,6}))$`)

func FuzzNode(f *testing.F) {
	for _, seed := range []string{"/dev/nvidia0", "/nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap1 (deleted)",
		"/dev/dri/renderD128", "/dri/renderD0", "/dev/renderD128", "/memfd:/dev/nvidia0", "/dmabuf:/nvidiactl",
		"/dev/nvidia00", "/dev/nvidia1048576", "/home/u/nvidia0", "/c/rootfs/dev/nvidia-uvm", "pipe:[1]",
		"/dev/nvidia0 (deleted)"} {
		f.Add(seed, "/dev")
		f.Add(seed, "")
	}
	f.Fuzz(func(t *testing.T, target, dev string) {
		n, folder, ok := parseNode(target)
		name := strings.TrimSuffix(target, deleted)
		if ok && (!nodeForm.MatchString(name) || n.Kind == 0 || !strings.HasPrefix(target, folder+"/") ||
			!mayBeNode([]byte(target))) {
			t.Errorf("%q: %+v in %q", target, n, folder)
		}
		must.Not(t, ok && n.Kind == gpu.CardNode && !strings.HasSuffix(name, strconv.Itoa(n.Minor)),
			"%q is GPU %d in %q", target, n.Minor, folder)
		must.Not(t, strings.HasPrefix(target, "/memfd:") && ok, "a process made up %q", target)
		var own, foreign held
		own.add([]byte(target), place{dev, func() bool { return false }})
		foreign.add([]byte(target), place{dev, func() bool { return true }})
		must.Not(t, own.Buffers != strings.HasPrefix(target, "/dmabuf:"), "%q: a dma-buf: %v", target, own.Buffers)
		own.Buffers, foreign.Buffers = false, false
		if foreign.any() && !ok || own.any() && !foreign.any() || own.any() && folder != "" &&
			folder != strings.TrimRight(dev, "/") {
			t.Errorf("%q below %q: %+v, elsewhere %+v", target, dev, own, foreign)
		}
	})
}

func FuzzMap(f *testing.F) {
	f.Add("/dev/nvidia0")
	f.Add("[anon: x] /dev/nvidia0")
	f.Add("7f65389df000-7f65389e0000 rw-s 00000000 00:05 1042                       /dev/nvidiactl")
	f.Fuzz(func(t *testing.T, text string) {
		if path := parseMap([]byte(text)); len(path) > 0 && (path[0] != '/' || !strings.HasSuffix(text, string(path))) {
			t.Errorf("%q: %q", text, path)
		}
		if strings.HasPrefix(text, "/") && !strings.Contains(text, "\n") {
			if path := parseMap([]byte(strings.TrimSuffix(mapLine(text), "\n"))); string(path) != text {
				t.Errorf("%q: %q", text, path)
			}
		}
		if anonymous := "[anon:" + text; !strings.Contains(text, "\n") {
			if path := parseMap([]byte(strings.TrimSuffix(mapLine(anonymous), "\n"))); len(path) > 0 {
				t.Errorf("%q is the file %q", anonymous, path)
			}
		}
	})
}
