package safefile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A name is that of one entry of the folder, or nothing is opened, made or written: the folder beside stays as it is.
func FuzzName(f *testing.F) {
	for _, seed := range []string{"job.json", "", ".", "..", "../beside/kept", "a/b", "a\x00b", strings.Repeat("n", 256), "/etc/passwd", "-", "\n", "...", ".tmp-x"} {
		f.Add(seed)
	}
	top := f.TempDir()
	folder, beside := filepath.Join(top, "own"), filepath.Join(top, "beside")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.Mkdir(beside, 0o700), os.WriteFile(filepath.Join(beside, "kept"), []byte("kept"), 0o600)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		entry := name != "" && name != "." && name != ".." && len(name) <= unix.NAME_MAX && !strings.ContainsAny(name, "/\x00")
		wrote := Replace(folder, name, []byte("new"), 0o600)
		content, read := Read(folder, name, 16)
		if (wrote == nil) != entry || (read == nil) != entry || entry && string(content) != "new" {
			t.Fatalf("%q: written %v, read %q, %v", name, wrote, content, read)
		}
		if inside(t, beside) != "kept" || inside(t, top) != "beside own" {
			t.Fatalf("%q left its folder", name)
		}
		if !entry {
			return
		}
		if inside(t, folder) != name {
			t.Fatalf("%q is not all that is there: %q", name, inside(t, folder))
		}
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	})
}

func inside(t *testing.T, folder string) string {
	t.Helper()
	list, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
