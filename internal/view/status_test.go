package view

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/metrics"
	"bookend/internal/record"
	"bookend/internal/safetext"
	"bookend/test/golden"
	"bookend/test/must"
)

func clock(hour, minute int) time.Time {
	return time.Date(2026, 11, 21, hour, minute, 0, 0, time.Local)
}

// TestStatus holds what is shown of a node to testdata/status.txtar.
func TestStatus(t *testing.T) {
	now := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	golden.Archive(t, *update, "testdata/status.txtar", func(given string) string {
		var node struct {
			Status    Status
			See       [][2]string // a code, and what was seen, or that there is none
			Met       []metrics.Trouble
			Runs      []record.Run
			Now       gpu.Snapshot
			Who       map[int]record.Process
			Baselines map[gpu.ID]record.Baseline
		}
		must.Do(t, json.Unmarshal([]byte(given), &node))
		s := node.Status
		s.At = clock(10, 0)
		for _, seen := range node.See {
			s.AddTrouble(catalog.Code(seen[0]), seen[1])
		}
		s.addMet(node.Met)
		scene := Readings{Now: node.Now, Who: node.Who, At: clock(8, 0).Add, Runs: node.Runs, Epoch: now,
			Baselines: node.Baselines, Limits: record.Limits{PerClient: 9 << 20}}
		if s.Driver != nil || node.Now.At > 0 {
			s.GPUs = NewGPUs(scene)
		}
		var b strings.Builder
		if safetext.KeepAll(NewStatus(s, node.Runs), 400).Text(&b); node.Now.At > 0 {
			safetext.KeepAll(NewSnapshot(scene, ""), 400).Text(&b)
		}
		return b.String()
	})
}

// A GPU's state names what an admin has to look at, and no job that is at work.
func TestStateOfAGPU(t *testing.T) {
	full, none := gpu.Bytes(20<<30), gpu.Bytes(0)
	used := func(odd gpu.Figure, p ...Process) GPUStatus {
		return GPUStatus{Memory: gpu.Memory{Used: full}, Unexplained: odd, Processes: p}
	}
	with := func(c GPUStatus, job string, last ...catalog.Code) GPUStatus {
		if job != "" {
			c.Jobs = []string{job}
		}
		c.Last = &LastSample{Codes: last}
		return c
	}
	of := func(p Process) Process { p.UID = 7; return p }
	over := of(Process{PID: 1, Job: "4"})
	over.JobEnded = clock(9, 0)
	own, login := of(Process{PID: 2, Job: "5"}), of(Process{PID: 3})
	service, gone := of(Process{PID: 4, Service: "dcgm.service"}), of(Process{PID: 5, Gone: true})
	for name, tt := range map[string]struct {
		gpu  GPUStatus
		want string
	}{
		"not read":                            {GPUStatus{Memory: gpu.Memory{Used: gpu.Unknown("")}}, stateUnknown},
		"empty":                               {used(none), stateFree},
		"a job's own":                         {with(used(none, own), "5"), stateInUse},
		"an ended job's, beside a job's own":  {with(used(none, own, over), "5"), stateLeftover},
		"an ended job's, and no job":          {used(gpu.Unknown(""), over), stateLeftover},
		"a dead process":                      {used(none, gone), stateLeftover},
		"a dead process while a job is there": {with(used(none, gone), "5"), stateInUse},
		"what the last end found":             {with(used(none, login), "", catalog.Orphan), stateLeftover},
		"what it found is gone":               {with(used(none, service), "", catalog.Orphan), stateInUse},
		"memory without a process":            {with(used(full), ""), stateUnexplained},
		"the same, found by the last end":     {with(used(full), "", catalog.Residue), stateLeftover},
		"a login's process":                   {used(none, login), stateStray},
		"a job's on a GPU it was not given":   {used(none, own), stateStray},
	} {
		if got := tt.gpu.state(); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
