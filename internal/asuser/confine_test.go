//go:build !race

package asuser

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// confined starts with what nobody should have, and looks at what is left of it.
func confined() error {
	unix.Umask(0)
	if fds, err := descriptors(); err != nil || len(fds) < 3 ||
		!slices.Equal(slices.Sorted(slices.Values(fds))[:3], []int{3, 4, 5}) {
		return fmt.Errorf("it began with descriptors %v, %v", fds, err)
	}
	kept, err := os.Open("/proc/self/stat") // close-on-exec: its own
	if err != nil {
		return err
	}
	if err := Confine(); err != nil {
		return err
	}
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil || core.Cur != 0 || core.Max != 0 {
		return fmt.Errorf("core files of %d bytes, %v", core.Cur, err)
	}
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || dumpable != 0 {
		return fmt.Errorf("dumpable is %d, %v", dumpable, err)
	}
	if mask := unix.Umask(0); mask != 0o022 {
		return fmt.Errorf("umask %#o", mask)
	}
	if fds, err := descriptors(); err != nil || len(fds) != 1 || fds[0] != int(kept.Fd()) {
		return fmt.Errorf("descriptors %v are open, %v", fds, err)
	}
	fmt.Println("done") // what it is to keep works
	return nil
}

func TestConfine(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "another daemon's"))
	ok(t, err)
	r, w, err := os.Pipe()
	ok(t, err)
	cmd := exec.Command("/proc/self/exe", "--child", "confined")
	cmd.ExtraFiles = []*os.File{file, r, w}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "done" {
		t.Errorf("%v: %s", err, out)
	}
}
