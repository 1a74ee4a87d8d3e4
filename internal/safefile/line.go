package safefile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// AddLine appends a line to a text file of the calling user's unless the file has it, and makes the file if there is
// none. Processes on several nodes may do so at the same time.
func AddLine(path, line string) error {
	// Threat: a link that another user made would have this user, or root, append to another file.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX) // where there are no locks, two nodes at once may lose a line
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if lines := strings.Split(string(text), "\n"); err == nil && !slices.Contains(lines, line) {
		if lines[len(lines)-1] != "" {
			line = "\n" + line
		}
		_, err = f.WriteString(line + "\n")
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		return fmt.Errorf("add a line to %q: %w", path, err)
	}
	return nil
}
