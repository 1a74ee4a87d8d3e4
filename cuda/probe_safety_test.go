package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/protocol"
	"bookend/internal/safefile"
	"bookend/test/fakegpu"
	"bookend/test/must"
)

// held takes a test's lock of a card, as another hook does.
func held(t *testing.T, req protocol.Request, card int, exclusive bool) (release func()) {
	t.Helper()
	return must.Have(safefile.Lock(req.Probe.Locks[req.Devices[card].ID], 0, exclusive))(t)
}

func TestProbeTakesItsLock(t *testing.T) {
	w := world(t, "gpus=2")
	for _, exclusive := range []bool{true, false} { // another test, a reader
		req := probeOf(t, w, 0, 1)
		req.Probe.LockWait = 50 * time.Millisecond
		release := held(t, req, 0, exclusive)
		all := probed(t, req)
		if p := all[0]; p.Result != gpu.ProbeSkipped ||
			!strings.Contains(p.Why, "somebody else was testing or judging it for 50ms") {
			t.Errorf("locked: %s", text(t, p))
		}
		if p := all[1]; p.Result != gpu.ProbeOK {
			t.Errorf("the other GPU, after all the waiting: %s", text(t, p))
		}
		release()
		if p := probed(t, req)[0]; p.Result != gpu.ProbeOK {
			t.Errorf("let go: %s", text(t, p))
		}
		held(t, req, 0, true)() // and free again afterwards
	}
}

func TestProbeLocks(t *testing.T) {
	w := world(t, "gpus=2")
	req := probeOf(t, w, 0, 1)
	delete(req.Probe.Locks, req.Devices[1].ID)
	if all := probed(t, req); all[0].Device != req.Devices[1].ID || all[0].Why != "no lock was named for it" ||
		all[1].Result != gpu.ProbeOK {
		t.Errorf("one lock of two: %s", text(t, all))
	}
	req = probeOf(t, w, 0)
	must.Do(t, os.WriteFile(req.Probe.Locks[req.Devices[0].ID], nil, 0o666))
	must.Do(t, os.Chmod(req.Probe.Locks[req.Devices[0].ID], 0o666))
	if p := probed(t, req)[0]; p.Result != gpu.ProbeSkipped || !strings.Contains(p.Why, "lock ") {
		t.Errorf("a lock that anybody may hold: %s", text(t, p))
	}
}

// The wait for a lock cannot run into the deadline.
func TestProbeWaitsWithinItsTime(t *testing.T) {
	w := world(t, "gpus=1")
	req := probeOf(t, w, 0)
	req.DeadlineMillis, req.Probe.LockWait = 6000, time.Minute
	defer held(t, req, 0, false)()
	if p := probed(t, req)[0]; p.Result != gpu.ProbeSkipped || !strings.Contains(p.Why, "somebody else") {
		t.Errorf("got %s", text(t, p))
	}
}

// stuckWithMemory starts a test by hand that never gives its memory back, and waits until it has it.
func stuckWithMemory(t *testing.T, w *fakegpu.World, req protocol.Request, wrapper ...string) *byHand {
	t.Helper()
	must.Do(t, w.Set("on.cuMemRelease", "hang-hard"))
	req.Bookend = protocol.Version
	p := startByHand(t, line(t, req), wrapper...)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		used := must.Have(w.Used(0))(t)
		if used > 0 {
			return p
		}
		if time.Now().After(end) {
			t.Fatalf("no memory was taken: %s%s", p.stdout.String(), p.stderr.String())
		}
	}
}

// A test that is killed with memory in hand leaves neither that nor its lock; meanwhile nobody gets the lock, and only
// the card asked for is open.
func TestProbeKilledHalfWay(t *testing.T) {
	w := world(t, "")
	req := probeOf(t, w, 0)
	p := stuckWithMemory(t, w, req)
	if _, err := safefile.Lock(req.Probe.Locks[req.Devices[0].ID], 0, false); err == nil {
		t.Error("the lock was free while memory was taken")
	}
	open := must.Have(filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.cmd.Process.Pid)))(t)
	for _, fd := range open {
		if to, _ := os.Readlink(fd); to == w.Node(1) || to == w.Node(2) || to == w.Node(3) {
			t.Errorf("descriptor %s is of another GPU, %s", fd, to)
		}
	}
	must.Do(t, p.cmd.Process.Kill())
	p.wait(t)
	unused(t, w, 0)
	held(t, req, 0, true)()
	must.Do(t, w.Set("on.cuMemRelease", ""))
	if p := probed(t, req)[0]; p.Result != gpu.ProbeOK {
		t.Errorf("afterwards: %s", text(t, p))
	}
}

