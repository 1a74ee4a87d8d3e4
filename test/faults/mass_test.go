package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/test/must"
)

// cause is a mistake that reaches all nodes of a site at once. Whatever it is, no node may drain, and on each of them
// the log, the metrics and the command line say so until it is mended.
type cause struct {
	harm, mend func(*node)
	finds      catalog.Code
	// between: it comes while a job runs; otherwise before the job's start.
	between bool
	// note: how things are, by policy, and no trouble: the metrics count a finding and status is silent.
	note bool
	// said is where slurmd's log alone has it, or has it too: the thing that fails is what would tell.
	said            string
	noLog, noMetric bool
	statusEnds      int // the exit code of status while it lasts
}

// mass runs jobs before, under and after each cause, observing and enforcing, all else as shipped.
func mass(t *testing.T, causes map[string]cause) {
	each(t, "observe", causes, func(n *node, c cause) {
		n.job(1)
		for i, mode := range []string{"observe", "enforce"} {
			n.configure(func(c *conf) { c.mode = mode })
			c.strikes(n, 10+i)
		}
		n.job(20)
		n.quiet(20)
	})
}

// strikes runs a job under the cause, and looks for it in all the places.
func (c cause) strikes(n *node, id int) {
	counted := n.metric(c.series())
	if !c.between {
		c.harm(n)
	}
	output := n.exits(0, prolog, numbered(id)).output
	if c.between {
		c.harm(n)
	}
	output += n.exits(0, epilog, numbered(id)).output
	must.Not(n, !strings.Contains(output, c.said), "slurmd's log lacks %q:\n%s", c.said, output)
	if !c.noLog {
		n.says(string(c.finds) + ": ")
	}
	if !c.noLog && c.said == "" {
		n.says("findings: ", string(c.finds), fmt.Sprintf("job=%d ", id))
	}
	now := n.metric(c.series())
	must.Not(n, now <= counted && !c.noMetric, "%s was %v and is %v:\n%s", c.series(), counted, now, n.metrics())
	entry, _ := catalog.Lookup(c.finds)
	status, exit := n.bookend("status")
	loud := strings.Contains(status, "trouble: "+string(c.finds)+", "+entry.Title) &&
		strings.Contains(status, "do: "+entry.Remedy)
	must.Not(n, loud == c.note || exit != c.statusEnds, "status: exit %d:\n%s", exit, status)
	c.mend(n)
}

// quiet asserts that nothing is left of a cause after a job with which all was well.
func (n *node) quiet(id int) {
	n.saysTimes(2, "msg=clean", fmt.Sprintf("job=%d ", id))
	status, exit := n.bookend("status")
	must.Not(n, strings.Contains(status, "  trouble") || exit != 0, "afterwards: exit %d:\n%s", exit, status)
	for _, series := range []string{"bookend_last_run_own_errors", "bookend_drains_total"} {
		must.Not(n, n.metric(series+`{hook="prolog"}`)+n.metric(series+`{hook="epilog"}`) != 0,
			"%s afterwards:\n%s", series, n.metrics())
	}
}

func (c cause) series() string {
	if c.note {
		return fmt.Sprintf("bookend_findings_total{code=%q,hook=\"epilog\"}", c.finds)
	}
	return fmt.Sprintf("bookend_own_errors_total{code=%q}", c.finds)
}

// under is a cause with a small file system over a folder of the node, as full or as hard to write as its options say.
func (c cause) under(folder, options string) cause {
	c.harm = func(n *node) {
		text, full := strings.CutPrefix(options, "full,")
		if n.mount(n.in(folder), text); full {
			_ = os.WriteFile(filepath.Join(n.in(folder), "filler"), make([]byte, 1<<20), 0o600)
		}
	}
	c.mend = func(n *node) { must.Do(n, unix.Unmount(n.in(folder), unix.MNT_DETACH)) }
	return c
}

