package stage

import (
	"testing"
	"time"

	"bookend/internal/clock"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/judge"
	"bookend/internal/operation"
	"bookend/internal/session"
	"bookend/internal/slurm"
)

// Clean-up is for the one epilog of a run that slurmd itself runs, where an admin wants it.
func TestWhoCleansUp(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*record)
		want   bool
	}{
		"enabled":                   {func(*record) {}, true},
		"off":                       {func(r *record) { r.Config.CleanUp.Enabled = false }, false},
		"inside the job":            {func(r *record) { r.InJob = true }, false},
		"its end is on record":      {func(r *record) { r.Past.Again = true }, false},
		"another epilog is at work": {func(r *record) { r.Past.Second = true }, false},
	} {
		r := &record{}
		r.Config.CleanUp.Enabled = true
		tt.change(r)
		if got := r.mayCleanUp(); got != tt.want {
			t.Errorf("%s: may clean up: got %v, want %v", name, got, tt.want)
		}
	}
}

// A hook without time ends no process, and says so.
func TestNoTimeToCleanUp(t *testing.T) {
	late := clock.Clock{Boot: func() time.Duration { return 0 }}
	d := session.New(operation.Env{Clock: late}, slurm.Epilog).Driver()
	d.Config = config.Default()
	d.Limit(time.Second)
	did, ended := endAll(d, judge.Seen{}, []finding.Holder{{}})
	if len(did) != 1 || did[0].Unknown == "" || len(ended) > 0 {
		t.Errorf("got %+v and %v, want one finding that says why, and nothing ended", did, ended)
	}
}
