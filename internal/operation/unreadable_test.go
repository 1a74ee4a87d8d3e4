package operation

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// A parent that cannot be read leaves everybody alone: nobody knows who the ancestors are.
func TestUnreadableAncestors(t *testing.T) {
	proc := t.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, strconv.Itoa(os.Getpid()), "stat"), 0o700); err != nil {
		t.Fatal(err)
	}
	if own, err := ancestors(proc); !errors.Is(err, unix.EISDIR) || own != nil {
		t.Errorf("%v, %v", own, err)
	}
}