// File systems that are full, read-only, without inodes or not there, and records that another release has written,
// before an upgrade or after a downgrade.
func TestMass(t *testing.T) {
	elsewhere := func(varDir, log string) func(*node) {
		return func(n *node) { n.configure(func(c *conf) { c.varDir, c.log = n.in(varDir), n.in(log) }) }
	}
	version := func(v string) func(*node) {
		return func(n *node) {
			files := must.Have(filepath.Glob(n.inState("1[01]/*.json")))(n)
			n.replace(files[len(files)-1], `"version":1`, `"version":`+v)
		}
	}
	causes := map[string]cause{
		"run lost while a job runs": {harm: func(n *node) { must.Do(n, os.RemoveAll(n.conf.run)) }, mend: unharmed,
			finds: catalog.NoRecord, between: true, note: true},
		"var without a parent": {harm: elsewhere("no/var", "log"), mend: elsewhere("var", "log"),
			finds: catalog.StateWrite, said: "no such file", noMetric: true},
		"log without a parent": {harm: elsewhere("var", "no/log"), mend: elsewhere("var", "log"), finds: catalog.LogFailed,
			said: "no such file", noLog: true},
		"older record": {harm: version("0"), mend: unharmed, finds: catalog.StateDamage, between: true},
		"newer record": {harm: version("2"), mend: unharmed, finds: catalog.StateDamage, between: true},
	}
	for name, options := range map[string]string{
		"full": "full,size=64k", "read-only": "ro,size=64k", "without inodes": "size=1m,nr_inodes=1",
	} {
		c := cause{finds: catalog.StateWrite, statusEnds: 1}
		if name == "full" { // the folders could still be made
			c.statusEnds = 0
		}
		causes["run "+name] = c.under("run", options)
		c.between = true
		causes["run "+name+" while a job runs"] = c.under("run", options)
		causes["var "+name] = cause{finds: catalog.StateWrite, said: "metrics: ", noMetric: true}.
			under("var", options)
		causes["log "+name] = cause{finds: catalog.LogFailed, said: "append to ", noLog: true}.under("log", options)
	}
	mass(t, causes)
}

// shipped are the folders of the shipped configuration: this process's own, see prepare.
var shipped = []string{"/run/bookend", "/var/lib/bookend", "/var/log/bookend"}

// badConfigurations put one each in a node's place that cannot be found, trusted or understood, and what is said of it
// there. Package config has every bad file of the project's, package safefile all that cannot be trusted.
var badConfigurations = map[string]struct {
	push func(*node)
	says string
}{
	"a key that is none": {text("mode: enforce\nnonsense: 1\n"), ""},
	"missing":            {func(n *node) { must.Do(n, os.Remove(n.config)) }, "no such file"},
	"none named":         {func(n *node) { n.config = "" }, "missing: the defaults are in effect"},
	"relative":           {func(n *node) { n.config = "bookend.yaml" }, "not an absolute path"},
	"not root's":         {func(n *node) { n.give(n.config, user) }, "owner is 65534, not root"},
}

func text(s string) func(*node) { return func(n *node) { n.put(n.config, s, 0o644) } }

// Under a configuration that cannot be used or trusted what holds is as shipped, which observes; both hooks, and the
// command line, say why, until it is mended.
func TestMassConfiguration(t *testing.T) {
	const series = `bookend_own_errors_total{code="BKD-CONFIG"}`
	for name, bad := range badConfigurations {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce")
			n.configure(func(c *conf) {
				c.onUnknown, c.run, c.varDir, c.log = "drain", shipped[0], shipped[1], shipped[2]
			})
			for _, folder := range shipped {
				must.Do(t, os.RemoveAll(folder))
			}
			n.job(1)
			bad.push(n)
			for _, h := range hooks {
				o := n.exits(0, h, newJob())
				must.Not(t, len(lines(o.output, "bookend: config", bad.says)) == 0, "%s: %v", h.program, o)
			}
			n.saysTimes(2, "findings: BKD-CONFIG", "job=100 ", "action=warn", "exit=0")
			n.saysTimes(1, "BKD-CONFIG: ", bad.says) // the same fault is not detailed twice within the hour
			now := n.metric(series)
			must.Not(t, now != 2 || !n.run(100).Closed(), "counted %v, records %+v", now, n.run(100))
			n.shows("\n  trouble: BKD-CONFIG, configuration is not valid\n    config", "status")
			n.config = n.in("mended.yaml")
			n.put("mended.yaml", n.text(), 0o644)
			if status, _ := n.bookend("status"); strings.Contains(status, "trouble: BKD-CONFIG") {
				t.Errorf("mended, before the next job:\n%s", status)
			}
			n.job(2)
			n.quiet(2)
		})
	}
}
