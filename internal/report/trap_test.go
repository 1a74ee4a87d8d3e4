package report

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What users are told to write ends background work at their script's end, and keeps the script's exit status.
func TestTrap(t *testing.T) {
	for _, shell := range []string{"bash", "dash"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("no %s here", shell)
			continue
		}
		// A signal between fork and exec of a background process would be lost: it is waited for.
		script := Trap + "\nsleep 600 &\nuntil grep -q sleep /proc/$!/comm; do :; done\necho $!\nexit 3\n"
		cmd := exec.Command(path)
		cmd.Stdin, cmd.SysProcAttr, cmd.WaitDelay = strings.NewReader(script), &syscall.SysProcAttr{Setsid: true}, time.Minute
		var exit *exec.ExitError
		out, err := cmd.Output() // until the background process, which has its stdout, has ended
		if !errors.As(err, &exit) || exit.ExitCode() != 3 || len(out) == 0 {
			t.Errorf("%s: %v, %q; want exit status 3 and an ended process", shell, err, out)
		}
	}
}
