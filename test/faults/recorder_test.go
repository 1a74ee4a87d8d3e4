package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/must"
	"bookend/test/rig"
)

// recording makes a node whose recorder looks ten times a second.
func recording(t *testing.T) *node {
	t.Helper()
	n := parallel(t, "enforce")
	n.ownPrograms()
	n.configure(func(c *conf) { c.record = "100ms" })
	return n
}

// recorder waits for the node's one, and returns its process.
func (n *node) recorder() (pid int) {
	await(n, "a recorder", func() bool {
		all := rig.Recorders(n.dir)
		if len(all) == 1 {
			pid = all[0].PID
		}
		return len(all) == 1 && n.store().Turns.HasRecorder()
	})
	return pid
}

// recorded waits until what was recorded of job 100 on its GPU is so, and returns it.
func (n *node) recorded(what string, is func(record.GPURecording) bool) (on record.GPURecording) {
	await(n, what, func() bool {
		of := state.Recorded.Peek(n.store()).Runs.About(n.run(100))
		if of != nil && len(of.GPUs) > 0 {
			on = of.GPUs[0]
		}
		return of != nil && is(on)
	})
	return on
}

const mib = 1 << 20

// What a job used, and who came and went beside it, is on record at its end, though nobody is there any more. The
// recorder goes by itself.
func TestRecorder(t *testing.T) {
	n := recording(t)
	n.clean(n.own(prolog), newJob())
	n.recorder()
	mine, theirs := n.leftover("--mib", "20000"), n.holder(bystander, nil, "--mib", "3000")
	n.inCgroup(mine, "100")
	n.inCgroup(theirs, "200")
	n.recorded("both processes", func(r record.GPURecording) bool {
		jobless := func(p record.RecordedProcess) bool { return !p.Owner.Found() }
		return len(r.Processes) == 2 && !slices.ContainsFunc(r.Processes, jobless)
	})
	out, _ := n.bookend("status", "--records")
	must.Not(t, !strings.Contains(out, "recorder ") || !strings.Contains(out, "(1 job)"), "status: %s", out)
	n.clean(n.own(prolog), bystanding())
	await(t, "both jobs' samples", func() bool { return len(state.Recorded.Peek(n.store()).Runs) == 2 })
	problem := state.Recorded.Peek(n.store()).Problem
	must.Not(t, problem != "", "a session that gave way to the next one left %q", problem)
	theirs.End()
	mine.End()
	n.clean(n.own(epilog), newJob())
	of := n.endOf(100).Recording
	if of == nil {
		t.Fatal("nothing of it is on record")
	}
	on, run := of.GPUs[0], n.run(100)
	must.Not(t, on.Own.Bytes>>20 < 20000 || on.Own.Bytes>>20 > 20600 || on.Peak.Bytes < on.Own.Bytes+3000*mib ||
		on.More > 0, "%+v", on)
	owner := func(id slurm.JobID) func(record.RecordedProcess) bool {
		return func(p record.RecordedProcess) bool { return p.Owner.ID == id && p.Most > 0 }
	}
	must.Not(t, !slices.ContainsFunc(on.Processes, owner(100)) || !slices.ContainsFunc(on.Processes, owner(200)),
		"%+v", on.Processes)
	gaps := of.Gaps(run.Start.At, run.Ends[0].Over())
	must.Not(t, len(gaps) > 0, "%d samples, gaps %v", of.Samples, gaps)
	n.clean(n.own(epilog), bystanding())
	await(t, "the recorder's end", func() bool { return len(rig.Recorders(n.dir)) == 0 })
}

