//go:build cgo

package fakegpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/inventory"
	"bookend/test/must"
)

// newWorld makes a world that other users can reach.
func newWorld(t *testing.T, options ...Option) *World {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.Chmod(filepath.Dir(dir), 0o755))
	w := must.Have(New(filepath.Join(dir, "world"), options...))(t)
	t.Cleanup(func() { must.Do(t, w.Close()) })
	return w
}

func start(t *testing.T, w *World, args ...string) *Program {
	t.Helper()
	p := must.Have(w.Start(args...))(t)
	t.Cleanup(p.End)
	return p
}

func keep(t *testing.T, w *World) {
	t.Helper()
	must.Do(t, w.StartKeeper())
}

func pid(p *Program) uint32 { return uint32(p.PID) }

func TestSetRefusesWhatNobodyUnderstands(t *testing.T) {
	w := newWorld(t)
	for key, value := range map[string]string{
		"extra_mib": "1", "gpu0.extra": "1", "on.nvmlInit_v9": "hang", "on.nvmlInit_v2": "explode",
		"gpu64.list": "1:1", "gpu0.list": "a=b", "gpus": "65",
	} {
		if err := w.Set(key, value); err == nil {
			t.Errorf("%s = %s was taken", key, value)
		}
	}
}

// A fake node has a kernel log as a real one has, and it is the tests' own: what they remove stays away.
func TestKernelLog(t *testing.T) {
	w := newWorld(t)
	log := inventory.ReadLog(w.Dev(), &gpu.KernelMark{Seq: 1, At: time.Second})
	if log.Unknown != "" || log.Lost || log.Last.Seq != 2 || len(log.Xids)+len(log.Kills) != 0 {
		t.Errorf("%+v, want two harmless entries", log)
	}
	must.Do(t, os.Remove(w.KernelLog()))
	must.Do(t, w.Set("gpu0.ecc_corrected", "1"))
	if _, err := os.Lstat(w.KernelLog()); !os.IsNotExist(err) {
		t.Errorf("after a change it is there again: %v", err)
	}
}

func TestTeardownListsTheDead(t *testing.T) {
	w := newWorld(t, With("teardown_ms", "3600000"))
	keep(t, w)
	c := attach(t, w)
	p := start(t, w, "alloc", "--mib", "1000")
	before := c.look().Cards[0]
	must.Do(t, p.Kill())
	after := c.look().Cards[0]
	if after.Used != before.Used || !slices.Equal(after.Compute, before.Compute) || len(after.Compute) != 1 {
		t.Errorf("before %+v, in teardown %+v", before, after)
	}
	must.Do(t, w.StopKeeper())
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
	must.Do(t, p.Kill())
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

// openNodes names the world's device nodes that a folder of descriptors is open on, once for each.
func openNodes(t *testing.T, w *World, folder string) (nodes []string) {
	t.Helper()
	for _, link := range must.Have(filepath.Glob(filepath.Join(folder, "*")))(t) {
		if to, _ := os.Readlink(link); filepath.Dir(to) == w.Dev() {
			nodes = append(nodes, filepath.Base(to))
		}
	}
	slices.Sort(nodes)
	return nodes
}

func awaitState(t *testing.T, pid int, want string) {
	t.Helper()
	var got string
	await(t, "state "+want, func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		got = strings.TrimSpace(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		return strings.HasPrefix(got, want)
	}, func() string { return got })
}
