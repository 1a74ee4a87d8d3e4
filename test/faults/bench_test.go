package faults

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/fakegpu"
	"bookend/test/must"
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

// jobsFrom are so many jobs, numbered from one on.
func jobsFrom(first, count int) (all []job) {
	for id := first; id < first+count; id++ {
		all = append(all, numbered(id))
	}
	return all
}

// bystanding is another user's job on the last GPU.
func bystanding() job {
	return rig.NewJob(nodeName, bystanderID, bystander, 1).With("SLURM_JOB_USER", bystanderName)
}

// node is one machine: a configuration, GPUs, state.
type node struct {
	must.Steps
	dir   string
	world *fakegpu.World
	conf  conf
	// config is what BOOKEND_CONFIG names.
	config string
	// numbers is what tells the meaning of Slurm's GPU numbers: keys of the slurm section.
	numbers string
	// watch starts a hook that is asked about, nil for none.
	watch func(*exec.Cmd) (wait func() error, err error)
	// heard is what Slurm shows of the task hooks to the job's user.
	heard string
	// others is the bystander's record as its start left it.
	others string
}

type conf struct {
	mode, onUnknown string
	backend         string
	driverProc      string
	run, log        string
	settle          string // of the epilog
	tight           bool   // deadlines just long enough to hang in; otherwise a slow machine cannot reach them
	proc            string // the kernel's where it is empty
	sys             string // that of the fake GPUs where it is empty
	shards          string // may GPUs be given out in parts; no where it is empty
	varDir          string
	record          string // nothing is recorded where it is empty
	probe           string // an end's time for the test allocation
	extra           string // further lines
}

// newNode makes a machine with two GPUs in a folder of its own.
func newNode(t *testing.T, mode string, options ...fakegpu.Option) *node {
	t.Helper()
	dir := must.Have(os.MkdirTemp(filepath.Dir(programs), "node-"))(t)
	must.Do(t, os.Chmod(dir, 0o755))
	n := &node{Steps: must.Steps{T: t}, dir: dir, config: filepath.Join(dir, "bookend.yaml")}
	n.world = must.Have(fakegpu.New(n.in("world"), append([]fakegpu.Option{fakegpu.GPUs(2)}, options...)...))(t)
	t.Cleanup(func() { must.Do(t, n.world.Close()) })
	t.Cleanup(n.nobodyReadsOfOthers)
	n.numbers = must.Have(n.world.Slurm(n.in("slurm.d"), nodeName))(t)
	n.configure(func(c *conf) {
		*c = conf{
			mode: mode, onUnknown: "warn", backend: program("bookend-gpu"),
			driverProc: n.world.DriverProc(), run: n.in("run"), log: n.in("log"), varDir: n.in("var"),
		}
	})
	return n
}

// parallel is newNode for a test that runs next to others.
func parallel(t *testing.T, mode string, options ...fakegpu.Option) *node {
	t.Helper()
	t.Parallel()
	return newNode(t, mode, options...)
}

// each tries every row of a table on a node of its own, side by side.
func each[T any](t *testing.T, mode string, table map[string]T, try func(*node, T)) {
	for name, row := range table {
		t.Run(name, func(t *testing.T) { try(parallel(t, mode), row) })
	}
}

func (n *node) in(name string) string { return filepath.Join(n.dir, name) }

// inState is a path below the node's folder of records.
func (n *node) inState(name string) string { return filepath.Join(n.conf.run, "state", nodeName, name) }

func (n *node) configure(change func(*conf)) {
	change(&n.conf)
	n.put("bookend.yaml", n.text(), 0o644)
}

//go:embed testdata/*.yaml
var configurations embed.FS

func (n *node) text() string {
	c, times, settle := n.conf, "roomy", "{max: 8s, stable: 200ms}"
	if c.tight {
		times, settle = "tight", "{max: 2s, stable: 200ms}"
	}
	values := map[string]string{
		"mode": c.mode, "on_unknown": c.onUnknown, "backend": c.backend, "proc": cmp.Or(c.proc, "/proc"), "run": c.run,
		"var": c.varDir, "log": c.log, "sys": cmp.Or(c.sys, n.world.Sys()), "dev": n.world.Dev(), "library": n.world.NVML(),
		"cuda": n.world.CUDA(), "driver_proc": c.driverProc, "shards": cmp.Or(c.shards, `"no"`), "numbers": n.numbers,
		"probe": cmp.Or(c.probe, "3s"), "record": cmp.Or(c.record, "0s"), "settle": cmp.Or(c.settle, settle),
	}
	text := ""
	for _, name := range []string{"bookend", times} {
		part := must.Have(configurations.ReadFile("testdata/" + name + ".yaml"))(n)
		text += os.Expand(string(part), func(name string) string { return values[name] })
	}
	return text + c.extra
}

// put writes a file of root's.
func (n *node) put(name, text string, mode os.FileMode) (path string) {
	if path = name; !filepath.IsAbs(path) {
		path = n.in(name)
	}
	must.Do(n, os.WriteFile(path, []byte(text), mode))
	return path
}

