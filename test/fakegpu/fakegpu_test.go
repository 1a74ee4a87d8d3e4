//go:build cgo

package fakegpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/kmsg"
)

// newWorld makes a world that other users can reach.
func newWorld(t *testing.T, options ...Option) *World {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := New(filepath.Join(dir, "world"), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func start(t *testing.T, w *World, args ...string) *Program {
	t.Helper()
	p, err := w.Start(args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.End)
	return p
}

func set(t *testing.T, w *World, key, value string) {
	t.Helper()
	if err := w.Set(key, value); err != nil {
		t.Fatal(err)
	}
}

func keep(t *testing.T, w *World) {
	t.Helper()
	if err := w.StartKeeper(); err != nil {
		t.Fatal(err)
	}
}

func pid(p *Program) uint32 { return uint32(p.PID) }

// A fake node has a kernel log as a real one has, and it is the tests' own: what they remove stays away.
func TestKernelLog(t *testing.T) {
	w := newWorld(t)
	log := kmsg.Read(w.Dev(), &gpu.KernelMark{Seq: 1, At: time.Second})
	if log.Unknown != "" || log.Lost || log.Last.Seq != 2 || len(log.Xids)+len(log.Kills) != 0 {
		t.Errorf("%+v, want two harmless entries", log)
	}
	if err := os.Remove(w.KernelLog()); err != nil {
		t.Fatal(err)
	}
	set(t, w, "gpu0.ecc_corrected", "1")
	if _, err := os.Lstat(w.KernelLog()); !os.IsNotExist(err) {
		t.Errorf("after a change it is there again: %v", err)
	}
}

func TestIdleCards(t *testing.T) {
	w := newWorld(t)
	l := attach(t, w).look()
	if l.Version != "580.159.04" || len(l.Cards) != 4 {
		t.Fatalf("driver %q, %d cards", l.Version, len(l.Cards))
	}
	for gpu, c := range l.Cards {
		if c.Handle|c.Memory|c.Memory1|c.List != 0 {
			t.Errorf("card %d: a call failed: %+v", gpu, c)
		}
		if c.UUID != w.UUID(gpu) || c.Bus != "0000"+strings.ToUpper(w.BusID(gpu)) || c.Minor != gpu || c.Name != "NVIDIA H200" {
			t.Errorf("card %d is %+v", gpu, c)
		}
		if c.Total != 143771*MiB || c.Reserved != 615*MiB || c.Used != 0 || c.Free != (143771-615)*MiB || c.UsedV1 != 615*MiB {
			t.Errorf("card %d: memory %+v", gpu, c)
		}
		if len(c.Compute)+len(c.Graphics)+len(c.MPS) != 0 {
			t.Errorf("card %d lists processes: %+v", gpu, c)
		}
	}
}

func TestAllocation(t *testing.T) {
	w := newWorld(t)
	c := attach(t, w)
	p := start(t, w, "alloc", "--mib", "20480", "--gpu", "2")
	const client = (20480 + 527) * MiB
	got := c.look().Cards
	if got[2].Used != client || got[2].UsedV1 != client+615*MiB {
		t.Errorf("used %d, v1 %d; want %d and the reserved on top", got[2].Used, got[2].UsedV1, client)
	}
	if want := []process{{pid(p), client - 9*MiB}}; !slices.Equal(got[2].Compute, want) {
		t.Errorf("listed %v, want %v", got[2].Compute, want)
	}
	for _, gpu := range []int{0, 1, 3} {
		if got[gpu].Used != 0 || got[gpu].Compute != nil {
			t.Errorf("card %d: %+v", gpu, got[gpu])
		}
	}
	if used, err := w.Used(2); err != nil || used != client {
		t.Errorf("own reading: %d, %v", used, err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	// Nobody keeps: released is gone, however late somebody looks.
	if after := c.look().Cards[2]; after.Used != 0 || after.Compute != nil {
		t.Errorf("after its end: %+v", after)
	}
}

func TestTeardownTakesItsTime(t *testing.T) {
	w := newWorld(t)
	keep(t, w)
	c := attach(t, w)
	p := start(t, w, "alloc", "--mib", "138000")
	began := time.Now()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if used, err := w.Used(0); err != nil || used != 0 {
		t.Errorf("held after the kill: %d, %v", used, err)
	}
	c.eventually("free memory", func(l look) bool { return l.Cards[0].Used == 0 && l.Cards[0].Compute == nil })
	if took := time.Since(began); took < 149*time.Millisecond {
		t.Errorf("teardown took %v, want 150ms at least", took)
	}
}

func TestTeardownListsTheDead(t *testing.T) {
	w := newWorld(t, With("teardown_ms", "3600000"))
	keep(t, w)
	c := attach(t, w)
	p := start(t, w, "alloc", "--mib", "1000")
	before := c.look().Cards[0]
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	after := c.look().Cards[0]
	if after.Used != before.Used || !slices.Equal(after.Compute, before.Compute) || len(after.Compute) != 1 {
		t.Errorf("before %+v, in teardown %+v", before, after)
	}
	if err := w.StopKeeper(); err != nil {
		t.Fatal(err)
	}
	if l := c.look().Cards[0]; l.Used != 0 || l.Compute != nil {
		t.Errorf("without keeper: %+v", l)
	}
	keep(t, w) // sweeps: what went unseen is no new teardown
	if l := c.look().Cards[0]; l.Used != 0 || l.Compute != nil {
		t.Errorf("with the next keeper: %+v", l)
	}
}

func TestJumpyTeardown(t *testing.T) {
	w := newWorld(t, With("teardown_ms", "3000"))
	keep(t, w)
	c := attach(t, w)
	p := start(t, w, "alloc", "--mib", "20000", "--chunks", "100") // chunks alone make it jumpy
	full := uint64(20000+527) * MiB
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	var curve []uint64
	var longest time.Duration
	c.eventually("free memory", func(l look) bool {
		used := l.Cards[0].Used
		if len(curve) == 0 || curve[len(curve)-1] != used {
			curve = append(curve, used)
		}
		for _, card := range l.Cards { // the first call blocks, whichever card it asks
			longest = max(longest, card.Took)
		}
		return used == 0
	})
	if want := []uint64{full, 512 * MiB, full, 0}; !slices.Equal(curve, want) {
		t.Errorf("curve %v, want %v", curve, want)
	}
	if longest < 380*time.Millisecond {
		t.Errorf("no call blocked: the longest took %v", longest)
	}
}

func TestForkHoldListsTheDeadParent(t *testing.T) {
	w := newWorld(t)
	keep(t, w)
	c := attach(t, w)
	p := start(t, w, "alloc", "--mib", "20480", "--fork-hold")
	if err := p.Kill(); err != nil || p.Holder == 0 || p.Holder == p.PID { // reaps it: it is dead
		t.Fatalf("%v: %+v", err, p)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", p.PID)); !os.IsNotExist(err) {
		t.Errorf("the parent is there: %v", err)
	}
	after := c.look().Cards[0]
	if want := []process{{pid(p), (20480 + 518) * MiB}}; after.Used != (20480+527)*MiB || !slices.Equal(after.Compute, want) {
		t.Errorf("after the parent's end %+v", after)
	}
	if got := heldNodes(t, w, p.Holder); !slices.Equal(got, []string{"nvidia-uvm", "nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl"}) {
		t.Errorf("the child holds %v", got)
	}
	if n := times(t, w, p.Holder, "nvidia0"); n != 20 {
		t.Errorf("the child holds nvidia0 %d times, want 20", n)
	}
	if err := syscall.Kill(p.Holder, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.eventually("free memory", func(l look) bool { return l.Cards[0].Used == 0 && l.Cards[0].Compute == nil })
}

// heldNodes names the world's device nodes that a process has open.
func heldNodes(t *testing.T, w *World, pid int) []string {
	t.Helper()
	return slices.Compact(openNodes(t, w, fmt.Sprintf("/proc/%d/fd", pid)))
}

// openNodes names them once for each descriptor.
func openNodes(t *testing.T, w *World, folder string) []string {
	t.Helper()
	links, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, link := range links {
		if to, _ := os.Readlink(link); filepath.Dir(to) == w.Dev() {
			nodes = append(nodes, filepath.Base(to))
		}
	}
	slices.Sort(nodes)
	return nodes
}

// times is how often a process has a node open.
func times(t *testing.T, w *World, pid int, node string) (n int) {
	t.Helper()
	for _, name := range openNodes(t, w, fmt.Sprintf("/proc/%d/fd", pid)) {
		if name == node {
			n++
		}
	}
	return n
}

func TestWorkersVanish(t *testing.T) {
	w := newWorld(t)
	c := attach(t, w)
	p := start(t, w, "alloc", "--mib", "100", "--workers", "3", "--workers-life", "0.3")
	if len(p.Children) != 3 {
		t.Fatalf("children %v", p.Children)
	}
	began := time.Now()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	c.eventually("free memory", func(l look) bool { return l.Cards[0].Used == 0 && l.Cards[0].Compute == nil })
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("memory went after %v; workers stay 300ms", took)
	}
}

func TestWorkersHoldTheDeadParentsMemory(t *testing.T) {
	w := newWorld(t)
	p := start(t, w, "alloc", "--mib", "100", "--workers", "2", "--workers-life", "3600")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if l := attach(t, w).look().Cards[0]; l.Used != (100+527)*MiB || len(l.Compute) != 1 || l.Compute[0].PID != pid(p) {
		t.Errorf("%+v", l)
	}
	for _, child := range p.Children {
		if n := times(t, w, child, "nvidia0"); n != 20 {
			t.Errorf("worker %d holds nvidia0 %d times, want 20", child, n)
		}
	}
}

func TestExportedMemoryHasNoProcess(t *testing.T) {
	w := newWorld(t)
	c := attach(t, w)
	socket := filepath.Join(w.Dir(), "export.sock")
	holder := start(t, w, "holdfd", socket)
	creator := start(t, w, "alloc", "--mib", "20480", "--export", socket)
	if l := c.look().Cards[0]; l.Used != (20480+527)*MiB || !slices.Equal(l.Compute, []process{{pid(creator), (20480 + 518) * MiB}}) {
		t.Errorf("while the creator lives: %+v", l)
	}
	if err := creator.Kill(); err != nil {
		t.Fatal(err)
	}
	if l := c.look().Cards[0]; l.Used != 20480*MiB || l.Compute != nil {
		t.Errorf("after the creator's end: %+v", l)
	}
	if got := heldNodes(t, w, holder.PID); !slices.Equal(got, []string{"nvidiactl"}) {
		t.Errorf("the holder holds %v", got)
	}
	if err := holder.Kill(); err != nil {
		t.Fatal(err)
	}
	if l := c.look().Cards[0]; l.Used != 0 {
		t.Errorf("after the holder's end: %+v", l)
	}
}

func TestMPSClientsStandInTwoLists(t *testing.T) {
	w := newWorld(t)
	p := start(t, w, "alloc", "--mib", "10", "--list", "mps")
	l := attach(t, w).look().Cards[0]
	if len(l.Compute) != 1 || len(l.MPS) != 1 || l.MPS[0].PID != pid(p) || l.Graphics != nil {
		t.Errorf("%+v", l)
	}
}

func TestStoppedAndLeaderless(t *testing.T) {
	w := newWorld(t)
	stopped := start(t, w, "alloc", "--mib", "10", "--stop")
	leaderless := start(t, w, "alloc", "--mib", "10", "--leader-exits")
	awaitState(t, stopped.PID, "T")
	awaitState(t, leaderless.PID, "Z")
	if l := attach(t, w).look().Cards[0]; l.Used != 2*(10+527)*MiB || len(l.Compute) != 2 {
		t.Errorf("%+v", l)
	}
}

func awaitState(t *testing.T, pid int, want string) {
	t.Helper()
	var got string
	await(t, "state "+want, func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		after := string(text[strings.LastIndexByte(string(text), ')')+1:])
		got = strings.TrimSpace(after)
		return strings.HasPrefix(got, want)
	}, func() string { return got })
}

func TestExecDropsMemory(t *testing.T) {
	w := newWorld(t)
	p := start(t, w, "alloc", "--mib", "10")
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", p.PID))
	for _, link := range links {
		to, _ := os.Readlink(strings.Replace(link, "fdinfo", "fd", 1))
		if !strings.HasPrefix(to, w.Dir()) {
			continue
		}
		info, err := os.ReadFile(link)
		if err != nil {
			t.Fatal(err)
		}
		var flags int64
		for line := range strings.Lines(string(info)) {
			_, _ = fmt.Sscanf(line, "flags: %o", &flags)
		}
		if flags&syscall.O_CLOEXEC == 0 {
			t.Errorf("%s would survive an exec: flags %#o", to, flags)
		}
	}
}
