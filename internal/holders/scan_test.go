package holders

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
	"bookend/test/must"
)

// holdersOf searches the real /proc and returns who holds what, without the processes themselves.
func holdersOf(t *testing.T, dev string) (map[int]attrib.Process, map[int]attrib.Holding) {
	t.Helper()
	scan := Scan("/proc", dev, time.Minute)
	if scan.Looked == 0 || scan.Partial != "" {
		t.Errorf("looked into %d, partial: %s", scan.Looked, scan.Partial)
	}
	processes, held := map[int]attrib.Process{}, map[int]attrib.Holding{}
	for _, h := range scan.Holdings {
		pid := h.PID
		processes[pid], h.Process = h.Process, attrib.Process{}
		held[pid] = h
	}
	return processes, held
}

func user(uid uint32) func(*exec.Cmd) {
	return func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
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
	want := map[int]attrib.Holding{
		start(t, "idle", nil, at("nvidia3", "nvidiactl", "nvidia-uvm", "nvidia0", "nvidia3")...): {Minors: []int{0, 3},
			Control: true, UVM: true},
		start(t, "idle", nil, at("nvidiactl")...):                            {Control: true},
		start(t, "idle", nil, at("nvidia-uvm")...):                           {UVM: true},
		start(t, "idle", nil, at("nvidia-uvm-tools")...):                     {UVM: true},
		start(t, "idle", nil, at("nvidia-caps/nvidia-cap1")...):              {Caps: true},
		start(t, "idle", user(65534), at("nvidia0")...):                      {Minors: []int{0}},
		start(t, "odd name", nil, at("nvidia0")...):                          {Minors: []int{0}},
		awaitZombie(t, start(t, "first thread ends", nil, at("nvidia3")...)): {Minors: []int{3}},
	}
	start(t, "idle", nil, at("nvidia-modeset")...)
	start(t, "idle", nil, filepath.Join(other, "nvidia0"))
	start(t, "idle", nil)
	own := must.Have(os.Open(filepath.Join(dev, "nvidia0")))(t)
	defer own.Close()
	processes, got := holdersOf(t, dev)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for pid, p := range processes {
		if again := one(t, "/proc", pid); !alike(p, again) || p.Start == 0 || p.Exe == "" {
			t.Errorf("a holder is %+v, looked up it is %+v", p, again)
		}
	}
}

// alike compares what two looks at one process found; what it was doing just then may differ.
func alike(a, b attrib.Process) bool {
	a.State, b.State = "", ""
	return reflect.DeepEqual(a, b)
}

func TestRealOtherPIDs(t *testing.T) {
	dev := devices(t, "nvidia0")
	inside := start(t, "idle",
		func(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID} },
		filepath.Join(dev, "nvidia0"))
	beside := start(t, "idle", nil, filepath.Join(dev, "nvidia0"))
	processes, got := holdersOf(t, dev)
	if len(got) != 2 || !processes[inside].OtherPIDs || processes[beside].OtherPIDs {
		t.Errorf("%+v", processes)
	}
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
	if want := (attrib.Holding{Minors: []int{2, 3, 4}}); !reflect.DeepEqual(got[pid], want) {
		t.Errorf("%+v, want %+v", got[pid], want)
	}
}

// holder writes a process's folder with descriptors on these files.
func holder(t *testing.T, proc, pid string, targets ...string) string {
	t.Helper()
	folder := fixture(t, proc, pid, jobCgroup, "SLURM_JOB_ID=78\x00")
	for i, target := range targets {
		link(t, filepath.Join(folder, "fd", string(rune('3'+i))), target)
	}
	if len(targets) == 0 {
		check(os.Mkdir(filepath.Join(folder, "fd"), 0o755))
	}
	put(t, filepath.Join(folder, "maps"), mapLine("/usr/lib/libcuda.so.1"))
	return folder
}

func mapLine(path string) string {
	return "7f65389df000-7f65389e0000 r--p 00000000 00:28 2                          " + path + "\n"
}

// pidsOf are the holders that a search of a tree names.
func pidsOf(scan attrib.Scan) (pids []int) {
	for _, h := range scan.Holdings {
		pids = append(pids, h.PID)
	}
	return pids
}

