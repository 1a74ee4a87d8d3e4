package policy

import (
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/record"
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
	sure := record.Finding{Code: catalog.Orphan}
	tests := []struct {
		name     string
		cfg      config.Config
		phase    slurm.Context
		found    []record.Finding
		restarts int
		action   config.Action
		exit     int
		held     bool
	}{
		{"a certain orphan drains", enforcing(), slurm.Epilog, []record.Finding{sure}, 0, config.Drain, 10, false},
		{"observe never drains", config.Default(), slurm.Epilog, []record.Finding{sure}, 0, config.Warn, 0, true},
		{"a doubt is no drain", enforcing(), slurm.Epilog, []record.Finding{{Code: catalog.Orphan, Doubts: []string{"x"}}}, 0, config.Warn, 0, false},
		{"unknown is no drain", enforcing(), slurm.Epilog, []record.Finding{{Code: catalog.Residue, Unknown: "x"}}, 0, config.Warn, 0, false},
		{"the strongest decides", enforcing(), slurm.Epilog, []record.Finding{{Code: catalog.Foreign}, {Code: catalog.Residue}, {Code: catalog.Moving}}, 0, config.Drain, 11, false},
		{"a lost GPU at the start drains", enforcing(), slurm.Prolog, []record.Finding{{Code: catalog.Lost}}, 0, config.Drain, 20, false},
		{"a job restarted again and again is let through", enforcing(), slurm.Prolog, []record.Finding{{Code: catalog.Lost}}, 2, config.Warn, 0, true},
		{"restarts do not matter at the end", enforcing(), slurm.Epilog, []record.Finding{{Code: catalog.Lost}}, 9, config.Drain, 20, false},
		{"CUDA that does not work warns once", enforcing(), slurm.Epilog, []record.Finding{{Code: catalog.Broken}}, 0, config.Warn, 0, false},
		{"and drains at the next job", enforcing(), slurm.Epilog, []record.Finding{{Code: catalog.Broken, Repeated: true}}, 0, config.Drain, 18, false},
		{"not with a doubt", enforcing(), slurm.Epilog, []record.Finding{{Code: catalog.Broken, Repeated: true, Doubts: []string{"x"}}}, 0, config.Warn, 0, false},
		{"not where faults do not drain", enforcing(func(c *config.Config) { c.DrainOn = nil }), slurm.Epilog,
			[]record.Finding{{Code: catalog.Broken, Repeated: true}}, 0, config.Warn, 0, false},
		{"a driver that is gone at two jobs", enforcing(), slurm.Prolog, []record.Finding{{Code: catalog.NoDriver, Repeated: true}}, 0, config.Drain, 22, false},
		{"own faults drain where the admin says so", enforcing(func(c *config.Config) { c.OnOwnError = config.Drain }), slurm.Epilog,
			[]record.Finding{{Code: catalog.BackendMissing}}, 0, config.Drain, 32, false},
		{"own notes never drain", enforcing(func(c *config.Config) { c.OnOwnError = config.Drain }), slurm.Epilog,
			[]record.Finding{{Code: catalog.NoRecord}, {Code: catalog.Again}, {Code: catalog.Output, Observed: "hung"}}, 0, config.Note, 0, false},
		{"a note about a GPU never drains", enforcing(func(c *config.Config) {
			c.Policy.Epilog = map[catalog.Code]config.Action{catalog.Ended: config.Drain, catalog.Unjudged: config.Drain}
		}), slurm.Epilog, []record.Finding{{Code: catalog.Ended}, {Code: catalog.Unjudged}}, 0, config.Warn, 0, false},
		{"a partition's own rule comes first", enforcing(func(c *config.Config) {
			c.Policy.Partitions = map[string]config.PartitionPolicy{"p": {Epilog: map[catalog.Code]config.Action{catalog.Orphan: config.Note}}}
		}), slurm.Epilog, []record.Finding{sure}, 0, config.Note, 0, false},
		{"a partition's own mode comes first", enforcing(func(c *config.Config) {
			c.Policy.Partitions = map[string]config.PartitionPolicy{"p": {Mode: config.Observe}}
		}), slurm.Epilog, []record.Finding{sure}, 0, config.Warn, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := Decide(tt.cfg, tt.phase, slurm.Job{Partition: "p", Restarts: tt.restarts}, tt.found)
			if v.Action != tt.action || v.Exit != tt.exit || (v.Held != "") != tt.held {
				t.Errorf("Decide = %+v, want %s, exit %d, held %v", v, tt.action, tt.exit, tt.held)
			}
			if len(v.Judged) != len(tt.found) {
				t.Errorf("judged %d of %d findings", len(v.Judged), len(tt.found))
			}
		})
	}
}

