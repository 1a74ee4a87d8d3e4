package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/slurm"
)

// cause is a mistake that reaches all nodes of a site at once. Whatever it is, no node may drain, and on each of them the
// log, the metrics and the command line say so until it is mended.
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
				c.strikes(n, slurm.JobID(10+i))
			}
			n.job(20)
			n.quiet(c, 20)
		})
	}
}

// job runs a job with which all is well.
func (n *node) job(id slurm.JobID) {
	n.Helper()
	n.clean(prolog, numbered(id))
	n.clean(epilog, numbered(id))
}

// strikes runs a job under the cause, and looks for it in all the places.
func (c cause) strikes(n *node, id slurm.JobID) {
	n.Helper()
	counted := n.metric(c.series())
	var output string
	if !c.between {
		c.harm(n)
		output = n.undrained(prolog, id)
	} else {
		n.clean(prolog, numbered(id))
		c.harm(n)
	}
	output += n.undrained(epilog, id)
	if c.said != "" && !strings.Contains(output, c.said) {
		n.Errorf("slurmd's log lacks %q:\n%s", c.said, output)
	}
	if found := lines(n.log(), "findings: ", string(c.finds), fmt.Sprintf("job=%d ", id)); len(found) == 0 && !c.noLog && c.said == "" {
		n.Errorf("job %d: no %s in the log:\n%s", id, c.finds, n.log())
	}
	if len(lines(n.log(), string(c.finds)+": ")) == 0 && !c.noLog {
		n.Errorf("what %s is about is not in the log:\n%s", c.finds, n.log())
	}
	if now := n.metric(c.series()); (now == 0 || now <= counted && !c.anew) && !c.noMetric {
		n.Errorf("%s was %v and is %v:\n%s", c.series(), counted, now, n.metrics())
	}
	entry, _ := code.Lookup(c.finds)
	status, exit := n.bookend("status")
	if loud := strings.Contains(status, "trouble: "+string(c.finds)+", "+entry.Title) && strings.Contains(status, "do: "+entry.Remedy); loud == c.note || exit != c.statusEnds {
		n.Errorf("status: exit %d:\n%s", exit, status)
	}
	if c.mend != nil {
		c.mend(n)
	}
}

// undrained runs a hook that may find what it likes, and must not drain.
func (n *node) undrained(h hook, id slurm.JobID) string {
	n.Helper()
	o := n.hook(h, numbered(id))
	if o.exit != 0 {
		n.Errorf("%s of job %d drains the node: %v", h.program, id, o)
	}
	return o.output
}

// quiet asserts that nothing is left of a cause after a job with which all was well, but the memory of it.
func (n *node) quiet(c cause, id slurm.JobID) {
	n.Helper()
	if found := lines(n.log(), "msg=clean", fmt.Sprintf("job=%d ", id)); len(found) != 2 {
		n.Errorf("job %d: want two clean ends in\n%s", id, n.log())
	}
	status, exit := n.bookend("status")
	if strings.Contains(status, "  trouble") || exit != 0 {
		n.Errorf("afterwards: exit %d:\n%s", exit, status)
	}
	if remembered := strings.Contains(status, "  seen before: "+string(c.finds)+", "); remembered == (c.note || c.noMetric) {
		n.Errorf("afterwards, remembered %v:\n%s", remembered, status)
	}
	if n.metric(`bookend_last_run_own_errors{hook="prolog"}`)+n.metric(`bookend_last_run_own_errors{hook="epilog"}`) != 0 {
		n.Errorf("afterwards:\n%s", n.metrics())
	}
	if drained := n.metric(`bookend_drains_total{hook="prolog"}`) + n.metric(`bookend_drains_total{hook="epilog"}`); drained != 0 {
		n.Errorf("%v drains:\n%s", drained, n.metrics())
	}
}

// series is what counts the cause.
func (c cause) series() string {
	if c.note {
		return fmt.Sprintf("bookend_findings_total{code=%q,hook=\"epilog\"}", c.finds)
	}
	return fmt.Sprintf("bookend_own_errors_total{code=%q}", c.finds)
}

