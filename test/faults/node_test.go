package faults

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/fakegpu"
)

// nodeName is what slurmd calls the node of every test.
const nodeName = "n1"

// The users of the jobs: the one under test, and the bystander whose record must survive.
const (
	user      = 65534
	bystander = 65533
)

// bystanderName is the bystander's, as Slurm gives it. The user under test is "nobody", which is a word of reports too: of
// that name none can tell whether it was given away.
const bystanderName = "onlooker"

// bystanderID is the id of the bystander's job, on the last card.
const bystanderID = 7

// node is one machine: a configuration, GPUs, state.
type node struct {
	testing.TB
	dir   string
	world *fakegpu.World
	conf  conf
	// config is what BOOKEND_CONFIG names.
	config string
	// gated: this process is asked whether an exec may go on. Until its exec is through, a process of our own making holds up
	// one thread here, with which Go's runtime may have to wait: the hooks are then started by another program.
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
	varDir          string // var in the node's folder where it is empty
	textfile        string // of the metrics; below varDir where it is empty
	scontrol        string // Slurm's own where it is empty
	numbers         string // what tells the meaning of Slurm's GPU numbers: keys of the slurm section
	extra           string // further lines
}

// newNode makes a machine with two cards in a folder of its own.
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
	n.conf = conf{
		numbers: numbers,
		mode:    mode, onUnknown: "warn", backend: program("bookend-gpu"), library: n.world.NVML(),
		driverProc: n.world.DriverProc(), run: n.in("run"), log: n.in("log"), settle: "{max: 400ms, flat: 200ms}",
	}
	n.writeConfig()
	return n
}

func program(name string) string { return filepath.Join(programs, name) }

func (n *node) in(name string) string { return filepath.Join(n.dir, name) }

// configure changes the configuration.
func (n *node) configure(change func(*conf)) {
	change(&n.conf)
	n.writeConfig()
}

func (n *node) writeConfig() {
	n.Helper()
	must(n, os.WriteFile(n.in("bookend.yaml"), []byte(n.text()), 0o644))
}

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
log: {syslog: false}
metrics: {textfile: %s}
%s`, c.mode, c.onUnknown, c.backend, cmp.Or(c.proc, "/proc"), c.run, n.varDir(), c.log, n.world.Sys(), n.world.Dev(),
		c.library, n.world.CUDA(), c.driverProc, deadlines,
		cmp.Or(c.startSettle, "{max: 400ms, flat: 200ms}"), c.settle, cmp.Or(c.shards, `"no"`), cmp.Or(c.scontrol, "/usr/bin/scontrol"), c.numbers,
		cmp.Or(c.textfile, n.varDir()+"/bookend.prom"), c.extra)
}

// varDir is the configuration's paths.var.
func (n *node) varDir() string { return cmp.Or(n.conf.varDir, n.in("var")) }

// log is what Bookend's own log says.
func (n *node) log() string {
	text, err := os.ReadFile(filepath.Join(n.conf.log, "bookend.log"))
	if err != nil && !os.IsNotExist(err) {
		n.Error(err)
	}
	return string(text)
}

// runs are a job's records.
func (n *node) runs(id slurm.JobID) []ledger.Run {
	n.Helper()
	store, err := state.Open(n.conf.run, nodeName)
	must(n, err)
	all, _ := store.Runs()
	var runs []ledger.Run
	for _, r := range all {
		if r.Job.ID == id {
			runs = append(runs, r)
		}
	}
	return runs
}

// run is a job's one record.
func (n *node) run(id slurm.JobID) ledger.Run {
	n.Helper()
	runs := n.runs(id)
	if len(runs) != 1 {
		n.Fatalf("job %d has %d records, want 1", id, len(runs))
	}
	return runs[0]
}

// record is the text of the bystander's record, "" for none.
func (n *node) record() string {
	n.Helper()
	files, err := filepath.Glob(filepath.Join(n.conf.run, "state", nodeName, fmt.Sprint(bystanderID), "*.json"))
	must(n, err)
	if len(files) != 1 {
		return ""
	}
	text, err := os.ReadFile(files[0])
	must(n, err)
	return string(text)
}

// halfWritten lists what interrupted writers left.
func (n *node) halfWritten() (left []string) {
	err := filepath.WalkDir(n.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(e.Name(), ".tmp-") {
			left = append(left, path)
		}
		return nil
	})
	must(n, err)
	return left
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