func TestScanOfATree(t *testing.T) {
	proc := t.TempDir()
	link(t, filepath.Join(proc, "self/ns/mnt"), "mnt:[1]")
	holder(t, proc, "10", "/dev/nvidia1", "/dev/nvidiactl")
	holder(t, proc, "11", "/srv/dev/nvidia1", "/memfd:x/dev/nvidia1 (deleted)", "/dev/null")
	mapped := holder(t, proc, "12", "/dev/null")
	put(t, filepath.Join(mapped, "maps"),
		mapLine("/usr/lib/libcuda.so.1")+mapLine("/dev/nvidia1")+mapLine("/dev/nvidia-uvm (deleted)"))
	chroot := holder(t, proc, "13", "/srv/dev/nvidia1")
	link(t, filepath.Join(chroot, "root"), "/srv")
	container := holder(t, proc, "14", "/host/dev/nvidia-caps/nvidia-cap2")
	link(t, filepath.Join(container, "ns/mnt"), "mnt:[2]")
	put(t, filepath.Join(container, "cgroup"), "0::/system.slice/docker-"+hex64+".scope\n")
	link(t, filepath.Join(container, "exe"), "/usr/bin/python3")
	scan := Scan(proc, "/dev/", time.Minute)
	if want := []int{10, 12, 13, 14}; !reflect.DeepEqual(pidsOf(scan), want) || scan.Looked != 5 || scan.Partial != "" {
		t.Fatalf("%+v", scan)
	}
	if h := scan.Holdings[0]; !h.Control || h.Cgroup.ID != 77 || h.EnvJobID != 78 || h.UID != 1000 {
		t.Errorf("%+v", h)
	}
	if h := scan.Holdings[1]; !h.UVM || !reflect.DeepEqual(h.Minors, []int{1}) || h.EnvJobID != 78 {
		t.Errorf("%+v", h)
	}
	if h := scan.Holdings[3]; !h.Caps || h.Container != "container:0123456789ab" || h.Service != "" ||
		h.Exe != "/usr/bin/python3" {
		t.Errorf("%+v", h)
	}
}

func TestScanWithoutTime(t *testing.T) {
	proc := t.TempDir()
	holder(t, proc, "10", "/dev/nvidia1")
	scan := Scan(proc, "/dev", 0)
	if len(scan.Holdings) != 0 || !strings.Contains(scan.Partial, "descriptors of 1 of 1 processes") ||
		!strings.Contains(scan.Partial, "no mappings") {
		t.Errorf("%+v", scan)
	}
	if scan := Scan(filepath.Join(proc, "none"), "/dev", time.Minute); scan.Partial == "" {
		t.Errorf("no /proc at all is no trouble: %+v", scan)
	}
	if scan := Scan(t.TempDir(), "/dev", time.Minute); scan.Partial == "" {
		t.Errorf("no process at all is no trouble: %+v", scan)
	}
}

// What cannot be read is said, and does not hide what can.
func TestScanUnreadable(t *testing.T) {
	proc := t.TempDir()
	holder(t, proc, "10", "/dev/nvidia1")
	noFolder := fixture(t, proc, "11", jobCgroup, "")
	put(t, filepath.Join(noFolder, "fd"), "")
	put(t, filepath.Join(noFolder, "maps"), "")
	noLink := holder(t, proc, "12", "/dev/nvidiactl")
	put(t, filepath.Join(noLink, "fd/9"), "")
	unknown := holder(t, proc, "13", "/dev/nvidia2")
	put(t, filepath.Join(unknown, "status"), "garbage")
	noLine := holder(t, proc, "14", "/dev/null")
	put(t, filepath.Join(noLine, "maps"), strings.Repeat("x", 1<<17))
	scan := Scan(proc, "/dev", time.Minute)
	if want := []int{10, 12, 13}; !reflect.DeepEqual(pidsOf(scan), want) {
		t.Fatalf("%+v", scan)
	}
	if h := scan.Holdings[2]; h.Why == "" || h.UID != 0 || !reflect.DeepEqual(h.Minors, []int{2}) {
		t.Errorf("%+v", h)
	}
	for _, what := range []string{"process 11", "process 12", "process 14"} {
		if !strings.Contains(scan.Partial, what) {
			t.Errorf("nothing of %s in %q", what, scan.Partial)
		}
	}
	if strings.Contains(scan.Partial, "process 10") || strings.Contains(scan.Partial, "process 13") {
		t.Errorf("%q", scan.Partial)
	}
}

