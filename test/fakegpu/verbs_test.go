//go:build cgo

package fakegpu

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const context, listedContext = 527 * MiB, 518 * MiB // what one adds to used, and to its process's figure

func TestInnocentHolderHasTheControlNodeAlone(t *testing.T) {
	w := newWorld(t)
	p := start(t, w, "holdctl", "--name", "monitor [1] x")
	if got := heldNodes(t, w, p.PID); !slices.Equal(got, []string{"nvidiactl"}) {
		t.Errorf("holds %v", got)
	}
	if l := attach(t, w).look().Cards[0]; l.Used != 0 || l.Compute != nil {
		t.Errorf("%+v", l)
	}
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID)); err != nil || string(comm) != "monitor [1] x\n" {
		t.Errorf("comm %q, %v", comm, err)
	}
}

func TestLeaderlessShowsItsNodesByThreadAlone(t *testing.T) {
	w := newWorld(t, GPUs(1))
	p := start(t, w, "alloc", "--mib", "10", "--leader-exits")
	awaitState(t, p.PID, "Z")
	if got := openNodes(t, w, fmt.Sprintf("/proc/%d/fd", p.PID)); len(got) > 0 {
		t.Errorf("the process shows %v", got)
	}
	got := slices.Compact(openNodes(t, w, fmt.Sprintf("/proc/%d/task/*/fd", p.PID)))
	if !slices.Equal(got, []string{"nvidia-uvm", "nvidia0", "nvidiactl"}) {
		t.Errorf("its threads show %v", got)
	}
	if l := attach(t, w).look().Cards[0]; l.Used != 10*MiB+context || len(l.Compute) != 1 || l.Compute[0].PID != pid(p) {
		t.Errorf("%+v", l)
	}
}

// The PID is the host's, for the driver and in the ready line; inside it is 1.
func TestProcessInAnotherPIDNamespace(t *testing.T) {
	for name, user := range map[string]*syscall.Credential{"root": nil, "any user": {Uid: 65534, Gid: 65534}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p, err := w.StartAs(user, nil, "alloc", "--mib", "64", "--pidns")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.End)
			if l := attach(t, w).look().Cards[0]; l.Used != 64*MiB+context || len(l.Compute) != 1 || l.Compute[0].PID != pid(p) {
				t.Errorf("PID %d: %+v", p.PID, l)
			}
			own, err := os.Readlink("/proc/self/ns/pid")
			its, itsErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.PID))
			if err != nil || itsErr != nil || own == its {
				t.Errorf("namespaces %q and %q, %v, %v", own, its, err, itsErr)
			}
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
			if err != nil || !strings.Contains(string(status), fmt.Sprintf("NSpid:\t%d\t1\n", p.PID)) {
				t.Errorf("%v\n%s", err, status)
			}
			if got := heldNodes(t, w, p.cmd.Process.Pid); len(got) > 0 {
				t.Errorf("the process outside holds %v", got)
			}
			if err := p.Kill(); err != nil || p.cmd.ProcessState.ExitCode() != 128+9 {
				t.Errorf("%v; outside it ended as %v", err, p.cmd.ProcessState)
			}
		})
	}
}

func TestIPCImporterKeepsTheExportersMemory(t *testing.T) {
	w := newWorld(t)
	keep(t, w)
	c := attach(t, w)
	socket := filepath.Join(w.Dir(), "ipc.sock")
	exporter := start(t, w, "ipc-export", "--mib", "20480", "--socket", socket)
	alone := c.look().Cards[0]
	if want := []process{{pid(exporter), 20480*MiB + listedContext}}; alone.Used != 20480*MiB+context || !slices.Equal(alone.Compute, want) {
		t.Errorf("before anybody maps it: %+v", alone)
	}
	importer := start(t, w, "ipc-import", "--socket", socket)
	_ = exporter.cmd.Wait() // it ends by itself
	exporter.killed = true
	want := []process{{pid(importer), 20480*MiB + listedContext}}
	c.eventually("the importer alone", func(l look) bool {
		return l.Cards[0].Used == 20480*MiB+context && slices.Equal(l.Cards[0].Compute, want)
	})
	if used, err := w.Used(0); err != nil || used != 20480*MiB+context {
		t.Errorf("own reading: %d, %v", used, err)
	}
	if err := importer.Kill(); err != nil {
		t.Fatal(err)
	}
	c.eventually("free memory", func(l look) bool { return l.Cards[0].Used == 0 && l.Cards[0].Compute == nil })
}