func (n *node) metrics() string {
	text, err := os.ReadFile(filepath.Join(n.varDir(), "bookend.prom"))
	if err != nil && !os.IsNotExist(err) && !strings.Contains(err.Error(), "not a directory") {
		n.Error(err)
	}
	return string(text)
}

// metric is the value of a series, 0 where it is not shown.
func (n *node) metric(series string) float64 {
	n.Helper()
	for _, line := range lines(n.metrics(), series+" ") {
		value, err := strconv.ParseFloat(strings.TrimPrefix(line, series+" "), 64)
		must(n, err)
		return value
	}
	return 0
}

// Backends: missing, untrusted, of another release or machine, broken.
func TestMassBackend(t *testing.T) {
	good := func(n *node) { n.configure(func(c *conf) { c.backend = program("bookend-gpu") }) }
	causes := map[string]cause{}
	for name, tt := range map[string]struct {
		harm  func(*node)
		finds code.Code
	}{
		"missing":        {func(n *node) { n.configure(func(c *conf) { c.backend = n.in("nothing") }) }, code.BackendMissing},
		"not executable": {func(n *node) { backend("exit 0")(n); must(n, os.Chmod(n.conf.backend, 0o644)) }, code.BackendMissing},
		"of another machine": {func(n *node) {
			program, err := os.ReadFile(program("core-backend"))
			must(n, err)
			program[18] ^= 0xff // e_machine
			must(n, os.WriteFile(n.in("foreign"), program, 0o755))
			n.configure(func(c *conf) { c.backend = n.in("foreign") })
		}, code.BackendMissing},
		"not root's":      {func(n *node) { backend("exit 0")(n); must(n, os.Chown(n.conf.backend, user, 0)) }, code.BackendRefused},
		"open to all":     {func(n *node) { backend("exit 0")(n); must(n, os.Chmod(n.conf.backend, 0o777)) }, code.BackendRefused},
		"dying at once":   {backend("kill -9 $$"), code.BackendCrash},
		"lacks a library": {backend("echo 'error while loading shared libraries' >&2; exit 127"), code.BackendCrash},
		"older":           {backend(says(`{"bookend":0,"kind":"hello"}`)), code.BackendVersion},
		"newer":           {backend(says(`{"bookend":2,"kind":"hello"}`)), code.BackendVersion},
		"newer, refuses":  {backend(says(`{"bookend":2,"kind":"hello"}`) + "exit 1"), code.BackendVersion},
		"something else":  {backend(says("GPU 0: NVIDIA H200")), code.BackendGarbage},
	} {
		causes[name] = cause{harm: tt.harm, mend: good, finds: tt.finds}
	}
	mass(t, causes)
}

// A driver that is upgraded under running nodes, or gone.
func TestMassDriver(t *testing.T) {
	set := func(key, value string) func(*node) { return func(n *node) { must(n, n.world.Set(key, value)) } }
	move := func(from, to string) func(*node) {
		return func(n *node) { must(n, os.Rename(n.in(from), n.in(to))) }
	}
	both := func(steps ...func(*node)) func(*node) {
		return func(n *node) {
			for _, step := range steps {
				step(n)
			}
		}
	}
	const library, gone = "world/libnvidia-ml.so.1", "world/gone"
	mass(t, map[string]cause{
		"library newer than the module": {
			harm: both(set("module_version", "575.57.08"), set("on.nvmlInit_v2", "rc 18")), mend: both(set("module_version", ""), set("on.nvmlInit_v2", "")),
			finds: code.Mismatch,
		},
		"so while a job runs": {harm: set("on.nvmlInit_v2", "rc 18"), mend: set("on.nvmlInit_v2", ""), finds: code.Mismatch, between: true},
		"library gone":        {harm: move(library, gone), mend: move(gone, library), finds: code.NoDriver},
		"library empty": {
			harm: both(move(library, gone), func(n *node) { must(n, os.WriteFile(n.in(library), nil, 0o755)) }), mend: move(gone, library), finds: code.DriverKO,
		},
		"module gone": {harm: move("world/proc-driver/nvidia", gone), mend: move(gone, "world/proc-driver/nvidia"), finds: code.NoDriver},
		"module gone while a job runs": {
			harm: move("world/proc-driver/nvidia", gone), mend: move(gone, "world/proc-driver/nvidia"), finds: code.NoDriver, between: true,
		},
		"module reloaded while a job runs": {
			harm: set("module_srcversion", "000000000000000000000AB"), mend: set("module_srcversion", "000000000000000000000CD"), finds: code.NoRecord, between: true, note: true,
		},
	})
}