func TestScanReusedPID(t *testing.T) {
	proc := t.TempDir()
	folder := holder(t, proc, "10", "/dev/nvidia1")
	done := swapAtCgroup(t, folder, func() {
		check(os.Remove(filepath.Join(folder, "stat")))
		check(os.Rename(folder, filepath.Join(proc, "old")))
		next := holder(t, proc, "10", "/dev/nvidia2")
		put(t, filepath.Join(next, "stat"), "10 (next) R"+statTail)
	})
	scan := Scan(proc, "/dev", time.Minute)
	<-done
	if len(scan.Holdings) != 1 || scan.Holdings[0].Name != "next" ||
		!reflect.DeepEqual(scan.Holdings[0].Minors, []int{2}) || scan.Partial != "" {
		t.Errorf("a mix of two processes: %+v", scan)
	}
}

// A holder forks and ends while it is read: its child was in no list yet.
func TestScanFindsLateChild(t *testing.T) {
	proc := t.TempDir()
	folder := holder(t, proc, "10", "/dev/nvidia1")
	done := swapAtCgroup(t, folder, func() {
		check(os.Remove(filepath.Join(folder, "stat")))
		check(os.Rename(folder, filepath.Join(proc, "old")))
		holder(t, proc, "9", "/dev/nvidia1")
	})
	scan := Scan(proc, "/dev", time.Minute)
	<-done
	if want := []int{9}; !reflect.DeepEqual(pidsOf(scan), want) || scan.Partial != "" {
		t.Errorf("%+v", scan)
	}
}

// From inside a PID namespace the rest of the node cannot be seen, and a search says so.
func TestSearchInsideAPIDNamespace(t *testing.T) {
	proc := t.TempDir()
	link(t, filepath.Join(proc, "self/ns/pid"), "pid:[4026532999]")
	link(t, filepath.Join(proc, "self", mountLink), "mnt:[1]")
	if got := Scan(proc, "/dev", time.Second); !strings.Contains(got.Partial, "PID namespace") {
		t.Errorf("%+v", got)
	}
}

// hang makes a process's maps a named pipe: whoever reads it waits for a writer.
func hang(t *testing.T, folder string) (pipe string) {
	t.Helper()
	pipe = filepath.Join(folder, "maps")
	check(os.Remove(pipe))
	check(unix.Mkfifo(pipe, 0o600))
	return pipe
}

// await gives a reader that waits at the pipe what text returns then.
func await(t *testing.T, pipe string, text func() string) {
	t.Helper()
	f := must.Have(os.OpenFile(pipe, os.O_WRONLY, 0))(t)
	defer f.Close()
	if _, err := f.WriteString(text()); err != nil {
		t.Fatal(err)
	}
}

// Processes that hang do not stop the others, and cost no more than what they were asked.
func TestHangingProcesses(t *testing.T) {
	proc := t.TempDir()
	stuck := []string{hang(t, holder(t, proc, "10", "/dev/nvidia1")), hang(t, holder(t, proc, "11", "/dev/null"))}
	slow := hang(t, holder(t, proc, "12", "/dev/null"))
	last := hang(t, holder(t, proc, "13", "/dev/null"))

	c := newCrew(time.Hour)
	defer c.end()
	s := must.Have(newSearch(c, proc, "/dev"))(t)
	answer := make(chan attrib.Scan)
	go func() {
		s.descriptors()
		s.mappings()
		answer <- s.result()
	}()
	for _, pipe := range stuck {
		f := must.Have(os.OpenFile(pipe, os.O_WRONLY, 0))(t) // returns when the reader is there, who then waits for text
		defer f.Close()
	}
	await(t, slow, func() string { // it seems to be a holder, and is read again as a whole
		put(t, slow+".next", mapLine("/dev/nvidia2"))
		check(os.Rename(slow+".next", slow))
		return mapLine("/dev/nvidia2")
	})
	await(t, last, func() string { return "" })
	c.end()
	scan := <-answer
	if want := []int{10, 12}; !reflect.DeepEqual(pidsOf(scan), want) {
		t.Errorf("%+v", scan)
	}
	if h := scan.Holdings[0]; h.Why != "" || h.Cgroup.ID != 77 || h.EnvJobID != 0 {
		t.Errorf("a holder that hangs: %+v", h)
	}
	for _, what := range []string{"time was up", "holders of 1 of 1", "[10]", "11"} {
		if !strings.Contains(scan.Partial, what) {
			t.Errorf("no %q in %q", what, scan.Partial)
		}
	}
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
		s := &search{crew: c}
		if is := s.refused(tc.pid, tc.err); is != tc.is || (c.partial() != "") != tc.said {
			t.Errorf("process %d, %v: %v, %q", tc.pid, tc.err, is, c.partial())
		}
		c.end()
	}
}