// Where a failed epilog may start the job again, only a fault of the GPU or its driver makes one fail: whatever else
// drains, as a leftover, an error of the job's program or one of Bookend's, is scontrol's to drain for.
func TestSpare(t *testing.T) {
	left, fault := record.Finding{Code: catalog.Orphan}, record.Finding{Code: catalog.XidFatal}
	doubted := fault
	doubted.Doubts = []string{"x"}
	all := enforcing(func(c *config.Config) {
		c.OnOwnError, c.Policy.Epilog = config.Drain, map[catalog.Code]config.Action{catalog.Xid: config.Drain,
			catalog.Gap: config.Drain, catalog.Hang: config.Drain, catalog.Moving: config.Drain}
	})
	for name, tt := range map[string]struct {
		cfg          config.Config
		found        []record.Finding
		exit, status int
	}{
		"a leftover":                  {enforcing(), []record.Finding{left}, 10, 0},
		"a fault":                     {enforcing(), []record.Finding{fault}, 29, 29},
		"a fault next to a leftover":  {enforcing(), []record.Finding{left, fault}, 10, 10},
		"a doubted one next to it":    {enforcing(), []record.Finding{left, doubted}, 10, 0},
		"a fault from before the job": {enforcing(), []record.Finding{{Code: catalog.XidFatal, Earlier: true}}, 29, 0},
		"CUDA failed at two jobs":     {enforcing(), []record.Finding{{Code: catalog.Broken, Repeated: true}}, 18, 18},
		"CUDA failed once":            {enforcing(), []record.Finding{{Code: catalog.Broken}}, 0, 0},
		"nothing":                     {enforcing(), nil, 0, 0},
		"observe mode":                {config.Default(), []record.Finding{left, fault}, 0, 0},
		"an error of the job's own":   {all, []record.Finding{{Code: catalog.Xid}}, 40, 0},
		"fragmented memory":           {all, []record.Finding{{Code: catalog.Gap}}, 16, 0},
		"memory that is still moving": {all, []record.Finding{{Code: catalog.Moving}}, 40, 0},
		"one silent driver":           {all, []record.Finding{{Code: catalog.Hang}}, 26, 0},
		"an error of Bookend's own":   {all, []record.Finding{{Code: catalog.StateWrite}}, 39, 0},
	} {
		v := Spare(Decide(tt.cfg, slurm.Epilog, slurm.Job{}, tt.found), tt.found)
		if v.Exit != tt.exit || v.Status() != tt.status || v.ByScontrol != (tt.exit != tt.status) {
			t.Errorf("%s: %+v, want exit %d, status %d", name, v, tt.exit, tt.status)
		}
	}
}

