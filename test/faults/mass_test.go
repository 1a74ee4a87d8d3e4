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

// cause is a mistake that reaches all nodes of a site at once. Whatever it is, no node may drain, and on each of them
// the log, the metrics and the command line say so until it is mended.
type cause struct {
	harm  func(*node)
	mend  func(*node)
	finds code.Code
	// between: it comes while a job runs; otherwise before the job's start.
	between bool
	// note: how things are, by policy, and no trouble: the metrics count a finding and status is silent.
	note bool
	// said is where slurmd's log alone has it, or has it too: the thing that fails is what would tell.
	said            string
	noLog, noMetric bool
	anew            bool // counting begins anew
	statusEnds      int  // the exit code of status while it lasts
}

// mass runs jobs before, under and after each cause, observing and enforcing, all else as shipped.
func mass(t *testing.T, causes map[string]cause) {
	for name, c := range causes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "observe")
			n.job(1)
			for i, mode := range []string{"observe", "enforce"} {
				n.configure(func(c *conf) { c.mode = mode })
				c.strikes(n, 10+i)
			}
			n.job(20)
			n.quiet(c, 20)
		})
	}
}

// strikes runs a job under the cause, and looks for it in all the places.
func (c cause) strikes(n *node, id int) {
	n.Helper()
	counted := n.metric(c.series())
	var output string
	if !c.between {
		c.harm(n)
		output = n.exits(0, prolog, numbered(id)).output
	} else {
		n.clean(prolog, numbered(id))
		c.harm(n)
	}
	output += n.exits(0, epilog, numbered(id)).output
	if !strings.Contains(output, c.said) {
		n.Errorf("slurmd's log lacks %q:\n%s", c.said, output)
	}
	if !c.noLog {
		n.says(string(c.finds) + ": ")
	}
	if !c.noLog && c.said == "" {
		n.says("findings: ", string(c.finds), fmt.Sprintf("job=%d ", id))
	}
	if now := n.metric(c.series()); (now == 0 || now <= counted && !c.anew) && !c.noMetric {
		n.Errorf("%s was %v and is %v:\n%s", c.series(), counted, now, n.metrics())
	}
	entry, _ := code.Lookup(c.finds)
	status, exit := n.bookend("status")
	loud := strings.Contains(status, "trouble: "+string(c.finds)+", "+entry.Title) &&
		strings.Contains(status, "do: "+entry.Remedy)
	if loud == (c.note || c.noMetric) || exit != c.statusEnds {
		n.Errorf("status: exit %d:\n%s", exit, status)
	}
	c.mend(n)
}

// quiet asserts that nothing is left of a cause after a job with which all was well, but the memory of it.
func (n *node) quiet(c cause, id int) {
	n.Helper()
	n.saysTimes(2, "msg=clean", fmt.Sprintf("job=%d ", id))
	status, exit := n.bookend("status")
	remembered := strings.Contains(status, "  seen before: "+string(c.finds)+", ")
	if strings.Contains(status, "  trouble") || exit != 0 || remembered == (c.note || c.noMetric) {
		n.Errorf("afterwards: exit %d, remembered %v:\n%s", exit, remembered, status)
	}
	for _, series := range []string{"bookend_last_run_own_errors", "bookend_drains_total"} {
		if n.metric(series+`{hook="prolog"}`)+n.metric(series+`{hook="epilog"}`) != 0 {
			n.Errorf("%s afterwards:\n%s", series, n.metrics())
		}
	}
}

// series is what counts the cause.
func (c cause) series() string {
	if c.note {
		return fmt.Sprintf("bookend_findings_total{code=%q,hook=\"epilog\"}", c.finds)
	}
	return fmt.Sprintf("bookend_own_errors_total{code=%q}", c.finds)
}

// nothing is to be mended.
func nothing(*node) {}

// cover mounts a small file system over a folder of the node, as full or as hard to write as its options say.
func cover(folder func(*node) string, options string) (harm, mend func(*node)) {
	return func(n *node) {
			n.Helper()
			text, full := strings.CutPrefix(options, "full,")
			n.mount(folder(n), text)
			if full {
				n.fill(folder(n))
			}
		}, func(n *node) {
			n.Helper()
			must(n, unix.Unmount(folder(n), unix.MNT_DETACH))
		}
}

// File systems that are full, read-only, without inodes or not there.
func TestMassFileSystems(t *testing.T) {
	run := func(n *node) string { return n.conf.run }
	varDir := func(n *node) string { return n.conf.varDir }
	log := func(n *node) string { return n.conf.log }
	elsewhere := func(varDir, log string) func(*node) {
		return func(n *node) { n.configure(func(c *conf) { c.varDir, c.log = n.in(varDir), n.in(log) }) }
	}
	causes := map[string]cause{
		"run lost while a job runs": {
			harm: func(n *node) { must(n, os.RemoveAll(n.conf.run)) }, mend: nothing, finds: code.NoRecord,
			between: true, note: true,
		},
		"var without a parent": {harm: elsewhere("no/var", "log"), mend: elsewhere("var", "log"),
			finds: code.StateWrite,
			said:  "no such file", noLog: true, noMetric: true},
		"log without a parent": {harm: elsewhere("var", "no/log"), mend: elsewhere("var", "log"), finds: code.LogFailed,
			said: "no such file", noLog: true},
	}
	for name, options := range map[string]string{
		"full": "full,size=64k", "read-only": "ro,size=64k", "without inodes": "size=1m,nr_inodes=1",
	} {
		c := cause{finds: code.StateWrite, statusEnds: 1}
		if name == "full" { // the folders could still be made
			c.statusEnds = 0
		}
		c.harm, c.mend = cover(run, options)
		causes["run "+name] = c
		c.between = true
		causes["run "+name+" while a job runs"] = c
		c = cause{finds: code.StateWrite, said: "metrics: ", noLog: true, noMetric: true}
		c.harm, c.mend = cover(varDir, options)
		causes["var "+name] = c
		c = cause{finds: code.LogFailed, said: "append to ", noLog: true}
		c.harm, c.mend = cover(log, options)
		causes["log "+name] = c
	}
	mass(t, causes)
}

// What another release has written, before an upgrade or after a downgrade.
func TestMassRecords(t *testing.T) {
	version := func(pattern, v string) func(*node) {
		return func(n *node) {
			n.Helper()
			files, err := filepath.Glob(n.in(pattern))
			must(n, err)
			n.replace(files[len(files)-1], `"version":1`, `"version":`+v)
		}
	}
	record, counts := "run/state/"+nodeName+"/1[01]/*.json", "var/metrics/counters.json"
	mass(t, map[string]cause{
		"older record": {harm: version(record, "0"), mend: nothing, finds: code.StateDamage, between: true},
		"newer record": {harm: version(record, "2"), mend: nothing, finds: code.StateDamage, between: true},
		"newer counts": {harm: version(counts, "2"), mend: nothing, finds: code.StateDamage, between: true,
			said: "counts are damaged", noLog: true, anew: true},
	})
}
