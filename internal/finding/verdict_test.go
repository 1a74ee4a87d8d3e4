package finding

import (
	"fmt"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/settle"
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
		{"a certain orphan drains", enforcing(), slurm.Epilog, []Finding{sure}, 0, config.Drain, 10, false},
		{"observe never drains", config.Default(), slurm.Epilog, []Finding{sure}, 0, config.Warn, 0, true},
		{"a doubt is no drain", enforcing(), slurm.Epilog, []Finding{{Code: code.Orphan, Doubts: []string{"x"}}}, 0, config.Warn, 0, false},
		{"unknown is no drain", enforcing(), slurm.Epilog, []Finding{{Code: code.Residue, Unknown: "x"}}, 0, config.Warn, 0, false},
		{"the strongest decides", enforcing(), slurm.Epilog, []Finding{{Code: code.Foreign}, {Code: code.Residue}, {Code: code.Moving}}, 0, config.Drain, 11, false},
		{"a lost GPU at the start drains", enforcing(), slurm.Prolog, []Finding{{Code: code.Lost}}, 0, config.Drain, 20, false},
		{"a job restarted again and again is let through", enforcing(), slurm.Prolog, []Finding{{Code: code.Lost}}, 2, config.Warn, 0, true},
		{"restarts do not matter at the end", enforcing(), slurm.Epilog, []Finding{{Code: code.Lost}}, 9, config.Drain, 20, false},
		{"CUDA that does not work warns once", enforcing(), slurm.Epilog, []Finding{{Code: code.Broken}}, 0, config.Warn, 0, false},
		{"and drains at the next job", enforcing(), slurm.Epilog, []Finding{{Code: code.Broken, Repeated: true}}, 0, config.Drain, 18, false},
		{"not with a doubt", enforcing(), slurm.Epilog, []Finding{{Code: code.Broken, Repeated: true, Doubts: []string{"x"}}}, 0, config.Warn, 0, false},
		{"not where faults do not drain", enforcing(func(c *config.Config) { c.DrainOn = nil }), slurm.Epilog,
			[]Finding{{Code: code.Broken, Repeated: true}}, 0, config.Warn, 0, false},
		{"a driver that is gone at two jobs", enforcing(), slurm.Prolog, []Finding{{Code: code.NoDriver, Repeated: true}}, 0, config.Drain, 22, false},
		{"own faults drain where the admin says so", enforcing(func(c *config.Config) { c.OnOwnError = config.Drain }), slurm.Epilog,
			[]Finding{{Code: code.BackendMissing}}, 0, config.Drain, 32, false},
		{"own notes never drain", enforcing(func(c *config.Config) { c.OnOwnError = config.Drain }), slurm.Epilog,
			[]Finding{{Code: code.NoRecord}, {Code: code.Again}, {Code: code.Output, Observed: "hung"}}, 0, config.Note, 0, false},
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

// The health check drains for nothing, whatever is configured; its exit code says only whether it checked.
func TestHealthCheckNeverDrains(t *testing.T) {
	c := enforcing(func(c *config.Config) { c.OnOwnError = config.Drain })
	c.Policy.HealthCheck = map[code.Code]config.Action{}
	for _, e := range code.All() {
		c.Policy.HealthCheck[e.Code] = config.Drain // no file may say so
		v := Decide(c, slurm.HealthCheck, slurm.Job{}, []Finding{{Code: e.Code}})
		want := map[code.Code]int{code.BadEnv: 31, code.Panicked: 41, code.Deadline: 42}[e.Code]
		if v.Action != config.Warn || v.Exit != want || v.Judged[0].Action != config.Warn {
			t.Errorf("%s: %+v", e.Code, v)
		}
	}
}

// A second look adds what it found, and takes back no more than what it proves gone.
func TestAgain(t *testing.T) {
	held := Finding{Code: code.Orphan, GPU: card, Bytes: gpu.Bytes(gib), Holder: &Holder{Process: orphan}}
	residue := Finding{Code: code.Residue, GPU: card, Bytes: gpu.Bytes(gib)}
	trespass := Finding{Code: code.Trespass, GPU: "GPU-1", Holder: &Holder{Process: attrib.Process{PID: 80}}}
	untraced := Finding{Code: code.Untraced, Unknown: "one process hung"}
	moving, unread := Finding{Code: code.Moving, GPU: card, Unknown: "after 2.0 s"}, Finding{Code: code.Unread, GPU: card, Unknown: "no reading"}
	later := held
	later.Bytes = gpu.Bytes(2 * gib)
	clean, flat := side(at(200), settle.Clean, reading(0)), side(at(200), settle.Flat, reading(gib))
	still := side(at(200), settle.Moving, reading(gib, listed(70, gib)), orphan)
	gone := side(at(200), settle.Moving, reading(gib))
	young := orphan
	young.Start = at(199)
	reused := side(at(200), settle.Moving, reading(gib, listed(70, gib)), young)
	blind := Side{Curves: map[gpu.ID]settle.Curve{card: {State: settle.Unknown}}}

	for name, tt := range map[string]struct {
		first, second []Finding
		now           Side
		want          string // codes; "?" marks one with a doubt
	}{
		"it is clean":                   {[]Finding{held, residue, untraced}, nil, clean, ""},
		"something else is there":       {[]Finding{held}, []Finding{residue}, flat, "BKD-RESIDUE "},
		"the process has gone":          {[]Finding{held}, []Finding{moving}, gone, "BKD-MOVING "},
		"its PID is another's":          {[]Finding{held}, []Finding{moving}, reused, "BKD-MOVING "},
		"it is there still":             {[]Finding{held}, []Finding{moving}, still, "BKD-ORPHAN? BKD-MOVING "},
		"named again":                   {[]Finding{held, moving}, []Finding{later, moving}, still, "BKD-ORPHAN BKD-MOVING "},
		"not read":                      {[]Finding{held, residue}, []Finding{unread}, blind, "BKD-ORPHAN? BKD-RESIDUE? BKD-UNREAD "},
		"other GPUs are not seen again": {[]Finding{trespass}, nil, clean, "BKD-TRESPASS "},
	} {
		got := ""
		for _, f := range ending(tt.now).Again(tt.first, tt.second) {
			mark := ""
			if len(f.Doubts) > 0 {
				mark = "?"
			}
			got += fmt.Sprintf("%s%s ", f.Code, mark)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if len(held.Doubts) > 0 {
		t.Errorf("the first list was changed: %+v", held)
	}
}
