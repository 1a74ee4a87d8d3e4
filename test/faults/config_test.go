package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
)

// shipped are the folders of the shipped configuration: this process's own, see prepare.
var shipped = []string{"/run/bookend", "/var/lib/bookend", "/var/log/bookend"}

// A configuration that root cannot trust or find leaves the shipped defaults, which observe, and their folders; both
// hooks say why.
func TestConfigurationNotToBeTrusted(t *testing.T) {
	for name, tt := range map[string]struct {
		harm func(*node)
		says string
	}{
		"none named":     {func(n *node) { n.config = "" }, "missing: shipped defaults in force"},
		"relative":       {func(n *node) { n.config = "bookend.yaml" }, "not an absolute path"},
		"not root's":     {func(n *node) { n.give(n.config, user) }, "owner is 65534, not root"},
		"open directory": {func(n *node) { n.moveConfig(0, 0o777|os.ModeSticky) }, "lets others write"},
		"a link into a user's directory": {func(n *node) {
			n.moveConfig(user, 0o755)
			must(n, os.Symlink(n.config, n.in("link.yaml")))
			n.config = n.in("link.yaml")
		}, "owner is 65534, not root"},
		"a bomb": {func(n *node) { n.put(n.config, "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n", 0o644) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce")
			n.configure(func(c *conf) { c.onUnknown = "drain" })
			tt.harm(n)
			for _, h := range hooks {
				n.defaults(h, tt.says)
			}
		})
	}
}

// defaults asserts that a hook goes on under the shipped configuration, and says why.
func (n *node) defaults(h hook, says string) {
	n.Helper()
	for _, folder := range shipped {
		must(n, os.RemoveAll(folder))
	}
	if o := n.exits(0, h, newJob()); len(lines(o.output, "bookend: config", says)) == 0 {
		n.Errorf("%s: %v", h.program, o)
	}
	log := n.get("/var/log/bookend/bookend.log")
	if len(lines(log, "findings: BKD-CONFIG", "action=warn", "exit=0")) != 1 ||
		len(lines(log, "BKD-CONFIG: ", says)) != 1 {
		n.Errorf("%s logged:\n%s", h.program, log)
	}
	if records, _ := filepath.Glob("/run/bookend/state/" + nodeName + "/100/*"); len(records) != 1 {
		n.Errorf("%s: records %q", h.program, records)
	}
}

// moveConfig puts the configuration into a folder of somebody's.
func (n *node) moveConfig(uid int, mode os.FileMode) {
	n.Helper()
	folder := n.in("elsewhere")
	must(n, os.Mkdir(folder, 0o755))
	must(n, os.Rename(n.config, filepath.Join(folder, "bookend.yaml")))
	n.config = filepath.Join(folder, "bookend.yaml")
	must(n, os.Chmod(folder, mode))
	n.give(folder, uid)
}

// A site pushes a configuration to all its nodes with which something is wrong. Where its paths cannot be used either,
// what holds is as shipped.
func TestMassConfiguration(t *testing.T) {
	bad := badConfigurations()
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.run, c.varDir, c.log = shipped[0], shipped[1], shipped[2] })
	for _, folder := range shipped {
		must(t, os.RemoveAll(folder))
	}
	n.job(1)
	id := 100
	for name, push := range bad {
		id++
		must(t, os.RemoveAll(n.config))
		push(n)
		n.pushed(name, id)
	}
	must(t, os.RemoveAll(n.config))
	n.configure(func(*conf) {})
	if status, _ := n.bookend("status"); strings.Contains(status, "trouble: BKD-CONFIG") {
		t.Errorf("mended, before the next job:\n%s", status)
	}
	n.shows("  seen before: BKD-CONFIG, ", "status")
	n.job(2)
	n.quiet(cause{finds: code.BadConfig}, 2)
	n.saysTimes(1, "BKD-CONFIG: ") // the same fault is not detailed twice within the hour
}

// pushed runs a job under a bad configuration: no drain, and it is said and counted.
func (n *node) pushed(name string, id int) {
	n.Helper()
	const series = `bookend_own_errors_total{code="BKD-CONFIG"}`
	counted := n.metric(series)
	for _, h := range hooks {
		if o := n.exits(0, h, numbered(id)); !strings.Contains(o.output, "bookend: config ") {
			n.Errorf("%s: %s says nothing to slurmd: %v", name, h.program, o)
		}
	}
	n.saysTimes(2, "findings: BKD-CONFIG", fmt.Sprintf("job=%d ", id), "action=warn", "exit=0")
	if now := n.metric(series); now != counted+2 {
		n.Errorf("%s: counted %v, then %v", name, counted, now)
	}
	n.shows("\n  trouble: BKD-CONFIG, configuration is not valid\n    config ", "status")
}

// badConfigurations put one each in a node's place. Package config has every bad file of the project's.
func badConfigurations() map[string]func(*node) {
	text := func(s string) func(*node) { return func(n *node) { n.Helper(); n.put(n.config, s, 0o644) } }
	return map[string]func(*node){
		"a key that is none":        text("mode: enforce\nnonsense: 1\n"),
		"an action that is none":    text("mode: enforce\npolicy: {epilog: {BKD-LOST: explode}}\n"),
		"next version":              text("version: 2\nmode: enforce\n"),
		"a key of the next version": text("version: 1\nmode: enforce\nhealth_check: {every: 60s}\n"),
		"binary":                    text("\x7fELF\x00\x01"),
		"a page of an error":        text("<html><title>404 Not Found</title></html>\n"),
		"cut off":                   text("mode: enforce\npolicy: {epilog: {BKD-LOST"),
		"merge conflict":            text("<<<<<<< HEAD\nmode: enforce\n=======\n"),
		"too long":                  text(strings.Repeat("# long\n", 50000)),
		"missing":                   func(*node) {},
		"a directory":               func(n *node) { must(n, os.Mkdir(n.config, 0o755)) },
		"a FIFO":                    func(n *node) { must(n, unix.Mkfifo(n.config, 0o644)) },
		"leads nowhere":             func(n *node) { must(n, os.Symlink(n.in("nowhere"), n.config)) },
		"open to all":               func(n *node) { n.configure(func(*conf) {}); must(n, os.Chmod(n.config, 0o666)) },
	}
}
