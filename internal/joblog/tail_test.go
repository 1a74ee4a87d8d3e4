//go:build !race

package joblog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func tailAsUser(t *testing.T, r request) (tail, why string) {
	t.Helper()
	var got reply
	must(t, json.Unmarshal(asUser(t, r), &got))
	return string(got.Tail), got.Why
}

func TestTail(t *testing.T) {
	path := filepath.Join(usersFolder(t), "slurm-7.out")
	for content, want := range map[string]string{
		"": "", "short": "short", "exactly 16 bytes": "exactly 16 bytes", "more than sixteen bytes": "an sixteen bytes",
		strings.Repeat("x", 1<<20) + "the very last one": "he very last one",
	} {
		put(t, path, content)
		var st unix.Stat_t
		must(t, unix.Stat(path, &st))
		for _, target := range []Target{{Path: path}, {path, st.Dev, st.Ino}} {
			if got, why := tailAsUser(t, request{Target: target, Tail: 16}); got != want || why != "" {
				t.Errorf("%d bytes: %q, refused %q; want %q", len(content), got, why, want)
			}
		}
	}
}

// A file that its owner may not write, or on a file system that takes nothing any more, can be read all the same.
func TestTailNeedsNoWriting(t *testing.T) {
	dir := usersFolder(t)
	mount(t, dir, "mode=0777,size=4k", 0)
	path := filepath.Join(dir, "out")
	put(t, path, strings.Repeat("x", 4092)+"last")
	must(t, os.Chmod(path, 0o400))
	must(t, unix.Mount("none", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if got, why := tailAsUser(t, request{Target: Target{Path: path}, Tail: 4}); got != "last" || why != "" {
		t.Errorf("%q, refused %q", got, why)
	}
}
