package ledger

import (
	"testing"
	"time"

	"bookend/internal/slurm"
)

// An epilog's run is its own user's: a job id that another user's job had before, as after a reset of Slurm's ids, is
// another job's.
func TestMatchUser(t *testing.T) {
	began := time.Unix(1790000000, 0)
	run := func(key string, edit func(*Run)) Run {
		r := Run{Key: key, Job: slurm.Job{ID: 100, UID: 1001}}
		if edit != nil {
			edit(&r)
		}
		return r
	}
	at := func(j *slurm.Job) { j.Start = began }
	later := func(j *slurm.Job) { j.Start = began.Add(time.Second) }
	sA, sB := func(j *slurm.Job) { j.SLUID = "sA" }, func(r *Run) { r.Job.SLUID = "sB" }
	begun := func(r *Run) { r.Job.Start = began }
	others := func(r *Run) { r.Job.UID, r.Job.SLUID, r.Start = 1002, "sA", &End{At: time.Second} }
	for name, tt := range map[string]struct {
		runs []Run
		edit func(*slurm.Job)
		want string
	}{
		"its own":                        {[]Run{run("w1", nil)}, nil, "w1"},
		"another user's":                 {[]Run{run("w1", func(r *Run) { r.Job.UID = 1002 })}, nil, ""},
		"another user's, which is newer": {[]Run{run("w1", nil), run("w2", others)}, nil, "w1"},
		"another user's with its SLUID":  {[]Run{run("w1", others)}, sA, ""},
		"another job's":                  {[]Run{run("w1", func(r *Run) { r.Job.ID = 101 })}, nil, ""},
		"another run's by its SLUID":     {[]Run{run("w1", sB)}, sA, ""},
		"another run's by its start":     {[]Run{run("w1", begun)}, later, ""},
		"the surer of two":               {[]Run{run("w1", begun), run("w2", nil)}, at, "w1"},
	} {
		job := slurm.Job{ID: 100, UID: 1001}
		if tt.edit != nil {
			tt.edit(&job)
		}
		if got, which := Match(tt.runs, job); got.Key != tt.want || (which == OpenRun) != (tt.want != "") {
			t.Errorf("%s: %q, %s; want %q", name, got.Key, which, tt.want)
		}
	}
}
