package session

import (
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/child"
	"bookend/internal/clock"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/operation"
	"bookend/internal/slurm"
)

// A stuck reader that cannot be put on record is the last that this hook starts.
func TestUnkeptReader(t *testing.T) {
	still := clock.Clock{Wall: func() time.Time { return time.Unix(1, 0) }, Boot: func() time.Duration { return 1 }}
	d := New(operation.Env{Clock: still}, slurm.Epilog)
	d.Config = config.Default()
	d.Config.Paths.Run = t.TempDir()
	for _, tt := range []struct {
		outcome child.Outcome
		want    bool
	}{{child.Hung, false}, {child.Abandoned, true}} {
		failure := &operation.Error{Op: operation.Holders.Name, Result: child.Result{Outcome: tt.outcome}}
		d.abandonedReader(operation.Holders.Name, failure, []attrib.Instance{})
		if d.unkept != tt.want {
			t.Errorf("after a reader that was %s: no other may be started: got %v, want %v", tt.outcome, d.unkept, tt.want)
		}
	}
}

// What is said in the same words is told once.
func TestOnce(t *testing.T) {
	said := []finding.Finding{{Unknown: "a"}}
	news := Once([]finding.Finding{{Unknown: "a"}, {Unknown: "b"}, {Unknown: "b"}, {Unknown: "c"}}, said)
	if len(news) != 2 || news[0].Unknown != "b" || news[1].Unknown != "c" {
		t.Errorf("got %+v, want b and c", news)
	}
}
