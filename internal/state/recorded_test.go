package state

import (
	"testing"
	"time"

	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// Runs are noticed when they begin and end, the second one of a requeued job too, whose folder is there.
func TestOpenings(t *testing.T) {
	s := open(t, folder(t))
	o, late := s.Openings(), time.Now().Add(time.Hour) // when the clock of files surely tells
	expect := func(what string, want int) {
		t.Helper()
		must.Be(t, what, len(o.Runs(late)), want)
	}
	begin := func(restarts int) ledger.Run {
		j := job(7)
		j.Start, j.Restarts = time.Unix(int64(1000+restarts), 0), restarts
		run := ledger.Run{Job: j, Start: &ledger.End{At: time.Duration(1 + restarts), Wall: j.Start}}
		must.Do(t, s.Begin(run))
		time.Sleep(20 * time.Millisecond) // the tick of the clock of files
		return run
	}
	expect("none", 0)
	run := begin(0)
	expect("the first", 1)
	found, _, err := s.Find(run.Job)
	must.Do(t, err)
	must.Do(t, s.Close(found, ledger.End{At: time.Second}))
	time.Sleep(20 * time.Millisecond)
	expect("its end", 0)
	begin(1)
	expect("the second", 1)
}

// What one program adds to a report, another that began before it does not undo.
func TestChangeReport(t *testing.T) {
	s, j := open(t, folder(t)), slurm.Job(job(7))
	must.Do(t, s.ChangeReport(j, func(r *Report) { r.Running = "x" }))
	if _, err := s.Report(j); err == nil {
		t.Error("a report of which there was none")
	}
	must.Do(t, s.PutReport(j, Report{Text: "start"}))
	done := make(chan error)
	must.Do(t, s.ChangeReport(j, func(r *Report) {
		go func() { done <- s.ChangeReport(j, func(r *Report) { r.End = "end" }) }()
		time.Sleep(20 * time.Millisecond)
		r.Running = "running"
	}))
	must.Do(t, <-done)
	must.Be(t, "the report", must.Have(s.Report(j))(t), (Report{Text: "start", Running: "running", End: "end"}))
}
