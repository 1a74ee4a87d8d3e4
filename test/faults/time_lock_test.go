package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/safefile"
)

// stopWriting starts the end of job 100 and stops it, the whole process, in the middle of writing the job's record: it
// holds the lock of the record, by flock, and the claim of the job's end, by an OFD lock.
func (n *node) stopWriting() (p *running, release func()) {
	n.Helper()
	var hook atomic.Int64
	g := n.gate(n.inState("100"), unix.FAN_OPEN_PERM, func(pid int, path string) {
		if doing(pid) == "" && strings.HasPrefix(filepath.Base(path), safefile.TempPrefix) &&
			hook.CompareAndSwap(0, int64(pid)) {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				n.Errorf("stop the hook: %v", err)
			}
			// from then on none goes on
			for deadline := time.Now().Add(margin); !stopped(pid) && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
		}
	})
	p = n.start(n.own(epilog), newJob())
	await(n, "the hook to stop", func() bool { return hook.Load() != 0 && stateOf(int(hook.Load())) == "T" })
	if int(hook.Load()) != p.cmd.Process.Pid {
		n.Errorf("stopped %d, want the hook, %d", hook.Load(), p.cmd.Process.Pid)
	}
	g.open()
	return p, func() { must(n, syscall.Kill(p.cmd.Process.Pid, syscall.SIGCONT)) }
}

// stopped reports that a thread of a process has stopped. The one that waits in its open is told last.
func stopped(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return slices.ContainsFunc(stats, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.HasPrefix(string(text[strings.LastIndexByte(string(text), ')')+1:]), " T")
	})
}

// sharesLock is a job whose record has the same lock as job 100's: there are 64 of them.
const sharesLock = 164

// A hook that is stopped while it holds locks holds nobody up for longer than a lock may be waited for: others say so.
// What the stopped one was about to write is there once it goes on, and nothing of the others is lost but what they
// said.
func TestLockOfAStoppedHook(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.ownPrograms()
	n.clean(n.own(prolog), bystanding())
	n.clean(n.own(prolog), newJob())
	others := n.record()
	stopped, release := n.stopWriting()
	n.configure(func(c *conf) { c.tight, c.onUnknown = true, "drain" })
	n.exits(0, n.own(prolog), numbered(sharesLock))
	n.exits(0, n.own(epilog), newJob()) // the same job's, beside the stopped one
	for _, h := range hooks {
		if len(lines(n.log(), h.program, "findings: ", string(code.StateLock))) != 1 {
			t.Errorf("%s:\n%s", h.program, n.log())
		}
	}
	if len(lines(n.log(), "findings: ", string(code.Again))) != 1 {
		t.Errorf("the second end:\n%s", n.log())
	}
	release()
	if o := stopped.wait(); o.exit != 0 {
		t.Errorf("the one that was stopped: %v", o)
	}
	if r := n.run(100); r.Start == nil || len(r.Ends) != 1 || len(r.Ends[0].Findings) != 0 {
		t.Errorf("%+v", r)
	}
	n.configure(func(c *conf) { c.tight = false })
	n.clean(n.own(prolog), numbered(sharesLock))
	n.clean(n.own(epilog), numbered(sharesLock))
	n.sound(others)
}
