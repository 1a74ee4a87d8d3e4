package faults

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"bookend/internal/ledger"
	"bookend/test/rig"
)

// recording makes a node whose recorder looks ten times a second.
func recording(t *testing.T) *node {
	t.Helper()
	t.Parallel()
	n := newNode(t, "enforce")
	n.ownPrograms()
	n.configure(func(c *conf) { c.record = "100ms" })
	t.Cleanup(func() { rig.EndRecorders(n.dir) })
	return n
}

// recorder waits for the node's one, and returns its process.
func (n *node) recorder() (pid int) {
	n.Helper()
	await(n, "a recorder", func() bool {
		all := rig.Recorders(n.dir)
		if len(all) == 1 {
			pid = all[0]
		}
		return len(all) == 1 && n.store().HasRecorder()
	})
	return pid
}

// recorded waits until what was recorded of job 100 on its GPU is so, and returns it.
func (n *node) recorded(what string, is func(ledger.Recorded) bool) (on ledger.Recorded) {
	n.Helper()
	await(n, what, func() bool {
		of, _ := n.store().Recorded().Runs.About(n.run(100))
		if of != nil && len(of.GPUs) > 0 {
			on = of.GPUs[0]
		}
		return of != nil && is(on)
	})
	return on
}

// Jobs that begin at once have one recorder. It keeps nobody waiting, whatever becomes of it, and where it saw nothing
// the record says so.
func TestRecorderIsGone(t *testing.T) {
	for name, end := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			n := recording(t)
			n.together(n.own(prolog), []job{newJob(), bystanding()}, nil)
			pid := n.recorder()
			n.recorded("a sample", func(r ledger.Recorded) bool { return r.Samples > 0 })
			must(t, syscall.Kill(pid, end))
			time.Sleep(4 * time.Second) // what is missed is longer than what two samples may lie apart
			n.clean(n.own(epilog), newJob())
			of, run := n.endOf(100).Recording, n.run(100)
			if of == nil || len(of.Gaps(run.Start.At, run.Ends[0].At)) != 1 || of.Whole(run.Start.At, run.Ends[0].At) {
				t.Errorf("%+v", of)
			}
			n.clean(n.own(prolog), numbered(101))
			if end == syscall.SIGKILL {
				n.recorder()
			}
			n.clean(n.own(epilog), numbered(101))
		})
	}
}

// A driver that does not answer costs the recorder's backend. It is tried again, and the job's own end finds it well.
func TestRecorderInAHungDriver(t *testing.T) {
	n := recording(t)
	n.clean(n.own(prolog), newJob())
	n.recorded("a sample", func(r ledger.Recorded) bool { return r.Samples > 0 })
	gpu := func() []int {
		return processes(func(pid int) bool { return doing(pid) == "backend" && parentIs(pid, n.recorder()) })
	}
	before := gpu()
	if len(before) != 1 {
		t.Fatalf("backends %v", before)
	}
	must(t, syscall.Kill(before[0], syscall.SIGKILL))
	await(t, "another backend", func() bool { now := gpu(); return len(now) == 1 && now[0] != before[0] })
	n.clean(n.own(epilog), newJob())
}

func parentIs(pid, parent int) bool {
	fields := statOf(pid)
	return len(fields) > 1 && fields[1] == strconv.Itoa(parent)
}
