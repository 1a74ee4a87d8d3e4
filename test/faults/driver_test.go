package faults

import (
	"os"
	"testing"

	"bookend/internal/code"
)

// What is wrong with the driver is nobody's certainty about a card: it is told, and drains only what the policy
// says. Bookend's own switch on_unknown has no part in it.
func TestDriver(t *testing.T) {
	try(t, map[string]fault{
		"no library": {finds: code.NoDriver, says: []string{"libnvidia-ml.so.1"},
			harm: func(n *node) { must(n, os.Remove(n.world.NVML())) }},
		"library of another kind": {finds: code.DriverKO, says: []string{"file too short"},
			harm: func(n *node) { must(n, os.WriteFile(n.world.NVML(), []byte("text"), 0o755)) }},
		"no driver in proc": {finds: code.NoDriver, says: []string{"not loaded"},
			harm: func(n *node) { must(n, os.RemoveAll(n.world.DriverProc())) }},
		"library without driver": {finds: code.NoDriver, says: []string{"nvmlInit_v2"},
			harm: func(n *node) { must(n, n.world.Set("on.nvmlInit_v2", "rc 9")) }},
		"version mismatch": {finds: code.Mismatch, says: []string{"nvmlInit_v2"},
			harm: func(n *node) { must(n, n.world.Set("on.nvmlInit_v2", "rc 18")) }},
		"an error of its own": {finds: code.DriverKO, says: []string{"999"},
			harm: func(n *node) { must(n, n.world.Set("on.nvmlInit_v2", "rc 999")) }},
		"strange proc": {finds: code.DriverKO, says: []string{"list cards"}, harm: func(n *node) {
			must(n, os.Mkdir(n.world.DriverProc()+"/gpus/..bus", 0o755))
		}},
	})
}

// Of a library whose file is named for another version than the module's that is said where it could not be asked, and
// only there: one that has just read the cards is the module's, whatever it is called.
func TestLibraryOfAnotherVersion(t *testing.T) {
	for name, tt := range map[string]struct {
		harm []string // a key of the world and what the driver does
		want bool
	}{
		"answers":         {nil, false},
		"does not answer": {[]string{"on.nvmlInit_v2", "hang"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			versioned := n.world.NVML() + ".111.22"
			must(t, os.Rename(n.world.NVML(), versioned))
			must(t, os.Symlink(versioned, n.world.NVML()))
			if tt.harm != nil {
				must(t, n.world.Set(tt.harm[0], tt.harm[1]))
				n.configure(func(c *conf) { c.tight = true })
			}
			for _, h := range hooks {
				o := n.hook(h, newJob())
				if found := n.findings(h); o.exit != 0 || has(found, code.Mismatch) != tt.want {
					t.Errorf("%s: %v %+v", h.program, o, found)
				}
			}
		})
	}
}

// A driver that is older than a call costs the figures concerned. Nothing is made up, nothing drains.
func TestOldDriver(t *testing.T) {
	for name, library := range map[string]func(*node) string{
		"before 510": func(n *node) string { return n.world.NVMLOld() },
		"without memory v2": func(n *node) string {
			path, err := n.world.NVMLWithout("nvmlDeviceGetMemoryInfo_v2")
			must(n, err)
			return path
		},
		"without process lists": func(n *node) string {
			path, err := n.world.NVMLWithout("nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3")
			must(n, err)
			return path
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.clean(prolog, bystanding())
			others := n.record()
			n.configure(func(c *conf) { c.library, c.onUnknown = library(n), "drain" })
			for _, h := range hooks {
				o := n.hook(h, newJob())
				found := n.findings(h)
				if o.exit != 0 || !has(found, code.Old) && !has(found, code.Unread) {
					t.Errorf("%s: %v %+v\n%s", h.program, o, found, n.log())
				}
			}
			n.unharmed(others)
		})
	}
}

// A lost card drains in both hooks, but no job that Slurm has restarted takes node after node with it.
func TestLostGPU(t *testing.T) {
	for name, tt := range map[string]struct {
		mode, rule string
		hook       hook
		restarts   string
		exit       int
		held       string
	}{
		"lost, prolog":          {"enforce", "rc 15", prolog, "0", 20, ""},
		"lost, second start":    {"enforce", "rc 15", prolog, "1", 20, ""},
		"lost, third start":     {"enforce", "rc 15", prolog, "2", 0, "restarted 2 times"},
		"lost, prolog, observe": {"observe", "rc 15", prolog, "0", 0, "observe mode"},
		"lost, epilog":          {"enforce", "rc 15", epilog, "0", 20, ""},
		"lost, epilog, third":   {"enforce", "rc 15", epilog, "2", 20, ""},
		"to be reset, prolog":   {"enforce", "rc 16", prolog, "0", 20, ""},
		"lost, epilog, observe": {"observe", "rc 15", epilog, "0", 0, "observe mode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, tt.mode)
			n.clean(prolog, bystanding())
			if tt.hook == epilog {
				n.clean(prolog, newJob())
			}
			others := n.record()
			must(t, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2.gpu0", tt.rule))
			o := n.hook(tt.hook, newJob().with("SLURM_JOB_RESTART_COUNT", tt.restarts))
			if o.exit != tt.exit || !has(n.findings(tt.hook), code.Lost) {
				t.Errorf("%v\n%s", o, n.log())
			}
			if len(lines(n.log(), "BKD-LOST", "held=", tt.held)) != 1 && tt.held != "" {
				t.Errorf("want %q in\n%s", tt.held, n.log())
			}
			n.unharmed(others)
		})
	}
}

// The other card is lost: that is not this job's business.
func TestAnotherGPULost(t *testing.T) {
	n := newNode(t, "enforce")
	must(t, n.world.Set("on.any.gpu1", "rc 15"))
	n.clean(prolog, newJob())
	n.clean(epilog, newJob())
}
