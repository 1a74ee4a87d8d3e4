package ledger

import (
	"testing"
	"time"

	"bookend/internal/slurm"
)

// An epilog's run is its own user's: a job id that another user's job had before, as after a reset of Slurm's ids, is
// another job's.
func TestMatchUser(t *testing.T) {
	run := func(key string, edit func(*Run)) Run {
		r := Run{Key: key, Job: slurm.Job{ID: 100, UID: 1001}}
		if edit != nil {
			edit(&r)
		}
		return r
	}
	for name, tt := range map[string]struct {
		runs []Run
		edit func(*slurm.Job)
		want string
	}{
		"another user's":                 {[]Run{run("w1", func(r *Run) { r.Job.UID = 1002 })}, nil, ""},
		"another user's, which is newer": {[]Run{run("w1", nil), run("w2", func(r *Run) { r.Job.UID, r.Start = 1002, &End{At: time.Second} })}, nil, "w1"},
		"another user's with its SLUID":  {[]Run{run("w1", func(r *Run) { r.Job.UID, r.Job.SLUID = 1002, "sA" })}, func(j *slurm.Job) { j.SLUID = "sA" }, ""},
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
