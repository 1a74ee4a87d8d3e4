package finding

import (
	"testing"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/slurm"
)

func enforcing(edit ...func(*config.Config)) config.Config {
	c := config.Default()
	c.Mode = config.Enforce
	for _, e := range edit {
		e(&c)
	}
	return c
}

func TestDecide(t *testing.T) {
	sure := Finding{Code: code.Orphan}
	tests := []struct {
		name     string
		cfg      config.Config
		phase    slurm.Context
		found    []Finding
		restarts int
		action   config.Action
		exit     int
		held     bool
	}{
		{"nothing found", enforcing(), slurm.Epilog, nil, 0, config.Ignore, 0, false},
		{"a certain orphan drains", enforcing(), slurm.Epilog, []Finding{sure}, 0, config.Drain, 10, false},
		{"observe never drains", config.Default(), slurm.Epilog, []Finding{sure}, 0, config.Warn, 0, true},
		{"a doubt is no drain", enforcing(), slurm.Epilog, []Finding{{Code: code.Orphan, Doubts: []string{"x"}}}, 0, config.Warn, 0, false},
		{"unknown is no drain", enforcing(), slurm.Epilog, []Finding{{Code: code.Residue, Unknown: "x"}}, 0, config.Warn, 0, false},
		{"the strongest decides", enforcing(), slurm.Epilog, []Finding{{Code: code.Foreign}, {Code: code.Residue}, {Code: code.Moving}}, 0, config.Drain, 11, false},
		{"a dirty GPU at the start warns", enforcing(), slurm.Prolog, []Finding{{Code: code.Dirty}}, 0, config.Warn, 0, false},
		{"a lost GPU at the start drains", enforcing(), slurm.Prolog, []Finding{{Code: code.Lost}}, 0, config.Drain, 20, false},
		{"a job restarted again and again is let through", enforcing(), slurm.Prolog, []Finding{{Code: code.Lost}}, 2, config.Warn, 0, true},
		{"restarts do not matter at the end", enforcing(), slurm.Epilog, []Finding{{Code: code.Lost}}, 9, config.Drain, 20, false},
		{"CUDA that does not work warns once", enforcing(), slurm.Epilog, []Finding{{Code: code.Broken}}, 0, config.Warn, 0, false},
		{"and drains at the next job", enforcing(), slurm.Epilog, []Finding{{Code: code.Broken, Repeated: true}}, 0, config.Drain, 18, false},
		{"not with a doubt", enforcing(), slurm.Epilog, []Finding{{Code: code.Broken, Repeated: true, Doubts: []string{"x"}}}, 0, config.Warn, 0, false},
		{"not where faults do not drain", enforcing(func(c *config.Config) { c.DrainOn = nil }), slurm.Epilog,
			[]Finding{{Code: code.Broken, Repeated: true}}, 0, config.Warn, 0, false},
		{"a driver that is gone at two jobs", enforcing(), slurm.Prolog, []Finding{{Code: code.NoDriver, Repeated: true}}, 0, config.Drain, 22, false},
		{"own faults warn", enforcing(), slurm.Epilog, []Finding{{Code: code.BackendMissing}}, 0, config.Warn, 0, false},
		{"own faults drain where the admin says so", enforcing(func(c *config.Config) { c.OnUnknown = config.Drain }), slurm.Epilog,
			[]Finding{{Code: code.BackendMissing}}, 0, config.Drain, 32, false},
		{"own notes never drain", enforcing(func(c *config.Config) { c.OnUnknown = config.Drain }), slurm.Epilog,
			[]Finding{{Code: code.NoRecord}, {Code: code.Again}, {Code: code.Output, Observed: "hung"}}, 0, config.Note, 0, false},
		{"a GPU that is not the job's never drains", enforcing(func(c *config.Config) {
			c.Policy.Epilog, c.OnUnknown = map[code.Code]config.Action{code.Trespass: config.Drain}, config.Drain
		}), slurm.Epilog, []Finding{{Code: code.Trespass}}, 0, config.Ignore, 0, false},
		{"a GPU that is not the job's does not hide the job's own", enforcing(), slurm.Epilog, []Finding{{Code: code.Trespass}, sure}, 0, config.Drain, 10, false},
		{"a note about a GPU never drains", enforcing(func(c *config.Config) {
			c.Policy.Epilog = map[code.Code]config.Action{code.Ended: config.Drain, code.Unjudged: config.Drain}
		}), slurm.Epilog, []Finding{{Code: code.Ended}, {Code: code.Unjudged}}, 0, config.Warn, 0, false},
		{"a partition's own rule comes first", enforcing(func(c *config.Config) {
			c.Policy.Partitions = map[string]config.PartitionPolicy{"p": {Epilog: map[code.Code]config.Action{code.Orphan: config.Note}}}
		}), slurm.Epilog, []Finding{sure}, 0, config.Note, 0, false},
		{"a partition's own mode comes first", enforcing(func(c *config.Config) {
			c.Policy.Partitions = map[string]config.PartitionPolicy{"p": {Mode: config.Observe}}
		}), slurm.Epilog, []Finding{sure}, 0, config.Warn, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := Compile(tt.cfg, tt.phase, "p").Decide(tt.found, tt.restarts)
			if v.Action != tt.action || v.Exit != tt.exit || (v.Held != "") != tt.held {
				t.Errorf("Decide = %+v, want %s, exit %d, held %v", v, tt.action, tt.exit, tt.held)
			}
			if len(v.Judged) != len(tt.found) {
				t.Errorf("judged %d of %d findings", len(v.Judged), len(tt.found))
			}
		})
	}
}

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