// A neighbour's memory and process stay as they are, and forbid the test.
func TestProbeLeavesNeighboursAlone(t *testing.T) {
	w := world(t, "gpus=2")
	p := start(t, w, "alloc", "--mib", "5000")
	req := probeOf(t, w, 0, 1)
	all := probed(t, req)
	if all[0].Result != gpu.ProbeSkipped || all[0].Why != fmt.Sprintf("another process is on the GPU: %d", p.PID) ||
		all[1].Result != gpu.ProbeOK {
		t.Errorf("got %s", text(t, all))
	}
	req.Probe.Known = []int{p.PID}
	known := probed(t, req)[0]
	if known.Result != gpu.ProbeOK || known.Free.Bytes != idleFree-5527*mib {
		t.Errorf("known: %s", text(t, known))
	}
	if used, err := w.Used(0); err != nil || used != 5527*mib {
		t.Errorf("the neighbour has %d bytes left, %v", used, err)
	}
}

// Who is there is asked before every search, and once more before a gap is told.
func TestProbeAsksAgainWhoIsThere(t *testing.T) {
	w := world(t, "gpus=1, on.cuMemCreate=rc 2")
	must.Do(t, w.Set("on.nvmlDeviceGetGraphicsRunningProcesses_v3", "rc 999 after 1"))
	if p := probed(t, probeOf(t, w, 0))[0]; p.Result != gpu.ProbeSkipped ||
		!strings.Contains(p.Why, "who is on the GPU is not known") || p.Attempts == 0 {
		t.Errorf("got %s", text(t, p))
	}
}

func TestProbeStaysAwayFromMPS(t *testing.T) {
	w := world(t, "gpus=1")
	script, folder := "../test/gpu/scenarios/mps.sh", filepath.Join(t.TempDir(), "mps")
	shell := func(verb string) {
		cmd := exec.Command(script, verb, folder)
		cmd.Env = append(os.Environ(), "PATH="+w.Dir()+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("mps.sh %s: %v\n%s", verb, err, out)
		}
	}
	shell("mps-up")
	defer shell("mps-down")
	pipe := filepath.Join(folder, "pipe")
	hostile := []string{"env", "CUDA_MPS_PIPE_DIRECTORY=" + pipe, "CUDA_VISIBLE_DEVICES=7",
		"CUDA_DEVICE_ORDER=FASTEST_FIRST"}
	req := probeOf(t, w, 0)
	p := stuckWithMemory(t, w, req, hostile...)
	holdings := must.Have(w.Holdings())(t)
	if len(holdings) != 1 || holdings[0].Context != 0 {
		t.Errorf("somebody became a client of MPS: %+v", holdings)
	}
	must.Do(t, p.cmd.Process.Kill())
	p.wait(t)

	req.Probe.Empty = pipe
	if p := probed(t, req)[0]; p.Result != gpu.ProbeSkipped || !strings.Contains(p.Why, "not empty") {
		t.Errorf("in the daemon's directory: %s", text(t, p))
	}
}

func TestProbeNeedsAnEmptyFolder(t *testing.T) {
	w := world(t, "gpus=1")
	dir := t.TempDir()
	empty, link, open, file := filepath.Join(dir, "empty"), filepath.Join(dir, "link"), filepath.Join(dir, "open"),
		filepath.Join(dir, "file")
	must.Do(t, os.Mkdir(empty, 0o700))
	must.Do(t, os.Symlink(empty, link))
	must.Do(t, os.Mkdir(open, 0o700))
	must.Do(t, os.Chmod(open, 0o777))
	must.Do(t, os.WriteFile(file, nil, 0o600))
	for folder, want := range map[string]string{
		"": "no empty directory was named", link: "not a directory", open: "others may write to it",
		file: "not a directory",
		dir:  "not empty", filepath.Join(dir, "none"): "no such file", empty: "",
	} {
		req := probeOf(t, w, 0)
		req.Probe.Empty = folder
		p := probed(t, req)[0]
		if skipped := p.Result == gpu.ProbeSkipped; skipped != (want != "") || !strings.Contains(p.Why, want) {
			t.Errorf("%q: got %s", folder, text(t, p))
		}
	}
}

// A limit that slurmd hands on says nothing about a card.
func TestProbeUnderALimit(t *testing.T) {
	w := world(t, "gpus=1")
	req := probeOf(t, w, 0)
	p := stuckWithMemory(t, w, req, "prlimit", "--as=8000000000:")
	limits := must.Have(os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.cmd.Process.Pid)))(t)
	for l := range strings.Lines(string(limits)) {
		if f := strings.Fields(l); strings.HasPrefix(l, "Max address space") && f[3] != "unlimited" {
			t.Errorf("got %s", l)
		}
	}
	must.Do(t, syscall.Kill(p.cmd.Process.Pid, syscall.SIGKILL))
	p.wait(t)
}