// cover mounts a small file system over a folder of the node, as full or as hard to write as its options say.
func cover(folder func(*node) string, options string, full bool) func(*node) {
	return func(n *node) {
		n.Helper()
		path := folder(n)
		must(n, os.MkdirAll(path, 0o755))
		must(n, unix.Mount("none", path, "tmpfs", 0, "mode=0755,"+strings.TrimPrefix(options, "ro,")))
		if full {
			n.fillUp(path)
		}
		if strings.HasPrefix(options, "ro,") {
			must(n, unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}
	}
}

func uncover(folder func(*node) string) func(*node) {
	return func(n *node) { n.Helper(); must(n, unix.Unmount(folder(n), unix.MNT_DETACH)) }
}

func (n *node) fillUp(folder string) {
	n.Helper()
	f, err := os.Create(filepath.Join(folder, "filler"))
	must(n, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
}

// File systems that are full, read-only, without inodes or not there.
func TestMassFileSystems(t *testing.T) {
	run := func(n *node) string { return n.conf.run }
	varDir := func(n *node) string { return n.varDir() }
	log := func(n *node) string { return n.conf.log }
	type options struct {
		text string
		full bool
	}
	kinds := map[string]options{"full": {"size=64k", true}, "read-only": {"ro,size=64k", false}, "without inodes": {"size=1m,nr_inodes=1", false}}
	causes := map[string]cause{
		"run lost while a job runs": {
			harm: func(n *node) { must(n, os.RemoveAll(n.conf.run)) }, finds: code.NoRecord, between: true, note: true,
		},
	}
	for name, o := range kinds {
		c := cause{harm: cover(run, o.text, o.full), mend: uncover(run), finds: code.StateWrite, statusEnds: 1}
		if o.full { // the folders could still be made
			c.statusEnds = 0
		}
		causes["run "+name] = c
		c.between = true
		causes["run "+name+" while a job runs"] = c
		causes["var "+name] = cause{harm: cover(varDir, o.text, o.full), mend: uncover(varDir), finds: code.StateWrite, said: "metrics: ", noMetric: true}
		causes["log "+name] = cause{harm: cover(log, o.text, o.full), mend: uncover(log), finds: code.LogFailed, said: "append to ", noLog: true}
	}
	for name, change := range map[string]func(c *conf, folder string){
		"var": func(c *conf, folder string) { c.varDir = folder },
		"log": func(c *conf, folder string) { c.log = folder },
	} {
		c := cause{mend: func(n *node) { n.configure(func(c *conf) { c.varDir, c.log = "", n.in("log") }) }, finds: code.StateWrite, said: "no such file", noMetric: true}
		if name == "log" {
			c.finds, c.noLog, c.noMetric = code.LogFailed, true, false
		}
		c.harm = func(n *node) { n.configure(func(c *conf) { change(c, n.in("no/"+name)) }) }
		causes[name+" without a parent"] = c
	}
	mass(t, causes)
}

// What another release has written, before an upgrade or after a downgrade.
func TestMassRecords(t *testing.T) {
	version := func(file func(*node) string, v string) func(*node) {
		return func(n *node) { n.Helper(); n.replace(file(n), `"version":1`, `"version":`+v) }
	}
	record := func(n *node) string {
		newest, err := filepath.Glob(filepath.Join(n.conf.run, "state", nodeName, "1[01]", "*.json"))
		must(n, err)
		return newest[len(newest)-1]
	}
	counts := func(n *node) string { return filepath.Join(n.varDir(), "metrics/counters.json") }
	mass(t, map[string]cause{
		"older record": {harm: version(record, "0"), finds: code.StateDamage, between: true},
		"newer record": {harm: version(record, "2"), finds: code.StateDamage, between: true},
		"newer counts": {harm: version(counts, "2"), finds: code.StateDamage, between: true, said: "counts are damaged", anew: true},
	})
}