// The health check drains for nothing, whatever is configured, but for a fatal error of a GPU that an earlier hook or
// check has seen too, if the end of a job of any partition would drain for it, and for a fault that the site's own check
// reports twice, if the policy says so. Its exit code says only whether it checked.
func TestHealthCheckDrainsForOneThing(t *testing.T) {
	c := enforcing(func(c *config.Config) { c.OnOwnError = config.Drain })
	for _, e := range catalog.All() {
		for _, own := range []config.Action{config.Drain, ""} { // no file may say drain
			c.Policy.HealthCheck = map[catalog.Code]config.Action{e.Code: own}
			for _, earlier := range []bool{false, true} {
				v := Decide(c, slurm.HealthCheck, slurm.Job{}, []record.Finding{{Code: e.Code, Earlier: earlier}})
				want := map[catalog.Code]int{catalog.BadEnv: 31, catalog.Panicked: 41, catalog.Deadline: 42}[e.Code]
				drains := own == "" && earlier && e.Code == catalog.XidFatal // the site's own check drains only if it is repeated
				if (v.Action == config.Drain) != drains || v.Exit != want || (v.Judged[0].Action == config.Drain) != drains {
					t.Errorf("%s, %q, earlier %v: %+v", e.Code, own, earlier, v)
				}
			}
		}
	}
	stands := record.Finding{Code: catalog.XidFatal, Earlier: true}
	doubted, unknown := stands, stands
	doubted.Doubts, unknown.Unknown = []string{"x"}, "x"
	partition := func(p config.PartitionPolicy) func(*config.Config) {
		return func(c *config.Config) { c.Policy.Partitions = map[string]config.PartitionPolicy{"p": p} }
	}
	warns := map[catalog.Code]config.Action{catalog.XidFatal: config.Warn}
	check := func(action config.Action) func(*config.Config) {
		return func(c *config.Config) {
			c.Policy.HealthCheck = map[catalog.Code]config.Action{catalog.External: action}
		}
	}
	external, ignoresExternal := check(config.Drain), check(config.Ignore)
	twice := record.Finding{Code: catalog.External, Repeated: true}
	twiceDoubted := twice
	twiceDoubted.Doubts = []string{"x"}
	for name, tt := range map[string]struct {
		f      record.Finding
		edit   func(*config.Config)
		action config.Action
		held   bool
	}{
		"enforced":                   {stands, func(*config.Config) {}, config.Drain, false},
		"observe mode":               {stands, func(c *config.Config) { c.Mode = config.Observe }, config.Warn, true},
		"a partition that observes":  {stands, partition(config.PartitionPolicy{Mode: config.Observe}), config.Warn, false},
		"a partition that warns":     {stands, partition(config.PartitionPolicy{Epilog: warns}), config.Warn, false},
		"ends that warn":             {stands, func(c *config.Config) { c.Policy.Epilog = warns }, config.Warn, false},
		"checks that warn":           {stands, func(c *config.Config) { c.Policy.HealthCheck = warns }, config.Warn, false},
		"faults that do not drain":   {stands, func(c *config.Config) { c.DrainOn = nil }, config.Warn, false},
		"with a doubt":               {doubted, func(*config.Config) {}, config.Warn, false},
		"of a GPU that is not known": {unknown, func(*config.Config) {}, config.Warn, false},

		"the site's own check twice":              {twice, external, config.Drain, false},
		"once":                                    {record.Finding{Code: catalog.External}, external, config.Warn, false},
		"twice, as it comes":                      {twice, func(*config.Config) {}, config.Warn, false},
		"twice, ignored":                          {twice, ignoresExternal, config.Ignore, false},
		"twice, in observe mode":                  {twice, func(c *config.Config) { external(c); c.Mode = config.Observe }, config.Warn, true},
		"twice, where a partition observes":       {twice, func(c *config.Config) { external(c); partition(config.PartitionPolicy{Mode: config.Observe})(c) }, config.Warn, false},
		"twice, with a doubt":                     {twiceDoubted, external, config.Warn, false},
		"not known":                               {record.Finding{Code: catalog.External, Unknown: "x", Repeated: true}, external, config.Warn, false},
		"twice, where faults of the driver don't": {twice, func(c *config.Config) { external(c); c.DrainOn = nil }, config.Drain, false},
	} {
		if v := Decide(enforcing(tt.edit), slurm.HealthCheck, slurm.Job{}, []record.Finding{tt.f}); v.Action != tt.action ||
			(v.Held != "") != tt.held {
			t.Errorf("%s: %+v", name, v)
		}
	}
}
