package cleanup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Whatever an ancestor calls itself, its parent stays the one that the kernel names: clean-up must know its own ancestors.
func FuzzParentOf(f *testing.F) {
	f.Add("bash", 1)
	f.Add("a) S 1 (", 4194304)
	f.Add("x\n1 (init) S 7", 0)
	f.Add("", -5)
	proc := f.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "42"), 0o755); err != nil {
		f.Fatal(err)
	}
	line := filepath.Join(proc, "42", "stat")
	f.Fuzz(func(t *testing.T, name string, parent int) {
		if len(name) > 64 { // the kernel's names have 15 bytes, and workers' of its own 63
			return
		}
		text := "42 (" + name + ") S " + strconv.Itoa(parent) + strings.Repeat(" 0", 48) + "\n"
		if err := os.WriteFile(line, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := parentOf(proc, 42); (err == nil) != (parent >= 0) || err == nil && got != parent {
			t.Errorf("%q: %d, %v", text, got, err)
		}
		if err := os.WriteFile(line, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := parentOf(proc, 42); got < 0 || err != nil && got != 0 {
			t.Errorf("%q: %d, %v", name, got, err)
		}
	})
}
