package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/faultinject"
	"bookend/test/must"
	"bookend/test/rig"
)

func TestMain(m *testing.M) {
	faultinject.Serve()
	spare()
	rig.Main(m, nil)
}

// onBench mounts a bench that ends with the test.
func onBench(t *testing.T) {
	t.Helper()
	must.Do(t, unix.Mount("none", bench, "tmpfs", 0, "mode=0755"))
	t.Cleanup(func() { _ = unix.Unmount(bench, unix.MNT_DETACH) })
}

// A few swaps: make torture makes many.
func TestSwaps(t *testing.T) {
	onBench(t)
	sum := swapTrials(faultinject.Mutant{}, 1, 0, func(done map[string]int) bool {
		return done[outWrites] >= 100 && done[dropReads] >= 80
	})
	for _, w := range sum.wrong {
		t.Error(w)
	}
	for _, what := range []string{"append: appended", "append: not-regular", "append: permission",
		"hooks ended with 0 in time"} {
		must.Not(t, sum.counts[what] == 0 && len(sum.wrong) == 0,
			"the swaps prove nothing any more: no %q in %v", what, sum.counts)
	}
}

// The harm that a guard prevents shows without it, one guard of each side.
func TestGuardsAreMissed(t *testing.T) {
	onBench(t)
	for _, g := range guards {
		must.Not(t, (g.Name == "output: link count" || g.Name == "drop: owner") && missed(g, 1) == "",
			"%s: no harm", g.Name)
	}
}

// Code that is rewritten takes its planted mistakes along, or they would test nothing.
func TestMistakesFit(t *testing.T) {
	for _, m := range slices.Concat(guards, plantings) {
		m.Fits(t, "../..")
	}
	_, err := (faultinject.Mutant{Name: "none", Old: "x"}).Apply("y")
	must.Not(t, err == nil, "a mutant was planted nowhere")
}

// What a failure is replayed by plans the same.
func TestPlansAreReplayed(t *testing.T) {
	differ := false
	for n := range uint64(50) {
		a, b := newPlan(3, n, ""), newPlan(3, n, "")
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("trial %d: %+v, then %+v", n, a, b)
		}
		differ = differ || a.append != newPlan(4, n, "").append
	}
	must.Not(t, !differ, "another seed plans the same")
}

// Whatever is done to a guarded thing shows.
func TestHarmShows(t *testing.T) {
	onBench(t)
	for want, harm := range map[string]func(w *world) error{
		"written: open-root":         func(w *world) error { return appendTo(w.kept("open-root")) },
		"opened: closed/out":         func(w *world) error { return touch(w.kept("closed/out")) },
		"opened: marker of drop-own": func(w *world) error { return touch(filepath.Join(w.home, "markers/drop-own")) },
		"written: fifo":              func(w *world) error { return appendTo(w.out + "/../fifo") },
		"written: device":            func(w *world) error { return appendTo(w.out + "/../device") },
		"changed: victim/file":       func(w *world) error { return os.Remove(w.kept("victim/file")) },
		"changed: precious":          func(w *world) error { return os.Chown(w.kept("precious"), 0, 0) },
		"opened: root-file": func(w *world) error { // wherever it is moved
			err := exchange(w.out, filepath.Join(filepath.Dir(w.out), "root-file"))
			return errors.Join(err, appendTo(w.out))
		},
		"spoilt: the job's output": func(w *world) error {
			_, err := w.output.WriteAt([]byte("| bookend: "), 0)
			return err
		},
		"[]": func(*world) error { return nil },
	} {
		t.Run(want, func(t *testing.T) {
			w := newWorld()
			defer w.close()
			must.Do(t, harm(w))
			text := fmt.Sprint(append(w.restoreOutput(), w.seen()...))
			must.Not(t, !strings.Contains(text, want), "%s, want %q", text, want)
		})
	}
}

func appendTo(path string) error { return use(path, os.O_WRONLY|os.O_APPEND, "x") }

func touch(path string) error { return use(path, os.O_RDONLY, "") }

func use(path string, flags int, text string) error {
	f, err := os.OpenFile(filepath.Clean(path), flags, 0)
	if err == nil && text != "" {
		_, err = f.WriteString(text)
	}
	return errors.Join(err, f.Close())
}

// An attack gets into a process of the user's that may be traced, and into none of root's: that it gets into no child
// means something.
func TestAttackWorks(t *testing.T) {
	for name, uid := range map[string]int{"the user's": user, "root's": 0} {
		cmd := exec.Command("/bin/sleep", "60")
		cmd.SysProcAttr = rig.As(uid)
		must.Do(t, cmd.Start())
		tried, worked, err := attack(cmd.Process.Pid, unix.SIGTERM)
		if err != nil || tried < 8 || slices.Contains(worked, "PTRACE_SEIZE") != (uid == user) || uid == 0 && worked != nil {
			t.Errorf("a process of %s: %d attempts, %q worked, %v", name, tried, worked, err)
		}
		if uid == 0 { // no signal of the user's ends it
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait() // "stop signal", if the thread that traces it has not ended yet
		want := map[int]string{user: "signal: terminated", 0: "signal: killed"}[uid]
		got := cmd.ProcessState.String()
		must.Not(t, !strings.HasSuffix(got, want), "a process of %s: %q, want %q", name, got, want)
	}
}

// The faults of one call, and two ends at once.
func TestFaults(t *testing.T) {
	onBench(t)
	hooks, got := buildHooks(faultinject.Mutant{}), newTally()
	faults("start: hook write run/state", 2, hooks, got)
	twoEnds(hooks, got)
	for _, class := range []string{"new state without a word", "old state, trouble said", "killed: old state"} {
		must.Not(t, got.counts["faults were tried"] < 5 || got.counts[class] == 0, "no %s: %v", class, got.counts)
	}
	for _, w := range got.wrong {
		t.Error(w)
	}
}

// A record written in place is noticed.
func TestNoticed(t *testing.T) {
	onBench(t)
	must.Not(t, notice(plantings[0]) == "", "noticed by nothing")
}

// A record that goes to disk is synced before it has its name, and its directory afterwards.
func TestDisorder(t *testing.T) {
	file := "var/history/" + nodeName + "/.tmp-*"
	calls := map[string]point{
		"open":   {role: "disk", call: "openat", class: file, write: true},
		"sync":   {role: "disk", call: "fsync", class: file},
		"rename": {role: "disk", call: "renameat", class: file},
		"dir":    {role: "disk", call: "fsync", class: "var/history/" + nodeName},
	}
	for want, order := range map[int]string{
		0: "open sync rename dir open sync rename dir",
		1: "open rename sync dir",
		2: "open rename",
	} {
		var points []point
		for _, name := range strings.Fields(order) {
			points = append(points, calls[name])
		}
		must.Be(t, order, len(disorder(points)), want)
	}
}
