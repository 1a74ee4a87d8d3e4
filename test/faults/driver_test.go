package faults

import (
	"os"
	"strings"
	"testing"

	"bookend/internal/code"
)

// What is wrong with the driver is nobody's certainty about a GPU: it is told, and drains only what the policy
// says. Bookend's own switch on_unknown has no part in it.
func TestDriver(t *testing.T) {
	try(t, map[string]fault{
		"no library": {finds: code.NoDriver, says: "libnvidia-ml.so.1",
			harm: func(n *node) { must(n, os.Remove(n.world.NVML())) }},
		"library of another kind": {finds: code.DriverKO, says: "file too short",
			harm: func(n *node) { n.put(n.world.NVML(), "text", 0o755) }},
		"no driver in proc": {finds: code.NoDriver, says: "not loaded",
			harm: func(n *node) { must(n, os.RemoveAll(n.world.DriverProc())) }},
		"library without driver": {finds: code.NoDriver, says: "nvmlInit_v2", harm: driver("nvmlInit_v2", "rc 9")},
		"version mismatch":       {finds: code.Mismatch, says: "nvmlInit_v2", harm: driver("nvmlInit_v2", "rc 18")},
		"an error of its own":    {finds: code.DriverKO, says: "999", harm: driver("nvmlInit_v2", "rc 999")},
		"strange proc": {finds: code.DriverKO, says: "list GPUs",
			harm: func(n *node) { must(n, os.Mkdir(n.world.DriverProc()+"/gpus/..bus", 0o755)) }},
		"older than process lists": {finds: code.Old, harm: func(n *node) {
			path, err := n.world.NVMLWithout("nvmlDeviceGetComputeRunningProcesses_v2",
				"nvmlDeviceGetComputeRunningProcesses_v3")
			must(n, err)
			n.configure(func(c *conf) { c.library = path })
		}},
	})
}

// A lost GPU drains in both hooks, but a call that fails once proves nothing: the next look decides; and no job that
// Slurm has restarted takes node after node with it.
func TestLostGPU(t *testing.T) {
	const handle = "nvmlDeviceGetHandleByPciBusId_v2"
	for name, tt := range map[string]struct {
		mode, call, rule string
		hook             hook
		restarts         string
		exit             int
		held             string
	}{
		"prolog":                {"enforce", memoryCall, "rc 15", prolog, "1", 20, ""},
		"third start":           {"enforce", memoryCall, "rc 15", prolog, "2", 0, "restarted 2 times"},
		"prolog, observe":       {"observe", memoryCall, "rc 15", prolog, "0", 0, "observe mode"},
		"epilog, third":         {"enforce", memoryCall, "rc 15", epilog, "2", 20, ""},
		"no handle":             {"enforce", handle, "rc 15", epilog, "0", 20, ""},
		"to be reset, prolog":   {"enforce", memoryCall, "rc 16", prolog, "0", 20, ""},
		"for a look":            {"enforce", memoryCall, "rc 15 times 1", prolog, "0", 0, ""},
		"for a look, no handle": {"enforce", handle, "rc 16 times 1", epilog, "0", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, tt.mode)
			n.clean(prolog, bystanding())
			if tt.hook == epilog {
				n.clean(prolog, newJob())
			}
			others := n.record()
			n.set("on."+tt.call+".gpu0", tt.rule)
			n.exits(tt.exit, tt.hook, newJob().With("SLURM_JOB_RESTART_COUNT", tt.restarts))
			if once := strings.Contains(tt.rule, "times"); has(n.findings(tt.hook), code.Lost) == once {
				t.Errorf("%+v", n.findings(tt.hook))
			}
			if tt.held != "" {
				n.says("BKD-LOST", "held=", tt.held)
			}
			n.unharmed(others)
		})
	}
}

// A driver that is gone at two jobs in a row drains, and a library that is only not where it was looked for never.
func TestDriverGoneTwice(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		harm func(*node)
		exit int
	}{
		"the driver is not loaded": {driver("nvmlInit_v2", "rc 9"), 22},
		"versions differ":          {driver("nvmlInit_v2", "rc 18"), 23},
		"no library":               {func(n *node) { must(n, os.Remove(n.world.NVML())) }, 0},
		"no driver in proc":        {func(n *node) { must(n, os.RemoveAll(n.world.DriverProc())) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			tt.harm(n)
			first := newJob()
			n.exits(0, prolog, first)
			n.exits(0, epilog, first)
			second := newJob().With("SLURM_JOB_ID", "101")
			n.exits(tt.exit, prolog, second)
			n.exits(tt.exit, epilog, second)
		})
	}
}
