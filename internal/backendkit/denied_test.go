package backendkit

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/gpu"
	"bookend/test/must"
)

// A device node that this process may not open is reported, one that does not exist is not. access(2) checks the real
// user.
func TestDenied(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	minor, dev := 3, t.TempDir()
	must.Do(t, os.Chmod(filepath.Dir(dev), 0o755))
	must.Do(t, os.Chmod(dev, 0o755))
	check := func(who string, denied bool) {
		why := Denied(dev, gpu.Device{Minor: &minor})
		if (why != "") != denied || denied && !strings.Contains(why, "nvidia3") {
			t.Errorf("%s: %q, want denied: %v", who, why, denied)
		}
	}
	check("no node", false)
	must.Do(t, os.WriteFile(filepath.Join(dev, "nvidia3"), nil, 0o600))
	check("root", false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with this goroutine, and its user with it
		const keep = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETREUID, 65534, keep, 0); errno != 0 {
			t.Error(errno)
			return
		}
		check("another user", true)
		must.Do(t, os.Remove(filepath.Join(dev, "nvidia3")))
		check("another user, no node", false)
	}()
	<-done
}
