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