// get reads a file, "" for one that is not there.
func (n *node) get(path string) string {
	text, err := os.ReadFile(path)
	must.Not(n, err != nil && !os.IsNotExist(err) && !errors.Is(err, unix.ENOTDIR), "%v", err)
	return string(text)
}

func (n *node) give(path string, uid int) string {
	must.Do(n, os.Chown(path, uid, uid))
	return path
}

// script writes a script of root's, executable a program of root's.
func (n *node) script(name, text string) string { return n.executable(name, "#!/bin/sh\n"+text+"\n") }
func (n *node) executable(name, data string) (path string) {
	must.Do(n, rig.Write(n.in(name), []byte(data), 0o755))
	return n.in(name)
}

// mount mounts a file system of memory; "ro," before the options makes it read-only.
func (n *node) mount(path, options string) {
	must.Do(n, os.MkdirAll(path, 0o755))
	text, readOnly := strings.CutPrefix(options, "ro,")
	must.Do(n, unix.Mount("none", path, "tmpfs", 0, "mode=0755,"+text))
	n.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	if readOnly {
		must.Do(n, unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	}
}

func (n *node) set(key, value string) { must.Do(n, n.world.Set(key, value)) }

func (n *node) log() string { return n.get(filepath.Join(n.conf.log, "bookend.log")) }

// lines returns the lines of a text that contain all parts.
func lines(text string, parts ...string) (found []string) {
	for line := range strings.Lines(text) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	return found
}

// says requires a line of the log with all of these parts, saysTimes so many of them.
func (n *node) says(parts ...string) {
	must.Not(n, len(lines(n.log(), parts...)) == 0, "want %q in the log:\n%s", parts, n.log())
}

func (n *node) saysTimes(want int, parts ...string) {
	got := len(lines(n.log(), parts...))
	must.Not(n, got != want, "got %d lines with %q, want %d:\n%s", got, parts, want, n.log())
}

func (n *node) metrics() string { return n.get(filepath.Join(n.conf.varDir, "bookend.prom")) }

// metric is the value of a series, 0 where it is not shown.
func (n *node) metric(series string) float64 {
	_, rest, _ := strings.Cut("\n"+n.metrics(), "\n"+series+" ")
	text, _, _ := strings.Cut(rest, "\n")
	value, _ := strconv.ParseFloat(text, 64)
	return value
}

func (n *node) store() *state.Store {
	store := must.Have(state.Open(n.conf.run, nodeName))(n)
	return store
}

func (n *node) runs(id int) []record.Run {
	all, _ := n.store().Runs()
	return slices.DeleteFunc(all, func(r record.Run) bool { return r.Job.ID != slurm.JobID(id) })
}

func (n *node) run(id int) record.Run {
	runs := n.runs(id)
	if len(runs) != 1 {
		n.Fatalf("job %d has %d records, want 1\n%s", id, len(runs), n.log())
	}
	return runs[0]
}

// ending is what a hook of a job recorded last, startOf its prolog and endOf its epilog.
func (n *node) ending(h hook, id int) (e record.End) {
	none := true
	for _, r := range n.runs(id) {
		if h.context == slurm.Prolog && r.Start != nil {
			e, none = *r.Start, false
		}
		if len(r.Ends) > 0 && h.context == slurm.Epilog {
			e, none = r.Ends[len(r.Ends)-1], false
		}
	}
	must.Not(n, none, "%s of job %d is not on record\n%s", h.context, id, n.log())
	return e
}

func (n *node) startOf(id int) record.End { return n.ending(prolog, id) }

func (n *node) endOf(id int) record.End { return n.ending(epilog, id) }

// findings are what the record of job 100 has of a hook.
func (n *node) findings(h hook) []record.Finding { return n.ending(h, 100).Findings }

func has(found []record.Finding, c catalog.Code) bool {
	return slices.ContainsFunc(found, func(f record.Finding) bool { return f.Code == c })
}

// codes are those of findings, sorted, with ? behind one that is in doubt and * behind one that is unknown. A doubtful
// survivor may be a process of another test, whose jobs have the same user.
func codes(found []record.Finding) string {
	var all []string
	for _, f := range found {
		text := string(f.Code)
		if len(f.Doubts) > 0 {
			text += "?"
		}
		if f.Code == catalog.Survivor && len(f.Doubts) > 0 {
			continue
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
	files := must.Have(filepath.Glob(n.inState(fmt.Sprint(bystanderID, "/*.json"))))(n)
	if len(files) != 1 {
		return ""
	}
	return n.get(files[0])
}

// unharmed asserts that nothing stays half written, once the children that outlive a hook have written what they had
// begun, and that the bystander's record is what it was.
func (n *node) unharmed() {
	await(n, "an end of half-written files below "+n.dir, func() bool { return len(n.halfWritten()) == 0 })
	now := n.record()
	must.Not(n, now != n.others || now == "", "the other job's record was %s\nand is %s", n.others, now)
}

func (n *node) halfWritten() (paths []string) {
	must.Do(n, filepath.WalkDir(n.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(e.Name(), safefile.TempPrefix) {
			paths = append(paths, path)
		}
		return nil
	}))
	return paths
}

// await waits for something that comes about in another process and cannot be waited for otherwise.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(margin); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
