package must

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Read returns a file's text.
func Read(t T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	Do(t, err)
	return string(data)
}

// Write writes a file that all can read, and the directories above it.
func Write(t T, path, text string) {
	t.Helper()
	Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	Do(t, os.WriteFile(path, []byte(text), 0o644))
}

// Link makes a symbolic link, and the directories above it.
func Link(t T, path, target string) {
	t.Helper()
	Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	Do(t, os.Symlink(target, path))
}

// RootsDir makes a directory that only root can write, as all above it: t.TempDir is below the sticky /tmp.
func RootsDir(t testing.TB) string {
	t.Helper()
	dir := Have(os.MkdirTemp("/run", "roots-test-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	Do(t, os.Chmod(dir, 0o755))
	return dir
}

// Tmpfs mounts a file system in memory over a directory until the test's end.
func Tmpfs(t testing.TB, dir, options string) {
	t.Helper()
	Do(t, unix.Mount("none", dir, "tmpfs", 0, options))
	t.Cleanup(func() { Do(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}