// The peak of a job that leaves something behind is a peak: the seconds in which its epilog watches that are not the
// job's. What another user's process outside Slurm had on its GPU meanwhile is found, by the recorder alone.
func TestRecordedLeak(t *testing.T) {
	n := recording(t)
	const watched = 2 * time.Second
	n.configure(func(c *conf) { c.settle = fmt.Sprintf("{max: 8s, stable: %v}", watched) })
	n.clean(n.own(prolog), newJob())
	n.recorder()
	leak, stranger := n.leftover("--mib", "20000"), n.holder(60000, nil, "--mib", "3000")
	n.inCgroup(leak, "100")
	n.recorded("both processes", func(r record.GPURecording) bool { return len(r.Processes) == 2 && r.Together == 1 })
	stranger.End()
	n.exits(10, n.own(epilog), newJob())
	end := n.endOf(100)
	must.Not(t, end.At-end.Over() < watched, "over at %v, and its epilog looked last at %v", end.Over(), end.At)
	must.Not(t, codes(end.Findings) != "BKD-ORPHAN BKD-STRAY?", "%+v", end.Findings)
	for _, f := range end.Findings {
		if stray := f.Code == catalog.Stray; stray != f.OnlyRecorded() || stray && (f.Bytes.Bytes < 3000*mib || f.Holder.PID != stranger.PID) {
			t.Errorf("%+v", f)
		}
	}
	n.shows("BKD-STRAY", "history")
	n.says("BKD-STRAY")
}

// Jobs that begin at once have one recorder. It keeps nobody waiting, whatever becomes of it, and where it saw nothing
// the record says so.
func TestRecorderIsGone(t *testing.T) {
	for name, end := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			n := recording(t)
			n.together(n.own(prolog), []job{newJob(), bystanding()}, nil)
			pid := n.recorder()
			n.recorded("a sample", func(r record.GPURecording) bool { return r.Samples > 0 })
			must.Do(t, syscall.Kill(pid, end))
			time.Sleep(4 * time.Second) // what is missed is longer than what two samples may lie apart
			n.clean(n.own(epilog), newJob())
			of, run := n.endOf(100).Recording, n.run(100)
			must.Not(t, of == nil || len(of.Gaps(run.Start.At, run.Ends[0].Over())) != 1 ||
				of.Whole(run.Start.At, run.Ends[0].Over()), "%+v", of)
			if end == syscall.SIGKILL { // as with slurmd, whose unit may end all that is in its cgroup
				n.exits(0, n.own(healthcheck), bySlurm)
				must.Do(t, syscall.Kill(n.recorder(), end))
				await(t, "its end", func() bool { return !n.store().Turns.HasRecorder() })
			}
			n.clean(n.own(prolog), numbered(101))
			if end == syscall.SIGKILL {
				n.recorder()
			}
			n.clean(n.own(epilog), numbered(101))
		})
	}
}

// If the state is removed while a job runs, the next job's recorder takes the place of the one at work.
func TestRecorderOfAStateThatWasRemoved(t *testing.T) {
	n := recording(t)
	n.clean(n.own(prolog), newJob())
	first := n.recorder()
	must.Do(t, os.RemoveAll(filepath.Join(n.conf.run, "state")))
	n.clean(n.own(prolog), numbered(101))
	await(t, "the end of the first recorder", func() bool { return syscall.Kill(first, 0) != nil })
	n.recorder()
}

// A driver that does not answer costs the recorder's backend. It is tried again, and the job's own end finds it well.
func TestRecorderInAHungDriver(t *testing.T) {
	n := recording(t)
	n.clean(n.own(prolog), newJob())
	n.recorded("a sample", func(r record.GPURecording) bool { return r.Samples > 0 })
	gpu := func() []int {
		return processes(func(p rig.Process) bool { return doing(p.PID) == "backend" && p.Parent == n.recorder() })
	}
	before := gpu()
	if len(before) != 1 {
		t.Fatalf("backends %v", before)
	}
	must.Do(t, syscall.Kill(before[0], syscall.SIGKILL))
	await(t, "another backend", func() bool { now := gpu(); return len(now) == 1 && now[0] != before[0] })
	n.clean(n.own(epilog), newJob())
}
