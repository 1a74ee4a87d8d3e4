package finding

import (
	"testing"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/slurm"
)

// The health check drains for nothing, whatever is configured; its exit code says only whether it checked.
func TestHealthCheckNeverDrains(t *testing.T) {
	c := enforcing(func(c *config.Config) { c.OnUnknown = config.Drain })
	c.Policy.HealthCheck = map[code.Code]config.Action{}
	for _, e := range code.All() {
		c.Policy.HealthCheck[e.Code] = config.Drain // no file may say so
		v := Compile(c, slurm.HealthCheck, "").Decide([]Finding{{Code: e.Code}}, 0)
		want := map[code.Code]int{code.BadEnv: 31, code.Panicked: 41, code.Deadline: 42}[e.Code]
		if v.Action != config.Warn || v.Exit != want || v.Judged[0].Action != config.Warn {
			t.Errorf("%s: %+v", e.Code, v)
		}
	}
}

func TestHealthCheckVerdict(t *testing.T) {
	decide := func(found ...Finding) Verdict {
		return Compile(enforcing(), slurm.HealthCheck, "p").Decide(found, 5)
	}
	if v := decide(); v.Action != config.Ignore || v.Exit != 0 {
		t.Errorf("nothing found: %+v", v)
	}
	if v := decide(Finding{Code: code.Trespass}); v.Action != config.Warn || v.Code != code.Trespass {
		t.Errorf("all cards are the health check's: %+v", v)
	}
	if v := decide(Finding{Code: code.BadEnv, Unknown: "x"}); v.Exit != 0 {
		t.Errorf("what is not known is no failure: %+v", v)
	}
	if v := decide(Finding{Code: code.Stuck}, Finding{Code: code.Orphan}); v.Exit != 0 || v.Action != config.Warn {
		t.Errorf("what is wrong with the node is no failure of the check: %+v", v)
	}
}
