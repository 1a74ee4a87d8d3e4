package faults

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/fakegpu"
	"bookend/test/rig"
)

// nodeName is what slurmd calls the node of every test.
const nodeName = "n1"

// The users of the jobs: the one under test, and the bystander whose record must survive.
const (
	user      = 65534
	bystander = 65533
)

// bystanderName is the bystander's, as Slurm gives it. The user under test is "nobody", which is a word of reports too:
// of that name none can tell whether it was given away.
const bystanderName = "onlooker"

// bystanderID is the id of the bystander's job, on the last GPU.
const bystanderID = 7

type job = rig.Job

// newJob is job 100 on the first GPU.
func newJob() job { return rig.NewJob(nodeName, 100, user, 0) }

// numbered is another job of the same user on the first GPU.
func numbered(id int) job { return newJob().Numbered(id) }

// bystanding is another user's job on the last GPU.
func bystanding() job {
	return rig.NewJob(nodeName, bystanderID, bystander, 1).With("SLURM_JOB_USER", bystanderName)
}

// node is one machine: a configuration, GPUs, state.
type node struct {
	testing.TB
	dir   string
	world *fakegpu.World
	conf  conf
	// config is what BOOKEND_CONFIG names.
	config string
	// gated: this process is asked whether an exec may go on. Until its exec is through, a process of our own making
	// holds up one thread here, with which Go's runtime may have to wait: the hooks are then started by another
	// program.
	gated bool
	// heard is what Slurm shows of the task hooks to the job's user.
	heard terminal
	// indiscreet: of this node's users one is to read of another, and the scan is to say so.
	indiscreet bool
}

// conf is what tests change of a configuration.
type conf struct {
	mode, onUnknown string
	backend         string
	library         string
	driverProc      string
	run, log        string
	settle          string // of the epilog
	startSettle     string // of the prolog; quick where it is empty
	tight           bool   // deadlines just long enough to hang in; otherwise a slow machine cannot reach them
	proc            string // the kernel's where it is empty
	shards          string // may GPUs be given out in parts; no where it is empty
	varDir          string
	scontrol        string // Slurm's own where it is empty
	numbers         string // what tells the meaning of Slurm's GPU numbers: keys of the slurm section
	extra           string // further lines
}

// newNode makes a machine with two GPUs in a folder of its own.
func newNode(t testing.TB, mode string, options ...fakegpu.Option) *node {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(programs), "node-")
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	n := &node{TB: t, dir: dir, config: filepath.Join(dir, "bookend.yaml")}
	n.world, err = fakegpu.New(n.in("world"), append([]fakegpu.Option{fakegpu.GPUs(2)}, options...)...)
	must(t, err)
	t.Cleanup(func() { must(t, n.world.Close()) })
	t.Cleanup(n.nobodyReadsOfOthers)
	numbers, err := n.world.Slurm(n.in("slurm.d"), nodeName)
	must(t, err)
	n.configure(func(c *conf) {
		*c = conf{
			mode: mode, onUnknown: "warn", backend: program("bookend-gpu"), library: n.world.NVML(), numbers: numbers,
			driverProc: n.world.DriverProc(), run: n.in("run"), log: n.in("log"), varDir: n.in("var"),
			settle: "{max: 400ms, flat: 200ms}",
		}
	})
	return n
}

func (n *node) in(name string) string { return filepath.Join(n.dir, name) }

// inState is a path below the node's folder of records.
func (n *node) inState(name string) string { return filepath.Join(n.conf.run, "state", nodeName, name) }

// configure changes the configuration.
func (n *node) configure(change func(*conf)) {
	change(&n.conf)
	n.put("bookend.yaml", n.text(), 0o644)
}

// put writes a file of root's.
func (n *node) put(name, text string, mode os.FileMode) (path string) {
	n.Helper()
	if path = name; !filepath.IsAbs(path) {
		path = n.in(name)
	}
	must(n, os.WriteFile(path, []byte(text), mode))
	return path
}

// get reads a file, "" for one that is not there.
func (n *node) get(path string) string {
	n.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) && !strings.Contains(err.Error(), "not a directory") {
		n.Error(err)
	}
	return string(text)
}

// give makes a file or folder a user's.
func (n *node) give(path string, uid int) string {
	n.Helper()
	must(n, os.Chown(path, uid, uid))
	return path
}

// set changes the fake driver.
func (n *node) set(key, value string) { n.Helper(); must(n, n.world.Set(key, value)) }

// extra is memory of the first GPU, in MiB, that nobody who could be listed holds.
func (n *node) extra(mib string) { n.Helper(); n.set("gpu0.extra_mib", mib) }

// Deadlines: roomy ones are never reached even on a busy machine, tight ones at once.
const (
	roomy = `deadlines:
  prolog: {total: 2m, driver: 40s, scan: 20s, outputs: 30s}
  epilog: {total: 3m, driver: 40s, scan: 20s, append: 20s, outputs: 30s}
  health_check: {total: 55s, driver: 18s, scan: 8s, slurm: 14s, outputs: 15s}
`
	tight = `deadlines:
  prolog: {total: 6s, driver: 2700ms, scan: 1200ms, probe: 300ms, outputs: 2700ms}
  epilog: {total: 9s, driver: 2700ms, scan: 1200ms, probe: 300ms, append: 1800ms, outputs: 2700ms}
  health_check: {total: 12s, driver: 2700ms, scan: 1200ms, slurm: 600ms, outputs: 2700ms}
`
)

