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
		change func(*judge.Case)
		want   bool
	}{
		"enabled":                   {func(*judge.Case) {}, true},
		"off":                       {func(c *judge.Case) { c.Config.CleanUp.Enabled = false }, false},
		"inside the job":            {func(c *judge.Case) { c.InJob = true }, false},
		"its end is on record":      {func(c *judge.Case) { c.Past.Again = true }, false},
		"another epilog is at work": {func(c *judge.Case) { c.Past.Second = true }, false},
	} {
		c := judge.Case{}
		c.Config.CleanUp.Enabled = true
		tt.change(&c)
		if got := mayCleanUp(c); got != tt.want {
			t.Errorf("%s: may clean up: got %v, want %v", name, got, tt.want)
		}
	}
}

// A hook without time ends no process, and says so.
func TestNoTimeToCleanUp(t *testing.T) {
	late := clock.Clock{Boot: func() time.Duration { return 0 }}
	d := session.New(operation.Env{Clock: late}, slurm.Epilog)
	d.Config = config.Default()
	d.Limit(time.Second)
	did, ended := endAll(d, judge.Seen{}, []finding.Holder{{}})
	if len(did) != 1 || did[0].Unknown == "" || ended {
		t.Errorf("got %+v and %v, want one finding that says why, and nothing ended", did, ended)
	}
}
