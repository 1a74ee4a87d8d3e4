package fakegpu

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const freezerRoot = "/sys/fs/cgroup/freezer"

// StartKeeper makes released memory go as a driver's does: after the measured time of teardown, counted from the
// moment the last reference went, the creator listed meanwhile. The keeper ends with this process.
func (w *World) StartKeeper() error {
	if w.keeper != nil {
		return errors.New("start keeper: it runs")
	}
	cmd := exec.Command(filepath.Join(w.dir, keeperName))
	cmd.Stderr = os.Stderr
	in, noIn := cmd.StdinPipe()
	out, noOut := cmd.StdoutPipe()
	if err := cmp.Or(noIn, noOut); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start keeper: %w", err)
	}
	w.keeper, w.hangUp = cmd, in.Close
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		return errors.Join(fmt.Errorf("start keeper: it said %q: %v", line, err), w.StopKeeper())
	}
	return nil
}

// StopKeeper ends the keeper; memory in teardown is then gone. Without a keeper it does nothing.
func (w *World) StopKeeper() error {
	if w.keeper == nil {
		return nil
	}
	err := errors.Join(w.hangUp(), w.keeper.Wait())
	w.keeper = nil
	return err
}

// freezerOf names the cgroup that a world's action freeze uses.
func freezerOf(dir string) string {
	var st unix.Stat_t
	if unix.Access(freezerRoot, unix.F_OK) != nil || unix.Stat(dir, &st) != nil {
		return ""
	}
	return filepath.Join(freezerRoot, fmt.Sprintf("fakegpu-%x", st.Ino))
}

// Thaw lets the processes go that the action freeze holds in state D.
func (w *World) Thaw() error {
	folder := w.Get("freezer")
	if folder == "" {
		return nil
	}
	err := os.WriteFile(filepath.Join(folder, "freezer.state"), []byte("THAWED"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// removeFreezer leaves a group alone that still has processes: they are the caller's to end.
func (w *World) removeFreezer() error {
	err := os.Remove(w.Get("freezer"))
	if w.Get("freezer") == "" || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