func (n *node) text() string {
	c, deadlines := n.conf, roomy
	if c.tight {
		deadlines = tight
	}
	return fmt.Sprintf(`version: 1
mode: %s
on_unknown: %s
backend: %s
paths: {proc: %s, run: %s, var: %s, log: %s, sys: %s, dev: %s}
nvidia: {nvml_library: %s, cuda_library: %s, driver_proc: %s}
%ssettle:
  prolog: %s
  epilog: %s
slurm: {shards: %s, scontrol: %s, %s}
drain: {reason_by: healthcheck}
log: {syslog: false}
metrics: {textfile: %s/bookend.prom}
%s`, c.mode, c.onUnknown, c.backend, cmp.Or(c.proc, "/proc"), c.run, c.varDir, c.log, n.world.Sys(), n.world.Dev(),
		c.library, n.world.CUDA(), c.driverProc, deadlines, cmp.Or(c.startSettle,
			"{max: 400ms, flat: 200ms}"), c.settle,
		cmp.Or(c.shards, `"no"`), cmp.Or(c.scontrol, "/usr/bin/scontrol"), c.numbers, c.varDir, c.extra)
}

// log is what Bookend's own log says.
func (n *node) log() string { return n.get(filepath.Join(n.conf.log, "bookend.log")) }

// says requires a line of the log with all of these parts, just one where a whole report is meant.
func (n *node) says(parts ...string) {
	n.Helper()
	if len(lines(n.log(), parts...)) == 0 {
		n.Errorf("want %q in the log:\n%s", parts, n.log())
	}
}

// saysOnce requires so many of them.
func (n *node) saysTimes(want int, parts ...string) {
	n.Helper()
	if got := len(lines(n.log(), parts...)); got != want {
		n.Errorf("got %d lines with %q, want %d:\n%s", got, parts, want, n.log())
	}
}

func (n *node) metrics() string { return n.get(filepath.Join(n.conf.varDir, "bookend.prom")) }

// metric is the value of a series, 0 where it is not shown.
func (n *node) metric(series string) float64 {
	n.Helper()
	_, rest, _ := strings.Cut("\n"+n.metrics(), "\n"+series+" ")
	text, _, _ := strings.Cut(rest, "\n")
	value, _ := strconv.ParseFloat(text, 64)
	return value
}

func (n *node) store() *state.Store {
	n.Helper()
	store, err := state.Open(n.conf.run, nodeName)
	must(n, err)
	return store
}

// runs are a job's records.
func (n *node) runs(id int) []ledger.Run {
	n.Helper()
	all, _ := n.store().Runs()
	return slices.DeleteFunc(all, func(r ledger.Run) bool { return r.Job.ID != slurm.JobID(id) })
}

// run is a job's one record.
func (n *node) run(id int) ledger.Run {
	n.Helper()
	runs := n.runs(id)
	if len(runs) != 1 {
		n.Fatalf("job %d has %d records, want 1\n%s", id, len(runs), n.log())
	}
	return runs[0]
}

// startOf is the record of a job's start, endOf that of its last end.
func (n *node) startOf(id int) ledger.End {
	n.Helper()
	for _, r := range n.runs(id) {
		if r.Start != nil {
			return *r.Start
		}
	}
	n.Fatalf("job %d has no start on record", id)
	return ledger.End{}
}

func (n *node) endOf(id int) ledger.End {
	n.Helper()
	for _, r := range n.runs(id) {
		if len(r.Ends) > 0 {
			return r.Ends[len(r.Ends)-1]
		}
	}
	n.Fatalf("job %d has no end on record\n%s", id, n.log())
	return ledger.End{}
}

// findings are what the records of job 100 have of a hook.
func (n *node) findings(h hook) (all []finding.Finding) {
	n.Helper()
	for _, r := range n.runs(100) {
		if h.context == slurm.Prolog && r.Start != nil {
			all = append(all, r.Start.Findings...)
		}
		if len(r.Ends) > 0 && h.context == slurm.Epilog {
			all = append(all, r.Ends[len(r.Ends)-1].Findings...)
		}
	}
	return all
}

func has(found []finding.Finding, c code.Code) bool {
	return slices.ContainsFunc(found, func(f finding.Finding) bool { return f.Code == c })
}

// about are the findings of a process.
func about(found []finding.Finding, pid int) (some []finding.Finding) {
	for _, f := range found {
		if f.Holder != nil && f.Holder.PID == pid {
			some = append(some, f)
		}
	}
	return some
}

// codes are those of findings, sorted, with ? behind one that is in doubt and * behind one that is unknown.
func codes(found []finding.Finding) string {
	var all []string
	for _, f := range found {
		text := string(f.Code)
		if len(f.Doubts) > 0 {
			text += "?"
		}
		if f.Unknown != "" {
			text += "*"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// record is the text of the bystander's record, "" for none.
func (n *node) record() string {
	n.Helper()
	files, err := filepath.Glob(n.inState(fmt.Sprint(bystanderID, "/*.json")))
	must(n, err)
	if len(files) != 1 {
		return ""
	}
	return n.get(files[0])
}

// unharmed asserts that nothing is half written and that the bystander's record is what it was.
func (n *node) unharmed(others string) {
	n.Helper()
	if left := n.halfWritten(); len(left) > 0 {
		n.Errorf("half written: %q", left)
	}
	if now := n.record(); now != others || now == "" {
		n.Errorf("the other job's record was %s\nand is %s", others, now)
	}
}

// halfWritten lists what interrupted writers left.
func (n *node) halfWritten() (left []string) {
	n.Helper()
	must(n, filepath.WalkDir(n.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(e.Name(), ".tmp-") {
			left = append(left, path)
		}
		return nil
	}))
	return left
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
