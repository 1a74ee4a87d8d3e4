package faults

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"bookend/internal/code"
	"bookend/test/rig"
)

// backend makes a node's backend what a script says.
func backend(script string) func(*node) {
	return func(n *node) {
		path := n.script("backend", script)
		n.configure(func(c *conf) { c.backend = path })
	}
}

// driver makes a call of the driver's behave otherwise.
func driver(call, rule string) func(*node) {
	return func(n *node) { n.Helper(); n.set("on."+call, rule) }
}

const hello = `{"bookend":1,"kind":"hello","hello":{"backend":"script","version":"1"}}`

func says(text string) string { return "read request\ncat <<'END'\n" + text + "\nEND\n" }

// Each way in which a backend can fail has its code. Which of its answers are garbage package backend knows.
func TestBackend(t *testing.T) {
	try(t, map[string]fault{
		"missing": {finds: code.BackendMissing, exit: 32, says: "no such file",
			harm: func(n *node) { n.configure(func(c *conf) { c.backend = n.in("nothing") }) }},
		"no program": {finds: code.BackendMissing, exit: 32, says: "exec format error", harm: func(n *node) {
			path := n.put("text", "\x7fELF\x00", 0o755)
			n.configure(func(c *conf) { c.backend = path })
		}},
		"not root's": {finds: code.BackendRefused, exit: 33, says: "owner is 65534, not root",
			harm: func(n *node) { backend("exit 0")(n); n.give(n.conf.backend, user) }},
		"library not root's": {finds: code.BackendRefused, exit: 33, says: "owner is 65534, not root",
			harm: func(n *node) { n.give(n.world.NVML(), user) }},
		"crashing": {finds: code.BackendCrash, exit: 34, says: "SIGSEGV: segmentation violation",
			harm: driver(memoryCall, "crash")},
		"failing": {finds: code.BackendCrash, exit: 34, says: "exit code 3: out of luck",
			harm: backend("echo out of luck >&2; exit 3")},
		"silent":   {finds: code.BackendGarbage, exit: 35, says: "cut off", harm: backend("exit 0")},
		"nonsense": {finds: code.BackendGarbage, exit: 35, says: "line 1: garbage", harm: backend(says("GPU 0: H200"))},
		"leaves a child that holds its descriptors": {finds: code.BackendGarbage, exit: 35,
			harm: backend(says(hello) + "sleep 1000 &\nexit 0")},
		"wrong version, and dies": {finds: code.BackendVersion, exit: 36, says: "version 2, not 1",
			harm: backend(says(`{"bookend":2,"kind":"hello"}`) + "exit 1")},
		"flooding":        {finds: code.BackendFlood, exit: 37, harm: backend("exec cat /dev/zero")},
		"flooding stderr": {finds: code.BackendCrash, exit: 34, harm: backend("head -c 9000000 /dev/zero >&2; exit 1")},
	})
}

// Hanging: killed at the deadline, a warning about the driver, no fault of Bookend's.
func TestBackendHangs(t *testing.T) {
	tight := func(harm func(*node)) func(*node) {
		return func(n *node) { n.configure(func(c *conf) { c.tight = true }); harm(n) }
	}
	faults := map[string]fault{}
	for name, harm := range map[string]func(*node){
		"script":        backend("trap '' TERM ALRM HUP INT; while :; do sleep 1000; done"),
		"stopped":       backend("kill -STOP $$"),
		"driver":        driver("nvmlInit_v2", "hang"),
		"driver, later": driver(memoryCall, "hang-hard"),
	} {
		faults[name] = fault{finds: code.Hang, says: "driver does not answer", harm: tight(harm)}
	}
	try(t, faults)
}

// The vendor-neutral core is enough: a static program that knows ids, memory and processes gives a clean start
// and names what the job left, also where it lists the GPUs itself, as another vendor's without NVIDIA's directory in
// /proc.
func TestCoreOnlyBackend(t *testing.T) {
	for name, lists := range map[string]bool{"ids and memory": false, "the GPUs too": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			must(t, os.Mkdir(n.in("core"), 0o755))
			must(t, os.Link(program("backend"), n.in("core/backend")))
			n.configure(func(c *conf) { c.backend = n.in("core/backend") })
			if lists {
				n.put("core/devices", fmt.Sprintf(`[{"id": %q, "bus_id": %q, "minor": 0}]`, n.world.UUID(0),
					n.world.BusID(0)), 0o644)
				n.configure(func(c *conf) { c.driverProc = `""` })
				must(t, os.RemoveAll(n.world.DriverProc()))
			}
			n.clean(prolog, newJob())
			orphan := sleeps(t)
			n.put("core/cards", fmt.Sprintln(n.world.UUID(0), orphan, 700<<20), 0o644)
			n.exits(10, epilog, newJob())
			f := n.found(n.findings(epilog), code.Orphan)
			if f.Holder.PID != orphan || f.Bytes.Bytes != 700<<20 || f.Owner == nil || f.Owner.Job != 100 {
				t.Errorf("%+v", f)
			}
		})
	}
}

// sleeps is a process of the job's user that outlives the test's hooks.
func sleeps(t *testing.T) (pid int) {
	t.Helper()
	sleep := exec.Command("/bin/sleep", "1000")
	sleep.Env, sleep.SysProcAttr = []string{}, rig.As(user)
	must(t, sleep.Start())
	t.Cleanup(func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	})
	return sleep.Process.Pid
}
