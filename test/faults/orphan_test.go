package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ownChildren are the processes with which an epilog runs an operation of its own.
func ownChildren(op string, parent int) (pids []int) {
	for _, pid := range children(parent, program("bookend-epilog")) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.HasSuffix(string(text), "--child\x00"+op+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// A hook that slurmd ends, in whatever way, takes its children with it, also one that waits where the user keeps files.
func TestChildEndsWithItsHook(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			path := n.home()
			j := newJob().with("SLURM_JOB_STDOUT", path)
			n.clean(prolog, j)
			n.silence(filepath.Dir(path))
			must(t, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", "hang"))
			p := n.start(epilog, j)
			var tails []int
			await(t, "the child", func() bool {
				tails = ownChildren("tail", p.cmd.Process.Pid)
				return len(tails) == 1
			})
			await(t, "the child as the user", func() bool { return ofUser(tails[0]) })
			must(t, syscall.Kill(-p.cmd.Process.Pid, sig))
			p.wait()
			await(t, "the child's end", func() bool { return stateOf(tails[0]) == "" || stateOf(tails[0]) == "Z" })
		})
	}
}

// ofUser reports whether a process has become the job's user.
func ofUser(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && len(lines(string(text), fmt.Sprintf("Uid:\t%[1]d\t%[1]d", user))) == 1
}
