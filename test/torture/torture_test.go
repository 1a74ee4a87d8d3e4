package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"bookend/test/faultinject"
	"bookend/test/must"
	"bookend/test/rig"
)

func TestMain(m *testing.M) {
	faultinject.Serve()
	serveAsUser()
	spare()
	rig.Main(m, nil)
}

func newTestRack(t *testing.T) rack {
	t.Helper()
	return rack{rig.TestBench(t), 1}
}

// A small torture: make torture is the large one.
func TestTorture(t *testing.T) {
	sum := newTestRack(t).torture(faultinject.Mutant{}, 0, func(sum *outcome) bool {
		return sum.wrote >= 100 && sum.read >= 80 || len(sum.breaches) > 0
	})
	for _, b := range sum.breaches {
		t.Error(b)
	}
	for _, what := range []string{"append: appended", "append: not-regular", "append: permission",
		"hooks ended with 0 in time"} {
		if sum.counts[what] == 0 && len(sum.breaches) == 0 {
			t.Errorf("the torture has grown too mild to prove anything: no %q in %v", what, sum.counts)
		}
	}
}

// The harm that two guards prevent shows without them, one of each side.
func TestGuardsAreMissed(t *testing.T) {
	r := newTestRack(t)
	for _, g := range guards {
		if g.Name != "output: link count" && g.Name != "drop: owner" {
			continue
		}
		if r.missed(g) == "" {
			t.Errorf("%s: no harm", g.Name)
		}
	}
}

// A guard that was rewritten takes its mutant along, or that would test nothing.
func TestGuardsCanBeTakenAway(t *testing.T) {
	for _, g := range guards {
		g.Fits(t, "../..")
	}
}

// What a failure is replayed by must plan the same.
func TestPlansAreReplayed(t *testing.T) {
	differ := false
	for n := range uint64(50) {
		a, b := newPlan(3, n, mixed), newPlan(3, n, mixed)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("run %d: %+v, then %+v", n, a, b)
		}
		differ = differ || a.append != newPlan(4, n, mixed).append
	}
	if !differ {
		t.Error("another seed plans the same")
	}
}

// Whatever is done to a guarded thing shows.
func TestHarmShows(t *testing.T) {
	r := newTestRack(t)
	for name, tt := range map[string]struct {
		harm func(w *world) error
		want string
	}{
		"a written file": {func(w *world) error { return appendTo(w.kept("open-root")) }, "written: open-root"},
		"an opened file": {func(w *world) error { return touch(w.kept("closed/out")) }, "opened: closed/out"},
		"a read marker": {func(w *world) error { return touch(filepath.Join(w.home, "markers/drop-own")) },
			"opened: marker of drop-own"},
		"a fed FIFO": {func(w *world) error { return appendTo(filepath.Join(w.folder, "fifo")) }, "fed: fifo"},
		"a fed device": {func(w *world) error { return appendTo(filepath.Join(w.folder, "device")) },
			"written: device"},
		"a removed file": {func(w *world) error { return os.Remove(w.kept("victim/file")) }, "changed: victim/file"},
		"an owner":       {func(w *world) error { return os.Chown(w.kept("precious"), 0, 0) }, "changed: precious"},
		"moved and written": {func(w *world) error {
			err := exchange(w.out, filepath.Join(w.folder, "root-file"))
			_ = appendTo(w.out)
			return err
		}, "opened: root-file"},
		"an overwritten output": {func(w *world) error {
			_, err := w.output.WriteAt([]byte("| bookend: "), 0)
			return err
		}, "spoilt: the job's output"},
		"nothing": {func(*world) error { return nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := r.world()
			defer w.close()
			must.Do(t, tt.harm(w))
			text := fmt.Sprint(append(w.judgeOutput(), w.changed()...))
			if !strings.Contains(text, tt.want) || tt.want == "" && text != "[]" {
				t.Errorf("%s, want %q", text, tt.want)
			}
		})
	}
}

func appendTo(path string) error { return use(path, os.O_WRONLY|os.O_APPEND, "x") }

func touch(path string) error { return use(path, os.O_RDONLY, "") }

func use(path string, flags int, text string) error {
	f, err := os.OpenFile(path, flags, 0)
	if err == nil && text != "" {
		_, err = f.WriteString(text)
	}
	return errors.Join(err, f.Close())
}

// The tracer gets into a process that may be traced: that it gets into no child means something.
func TestTracerWorks(t *testing.T) {
	attack := func(pid int) string {
		w := must.Have(startAsUser())(t)
		defer w.close()
		tried, got, err := w.attack(pid, 0)
		if err != nil || tried < 8 {
			t.Fatalf("%d attempts, %v", tried, err)
		}
		return got
	}
	cmd := exec.Command("/bin/sleep", "60")
	cmd.SysProcAttr = rig.As(user)
	must.Do(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if got := attack(cmd.Process.Pid); !strings.Contains(got, "PTRACE_SEIZE") {
		t.Errorf("the user's process: %q", got)
	}
	if got := attack(os.Getpid()); got != "" {
		t.Errorf("root's process: %q", got)
	}
}
