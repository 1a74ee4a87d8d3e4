package state

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/gpu"
	"bookend/test/must"
)

const (
	card0 = gpu.ID("GPU-00000000-1111-2222-3333-444444444444")
	card1 = gpu.ID("GPU-00000000-1111-2222-3333-555555555555")
)

// holdAsProbe holds a lock as a probe does, until its stdin ends.
func holdAsProbe(path string) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_EX)
	}
	fmt.Println("held", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// hold starts a probe on a card. It ends with stop, killed.
func hold(t *testing.T, s *Store, id gpu.ID) (cmd *exec.Cmd, stdin io.Closer) {
	t.Helper()
	cmd = exec.Command("/proc/self/exe", s.ProbeLock(id))
	cmd.Env = []string{"BOOKEND_TEST_ROLE=probe"}
	in := must.Have(cmd.StdinPipe())(t)
	out := must.Have(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held <nil>\n" {
		t.Fatalf("the probe says %q, %v", line, err)
	}
	return cmd, in
}

// A probe on one card keeps that one from being judged, and no other; whoever judges keeps probes away, not others
// who judge.
func TestQuiet(t *testing.T) {
	s := open(t, folder(t))
	_, stdin := hold(t, s, card0)
	busy, release := s.Quiet([]gpu.ID{card0, card1, card0}, 20*time.Millisecond)
	if len(busy) != 1 || busy[card0] != "a probe of Bookend was still at work on it" {
		t.Errorf("busy: %v", busy)
	}
	if info, err := os.Stat(s.ProbeLock(card1)); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if free(t, s.ProbeLock(card1)) {
		t.Error("a probe could begin on a GPU that is being judged")
	}
	again, releaseAgain := s.Quiet([]gpu.ID{card1}, 0)
	if len(again) > 0 {
		t.Errorf("two readers: %v", again)
	}
	releaseAgain()
	if free(t, s.ProbeLock(card1)) {
		t.Error("one reader's release was the other's")
	}
	release()
	_, next := s.Quiet([]gpu.ID{card1}, 0)
	release() // again: must not close what has its descriptor's number by now
	if free(t, s.ProbeLock(card1)) {
		t.Error("a second release was another reader's")
	}
	next()
	if !free(t, s.ProbeLock(card1)) {
		t.Error("not released")
	}
	stdin.Close()
	busy, release = s.Quiet([]gpu.ID{card0}, time.Minute)
	if len(busy) > 0 {
		t.Errorf("the probe has ended: %v", busy)
	}
	release()
}

// A lock that cannot be taken for another reason is no proof of quiet.
func TestQuietCannotTell(t *testing.T) {
	s := open(t, folder(t))
	must.Do(t, os.Symlink("elsewhere", s.ProbeLock(card0)))
	busy, release := s.Quiet([]gpu.ID{card0}, 0)
	defer release()
	if !strings.Contains(busy[card0], "could not be told") {
		t.Errorf("busy: %v", busy)
	}
}

// free reports whether a probe could take the lock now.
func free(t *testing.T, path string) bool {
	t.Helper()
	fd := must.Have(unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil
}
