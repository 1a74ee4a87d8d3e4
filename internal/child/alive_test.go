package child

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/test/must"
)

const statTail = " 1 2 3 0 -1 4 5 6 7 8 9 10 11 12 20 0 %threads 0 %start 14 15\n"

func statLine(name, state, threads, start string) string {
	return "42 (" + name + ") " + state + strings.NewReplacer("%threads", threads, "%start", start).Replace(statTail)
}

func TestAlive(t *testing.T) {
	tests := map[string]struct {
		stat string
		want bool
	}{
		"same":                     {statLine("python", "D", "1", "777"), true},
		"hostile name":             {statLine("a) Z 1\n(b", "S", "1", "777"), true},
		"reused number":            {statLine("python", "D", "1", "778"), false},
		"zombie":                   {statLine("python", "Z", "1", "777"), false},
		"zombie, thread left":      {statLine("python", "Z", "2", "777"), true},
		"dead":                     {statLine("python", "X", "0", "777"), false},
		"garbage, so no answer":    {"42 (python", true},
		"empty, so no answer":      {"", true},
		"bad number, so no answer": {statLine("python", "S", "x", "777"), true},
		"bad parent, so no answer": {strings.Replace(statLine("python", "Z", "1", "777"), " Z 1 ", " Z x ", 1), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			must.Do(t, os.Mkdir(filepath.Join(proc, "42"), 0o755))
			must.Do(t, os.WriteFile(filepath.Join(proc, "42", "stat"), []byte(test.stat), 0o644))
			must.Be(t, "alive", Alive(proc, 42, 777), test.want)
		})
	}
	if Alive(t.TempDir(), 42, 777) || Alive("/proc", 0, 777) || Alive("/proc", os.Getpid(), 0) {
		t.Error("a missing process, pid 0 or an unknown start time is alive")
	}
}

// One thread that nothing wakes is enough; what cannot be read is none.
func TestUninterruptible(t *testing.T) {
	proc := t.TempDir()
	put := func(folder, state string) {
		t.Helper()
		must.Do(t, os.MkdirAll(filepath.Join(proc, folder), 0o755))
		if err := os.WriteFile(filepath.Join(proc, folder, "stat"), []byte(statLine("x", state, "2", "777")),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("42", "S")
	if Uninterruptible(proc, 42, 777) {
		t.Error("without a list of its threads")
	}
	put("42/task/42", "S")
	put("42/task/no number", "D")
	if Uninterruptible(proc, 42, 777) {
		t.Error("no thread is in state D")
	}
	put("42/task/43", "D")
	if !Uninterruptible(proc, 42, 777) || Uninterruptible(proc, 42, 778) || Uninterruptible(proc, 43, 777) {
		t.Error("a thread is in state D, of this very process")
	}
	if !Orphaned(proc, 42, 777, 9) || Orphaned(proc, 42, 777, 1) || Orphaned(proc, 42, 778, 9) {
		t.Error("its parent is 1")
	}
}

// The trap behind threads: the process whose first thread has ended is shown as a zombie and lives.
func TestHeadlessProcessIsAlive(t *testing.T) {
	s := self("headless")
	p := must.Have(openPipes())(t)
	defer p.closeOurs()
	c := launch(s, p)
	b := <-c.born
	if b.err != nil {
		t.Fatal(b.err)
	}
	must.Have(p.stdout.Read(make([]byte, 1)))(t)
	if st, err := readStat("/proc", b.pid); err != nil || st.State != 'Z' {
		t.Fatalf("stat %+v, %v; want a zombie", st, err)
	}
	if !Alive("/proc", b.pid, b.ticks) {
		t.Error("a process with a living thread counts as dead")
	}
	kill(b.pid)
	must.Do(t, <-c.ended)
	if Alive("/proc", b.pid, b.ticks) {
		t.Error("a zombie counts as alive")
	}
	must.Have(reap(b.pid))(t)
}