func TestProbeIsListedNowhere(t *testing.T) {
	w := newWorld(t)
	c := attach(t, w)
	lock := filepath.Join(w.Dir(), "probe.lock")
	p := start(t, w, "probe", "--mib", "1024", "--lock", lock, "--gpu", "1")
	if l := c.look().Cards[1]; l.Used != (1024+3)*MiB || l.Compute != nil {
		t.Errorf("%+v", l)
	}
	if st, err := os.Stat(lock); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	f, err := os.Open(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("a reader's lock while the probe lives: %v", err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		t.Errorf("a reader's lock afterwards: %v", err)
	}
	if l := c.look().Cards[1]; l.Used != 0 {
		t.Errorf("afterwards: %+v", l)
	}
}

// Memory without a context: in use, and nobody is listed for it.
func TestMemoryOnlyClientIsUnlisted(t *testing.T) {
	w := newWorld(t)
	p := start(t, w, "alloc", "--mib", "1024", "--no-context")
	if l := attach(t, w).look().Cards[0]; l.Used != (1024+3)*MiB || l.Compute != nil {
		t.Errorf("%+v", l)
	}
	if n := times(t, w, p.PID, "nvidia0"); n != 1 {
		t.Errorf("holds nvidia0 %d times, want once", n)
	}
}

// With nobody else there the largest block is free - 2 MiB; with others it is what they left, less the same.
func TestProbeFindsTheLargest(t *testing.T) {
	const free = 143156 * MiB
	w := newWorld(t)
	c := attach(t, w)
	lock := filepath.Join(w.Dir(), "probe.lock")
	for name, others := range map[string]uint64{"alone": 0, "beside another": 30000} {
		t.Run(name, func(t *testing.T) {
			taken := uint64(0)
			if others > 0 {
				start(t, w, "alloc", "--mib", fmt.Sprint(others))
				taken = others*MiB + context
			}
			start(t, w, "probe", "--all", "--lock", lock)
			left := free - c.look().Cards[0].Used
			if left > 3*MiB {
				t.Errorf("%d MiB of %d are left free", left/MiB, (free-taken)/MiB)
			}
		})
	}
}

func TestNearlyFullCard(t *testing.T) {
	w := newWorld(t)
	start(t, w, "alloc", "--near-full", "200")
	if l := attach(t, w).look().Cards[0]; l.Free < 200*MiB || l.Free > 203*MiB || len(l.Compute) != 1 {
		t.Errorf("%d MiB free: %+v", l.Free/MiB, l)
	}
}

// Small pieces make the jumpy teardown.
func TestPieces(t *testing.T) {
	w := newWorld(t)
	start(t, w, "alloc", "--mib", "201", "--pieces-2mib")
	files, err := filepath.Glob(filepath.Join(w.Dir(), "alloc/[0-9]*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(text), fmt.Sprintf("memory %020d\n", 200*MiB)) || !strings.Contains(string(text), fmt.Sprintf("blocks %020d\n", 100)) {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestRefusedCombinations(t *testing.T) {
	w := newWorld(t)
	for _, args := range []string{
		"alloc --mib 2 --pidns --fork-hold", "alloc --mib 2 --workers 65", "ipc-import", "ipc-export --socket x",
		"probe --mib 2", "probe --lock x", "holdfd", "alloc --near-full 2 --no-context",
	} {
		if p, err := w.Start(strings.Fields(args)...); err == nil {
			p.End()
			t.Errorf("%q was accepted", args)
		}
	}
}

// A program that comes late is there from the beginning, and on no card until it is told.
func TestLateProgram(t *testing.T) {
	w := newWorld(t, GPUs(1))
	gate := filepath.Join(t.TempDir(), "gate")
	p := start(t, w, "alloc", "--mib", "64", "--after", gate)
	time.Sleep(50 * time.Millisecond)
	if l := attach(t, w).look().Cards[0]; l.Used != 0 || l.Compute != nil {
		t.Errorf("before: %+v", l)
	}
	if got := openNodes(t, w, fmt.Sprintf("/proc/%d/fd", p.PID)); len(got) > 0 {
		t.Errorf("before it has %v open", got)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		l := attach(t, w).look().Cards[0]
		if l.Used == 64*MiB+context && len(l.Compute) == 1 && l.Compute[0].PID == pid(p) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after: %+v", l)
		}
	}
}

// lines starts fakecuda and returns its first lines.
func lines(t *testing.T, w *World, n int, args ...string) []string {
	t.Helper()
	cmd := exec.Command(w.FakeCUDA(), args...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(ReadyTimeout, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		stop.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
	})
	var said []string
	for s := bufio.NewScanner(out); len(said) < n && s.Scan(); {
		said = append(said, s.Text())
	}
	if len(said) < n {
		t.Fatalf("it said %q, want %d lines", said, n)
	}
	return said
}

func TestProgramAtWorkTellsItsPace(t *testing.T) {
	w := newWorld(t, GPUs(1))
	said := lines(t, w, 4, "alloc", "--mib", "64", "--chunks", "4", "--beat", "20")
	if !strings.HasPrefix(said[0], "ready pid=") {
		t.Errorf("it began with %q", said[0])
	}
	last := 0.0
	for _, line := range said[1:] {
		var from, to, worst float64
		var uses int
		if n, err := fmt.Sscanf(line, "beat from_ms=%f to_ms=%f uses=%d worst_ms=%f", &from, &to, &uses, &worst); n != 4 {
			t.Fatalf("%q: %v", line, err)
		}
		if from < last || to-from < 20 || uses < 1 || worst <= 0 || worst > to-from || float64(uses) > to-from {
			t.Errorf("%q after %f: a use takes the fake driver a ms", line, last)
		}
		last = to
	}
}

// Whoever watches for the most that is in use says what is there at first, and what comes, and nothing when that goes.
func TestHighest(t *testing.T) {
	w := newWorld(t, GPUs(1))
	p := start(t, w, "alloc", "--mib", "64")
	cmd := exec.Command(w.FakeCUDA(), "highest", w.UUID(0))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(ReadyTimeout, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	said := bufio.NewScanner(out)
	next := func(want int) {
		t.Helper()
		if line := fmt.Sprintf("highest used=%d", want); !said.Scan() || said.Text() != line {
			t.Fatalf("it said %q, want %q", said.Text(), line)
		}
	}
	next(64*MiB + context)
	p.End()
	start(t, w, "alloc", "--mib", "128")
	next(128*MiB + context)
	_ = cmd.Process.Kill()
	if said.Scan() {
		t.Errorf("then it said %q", said.Text())
	}
	_ = cmd.Wait() // says that it was killed
}
