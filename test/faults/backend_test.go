package faults

import (
	"os"
	"testing"

	"bookend/internal/code"
)

// backend makes a node's backend what a script says.
func backend(script string) func(*node) {
	return func(n *node) {
		path := n.script("backend", script)
		n.configure(func(c *conf) { c.backend = path })
	}
}

const (
	hello = `{"bookend":1,"kind":"hello","hello":{"backend":"script","version":"1"}}`
	done  = `{"bookend":1,"kind":"done"}`
)

func says(texts ...string) string {
	script := "read request\ncat <<'END'\n"
	for _, text := range texts {
		script += text + "\n"
	}
	return script + "END\n"
}

func TestBackend(t *testing.T) {
	try(t, map[string]fault{
		"missing": {finds: code.BackendMissing, exit: 32, says: []string{"no such file"},
			harm: func(n *node) { n.configure(func(c *conf) { c.backend = n.in("nothing") }) }},
		"not executable": {finds: code.BackendMissing, exit: 32, says: []string{"permission denied"},
			harm: func(n *node) { backend("exit 0")(n); must(n, os.Chmod(n.conf.backend, 0o644)) }},
		"a folder": {finds: code.BackendMissing, exit: 32, says: []string{"permission denied"},
			harm: func(n *node) { n.configure(func(c *conf) { c.backend = n.in("world") }) }},
		"no program": {finds: code.BackendMissing, exit: 32, says: []string{"exec format error"}, harm: func(n *node) {
			must(n, os.WriteFile(n.in("text"), []byte("\x7fELF\x00"), 0o755))
			n.configure(func(c *conf) { c.backend = n.in("text") })
		}},
		"not root's": {finds: code.BackendRefused, exit: 33, says: []string{"owner is 65534, not root"},
			harm: func(n *node) { backend("exit 0")(n); must(n, os.Chown(n.conf.backend, user, 0)) }},
		"writable": {finds: code.BackendRefused, exit: 33, says: []string{"lets others write"},
			harm: func(n *node) { backend("exit 0")(n); must(n, os.Chmod(n.conf.backend, 0o757)) }},
		"in a user's folder": {finds: code.BackendRefused, exit: 33, says: []string{"owner is 65534, not root"}, harm: func(n *node) {
			must(n, os.Mkdir(n.in("home"), 0o755))
			must(n, os.Chown(n.in("home"), user, 0))
			n.configure(func(c *conf) { c.backend = n.script("home/backend", "exit 0") })
		}},
		"library not root's": {finds: code.BackendRefused, exit: 33, says: []string{"owner is 65534, not root"},
			harm: func(n *node) { must(n, os.Chown(n.world.NVML(), user, 0)) }},
		"library in an open folder": {finds: code.BackendRefused, exit: 33, says: []string{"lets others write"}, harm: func(n *node) {
			must(n, os.Mkdir(n.in("open"), 0o755))
			must(n, os.Chmod(n.in("open"), 0o777))
			must(n, os.Link(n.world.NVML(), n.in("open/lib.so")))
			n.configure(func(c *conf) { c.library = n.in("open/lib.so") })
		}},
		"crashing": {finds: code.BackendCrash, exit: 34, says: []string{"SIGSEGV: segmentation violation"},
			harm: func(n *node) { must(n, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", "crash")) }},
		"crashing at once": {finds: code.BackendCrash, exit: 34, says: []string{"SIGSEGV: segmentation violation"},
			harm: func(n *node) { must(n, n.world.Set("on.nvmlInit_v2", "crash")) }},
		"killed":             {finds: code.BackendCrash, exit: 34, says: []string{"signal killed"}, harm: backend("kill -9 $$")},
		"failing":            {finds: code.BackendCrash, exit: 34, says: []string{"exit code 3: out of luck"}, harm: backend("echo out of luck >&2; exit 3")},
		"the library exits":  {finds: code.BackendCrash, exit: 34, says: []string{"exit code 7"}, harm: func(n *node) { must(n, n.world.Set("on.nvmlInit_v2", "exit 7")) }},
		"silent":             {finds: code.BackendGarbage, exit: 35, says: []string{"cut off"}, harm: backend("exit 0")},
		"nonsense":           {finds: code.BackendGarbage, exit: 35, says: []string{"line 1: garbage"}, harm: backend(says("GPU 0: NVIDIA H200"))},
		"binary":             {finds: code.BackendGarbage, exit: 35, harm: backend("head -c 4096 /proc/self/exe")},
		"no done":            {finds: code.BackendGarbage, exit: 35, says: []string{"cut off"}, harm: backend(says(hello))},
		"more after done":    {finds: code.BackendGarbage, exit: 35, says: []string{"more after the last line"}, harm: backend(says(hello, done, hello))},
		"impossible":         {finds: code.BackendGarbage, exit: 35, says: []string{"process -1"}, harm: backend(says(hello, impossible, done))},
		"wrong version":      {finds: code.BackendVersion, exit: 36, says: []string{"version 2, not 1"}, harm: backend(says(`{"bookend":2,"kind":"hello"}`))},
		"wrong version dies": {finds: code.BackendVersion, exit: 36, says: []string{"version 2, not 1"}, harm: backend(says(`{"bookend":2,"kind":"hello"}`) + "exit 1")},
		"flooding":           {finds: code.BackendFlood, exit: 37, harm: backend("exec cat /dev/zero")},
		"flooding lines":     {finds: code.BackendFlood, exit: 37, harm: backend("exec yes '" + hello + "'")},
		"flooding stderr":    {finds: code.BackendCrash, exit: 34, harm: backend("head -c 9000000 /dev/zero >&2; exit 1")},
	})
}

const impossible = `{"bookend":1,"kind":"snapshot","snapshot":{"at":1,"readings":[{"device":{"id":"GPU-1"},"processes":[{"pid":-1}]}]}}`

// A backend that leaves the protocol's descriptors to a child of its own does not hold the hook up.
func TestBackendLeavesAChild(t *testing.T) {
	n := newNode(t, "enforce")
	fault{job: newJob(), finds: code.BackendGarbage, harm: backend(says(hello) + "sleep 1000 &\nexit 0")}.check(n, prolog, 0)
}

// Hanging: killed at the deadline, a warning about the driver, no fault of Bookend's.
func TestBackendHangs(t *testing.T) {
	for name, harm := range map[string]func(*node){
		"script":        backend("trap '' TERM ALRM HUP INT; while :; do sleep 1000; done"),
		"stopped":       backend("kill -STOP $$"),
		"driver":        func(n *node) { must(n, n.world.Set("on.nvmlInit_v2", "hang")) },
		"driver, later": func(n *node) { must(n, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", "hang-hard")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, h := range hooks {
				n := newNode(t, "enforce")
				f := fault{job: newJob(), finds: code.Hang, says: []string{"driver does not answer"}}
				f.harm = func(n *node) { n.configure(func(c *conf) { c.tight, c.onUnknown = true, "drain" }); harm(n) }
				f.check(n, h, 0)
			}
		})
	}
}
