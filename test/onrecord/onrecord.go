// Package onrecord puts the start and the end of a job on the records of a node that a test has for itself.
package onrecord

import (
	"testing"
	"time"

	"bookend/internal/child"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// Node returns a program's access to a node without records, and the directory of its state.
func Node(t *testing.T, phase slurm.Context) (a *node.Access, run string) {
	t.Helper()
	run = t.TempDir()
	a = node.Unconfigured(child.Env{Clock: child.SystemClock()}, phase, 0)
	a.Config.Paths.Run, a.Job.Node = run, "n1"
	if opened, faults := a.OpenState(); !opened {
		t.Fatal(faults)
	}
	return a, run
}

// Epilog returns the epilog of a job whose start is on record, and if it is closed, its end.
func Epilog(t *testing.T, closed bool) (*node.Access, judge.Case) {
	t.Helper()
	a, _ := Node(t, slurm.Epilog)
	a.Job = slurm.Job{ID: 7, Node: "n1", UID: 1000, Start: time.Unix(1_800_000_000, 0), Context: slurm.Epilog}
	must.Do(t, a.Store.Begin(record.Run{Job: a.Job, Start: &record.End{At: time.Second}}))
	found, err := a.Store.Find(a.Job)
	must.Do(t, err)
	if closed {
		must.Do(t, a.Store.Close(found, record.End{At: 2 * time.Second}))
	}
	c := a.Case()
	c.Past.Run = found
	return a, c
}
