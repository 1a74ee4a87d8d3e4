package faults

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
)

// In a file that root may trust: the line and the key are named, what is valid of paths and log still holds.
var badTexts = map[string]struct {
	text string
	says string
}{
	"unknown key":       {"settel: {}\n", "settel: no such key"},
	"nested unknown":    {"job_log: {strat: always}\n", "job_log.strat: no such key"},
	"wrong type":        {"thresholds: {drain: [512MiB]}\n", "thresholds.drain: want a single value"},
	"text for a number": {"drain: {max_restarts: many}\n", "drain.max_restarts: "},
	"duplicate key":     {"mode: observe\n", "mode: stands twice"},
	"no such code":      {"policy: {epilog: {BKD-ORFAN: drain}}\n", "policy.epilog.BKD-ORFAN: no such finding code"},
	"own fault drains":  {"policy: {epilog: {BKD-CONFIG: drain}}\n", "policy.epilog.BKD-CONFIG: a fault of Bookend itself drains only by on_unknown"},
}

func TestMistakesInTheConfiguration(t *testing.T) {
	for name, tt := range badTexts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, h := range hooks {
				n := newNode(t, "enforce")
				line := strings.Count(n.text(), "\n") + 1
				harm := func(n *node) { n.configure(func(c *conf) { c.onUnknown, c.extra = "drain", tt.text }) }
				says := "line " + strconv.Itoa(line) + ": " + tt.says
				place := n.config + ":" + strconv.Itoa(line) + ": " + tt.says
				// Half a policy is nobody's policy: a file with a mistake never drains, whatever it says of modes.
				fault{harm: harm, job: newJob(), finds: code.BadConfig, says: []string{says}}.check(n, h, 0)
				if text, exit := n.bookend("config", "check"); exit != 1 || !strings.Contains(text, place) {
					t.Errorf("config check: exit %d: %s", exit, text)
				}
			}
		})
	}
}

func TestNotYAML(t *testing.T) {
	for name, text := range map[string]string{
		"binary": "\x00\x01\x7fELF", "tab": "mode:\n\tobserve\n", "cut off": "paths: {run: /run/bookend",
		"list": "- mode\n", "bomb": "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n", "long": strings.Repeat("# long\n", 50000),
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce")
			must(t, os.WriteFile(n.config, []byte(text), 0o644))
			n.defaults("", 0)
		})
	}
}

// A configuration that cannot be read at all leaves the shipped defaults, which observe, and their folders.
func TestConfigurationNotToBeTrusted(t *testing.T) {
	for name, tt := range map[string]struct {
		harm func(*node)
		says string
	}{
		"missing":        {func(n *node) { must(n, os.Remove(n.config)) }, "no such file"},
		"relative":       {func(n *node) { n.config = "bookend.yaml" }, "not an absolute path"},
		"not root's":     {func(n *node) { must(n, os.Chown(n.config, user, 0)) }, "owner is 65534, not root"},
		"group-writable": {func(n *node) { must(n, os.Chmod(n.config, 0o664)) }, "lets others write"},
		"world-writable": {func(n *node) { must(n, os.Chmod(n.config, 0o646)) }, "lets others write"},
		"user's folder":  {func(n *node) { n.moveConfig(user, 0o755) }, "owner is 65534, not root"},
		"open folder":    {func(n *node) { n.moveConfig(0, 0o777|os.ModeSticky) }, "lets others write"},
		"a link there": {func(n *node) {
			n.moveConfig(user, 0o755)
			must(n, os.Symlink(n.config, n.in("link.yaml")))
			n.config = n.in("link.yaml")
		}, "owner is 65534, not root"},
		"a folder": {func(n *node) {
			must(n, os.Remove(n.config))
			must(n, os.Mkdir(n.config, 0o755))
		}, "not a regular file"},
		"a FIFO": {func(n *node) {
			must(n, os.Remove(n.config))
			must(n, unix.Mkfifo(n.config, 0o644))
		}, "neither file nor folder"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce")
			n.configure(func(c *conf) { c.onUnknown = "drain" })
			tt.harm(n)
			n.defaults(tt.says, 1)
		})
	}
}

// The default file may be missing: then a site has not configured anything, and the shipped defaults hold.
func TestNoConfigurationAtAll(t *testing.T) {
	n := newNode(t, "enforce")
	n.config = ""
	n.defaults("missing: shipped defaults in force", 1)
}

// defaults asserts that both hooks go on under the shipped configuration, say why, and that the command line
// says the same.
func (n *node) defaults(says string, check int) {
	n.Helper()
	const logFile = "/var/log/bookend/bookend.log"
	for _, h := range hooks {
		for _, folder := range []string{"/run/bookend", "/var/lib/bookend", filepath.Dir(logFile)} {
			must(n, os.RemoveAll(folder)) // this process's own: see shadow
		}
		o := n.hook(h, newJob())
		log, err := os.ReadFile(logFile)
		must(n, err)
		if o.exit != 0 || len(lines(o.output, "bookend: config", says)) == 0 {
			n.Errorf("%s: %v", h.program, o)
		}
		if len(lines(string(log), "findings: BKD-CONFIG", "action=warn", "exit=0")) != 1 || len(lines(string(log), "BKD-CONFIG: ", says)) != 1 {
			n.Errorf("%s logged:\n%s", h.program, log)
		}
		entries, err := os.ReadDir("/run/bookend/state/" + nodeName + "/100")
		if err != nil || len(entries) != 1 {
			n.Errorf("%s: records %v: %v", h.program, entries, err)
		}
	}
	if text, exit := n.bookend("config", "check"); check != 0 && (exit != check || !strings.Contains(text, says)) {
		n.Errorf("config check: exit %d: %s", exit, text)
	}
}

// moveConfig puts the configuration into a folder of somebody's.
func (n *node) moveConfig(uid int, mode os.FileMode) {
	folder := n.in("elsewhere")
	must(n, os.Mkdir(folder, 0o755))
	must(n, os.Rename(n.config, filepath.Join(folder, "bookend.yaml")))
	n.config = filepath.Join(folder, "bookend.yaml")
	must(n, os.Chmod(folder, mode))
	must(n, os.Chown(folder, uid, 0))
}
