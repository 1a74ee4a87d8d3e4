package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/rig"
)

// keptDirs are the directories of what the hooks keep: only they differ between two steps of a history.
var keptDirs = []string{"run", "var", "log"}

const logFile = "log/bookend.log"

// copyKept makes what the hooks keep in one directory a copy of that in another, with owners and times: how long some
// files are kept depends on them.
func copyKept(from, to string) {
	args := []string{"-a", "-t", to}
	for _, dir := range keptDirs {
		rig.Try(os.RemoveAll(filepath.Join(to, dir)))
		if _, err := os.Lstat(filepath.Join(from, dir)); err == nil {
			args = append(args, filepath.Join(from, dir))
		}
	}
	if text, err := exec.Command("cp", args...).CombinedOutput(); len(args) > 3 && err != nil {
		panic(fmt.Errorf("copy %q: %w: %s", from, err, text))
	}
}

// contents returns the files of what the hooks keep, by path below the node's directory.
func contents(dir string) map[string]string {
	files := map[string]string{}
	for _, top := range keptDirs {
		rig.Try(filepath.WalkDir(filepath.Join(dir, top), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				files[strings.TrimPrefix(path, dir+"/")] = string(rig.Have(os.ReadFile(path)))
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}))
	}
	return files
}

// look is all that the hooks keep, as files and as the next hook would read them.
type look struct {
	files   map[string]string
	runs    map[string]runRecord // by job id and key
	history map[string]runRecord
	damage  []string      // what cannot be used
	doubted []slurm.JobID // whose records were set aside and still matter
}

// look reads what the hooks keep now. It decodes a copy: what it sets aside there is not set aside for the next hook.
func (n *node) look() (l look) {
	dir := n.dir + "-decoded"
	l.files = contents(n.dir)
	copyKept(n.dir, dir)
	store := rig.Have(state.Open(filepath.Join(dir, "run"), nodeName))
	doubts, list := store.Damaged() // before records are set aside in the copy
	for _, d := range doubts {
		l.doubted = append(l.doubted, d.Job)
	}
	runs, damage := store.Runs()
	archived, more := state.History(filepath.Join(dir, "var"), nodeName)
	for _, d := range append(damage, more...) {
		l.damage = append(l.damage, strings.TrimPrefix(d.Path, dir+"/")+": "+d.Why)
	}
	_, baselines := state.Baselines.Load(store)
	_, tests := state.Probes.Load(store)
	stuck, child := store.Stuck(nil, func(int, uint64) bool { return true })
	if stuck != nil {
		child = errors.New("a stuck child is on record, and there was none")
	}
	_, disk := state.DiskTroubles.Load(store)
	for _, err := range []error{list, baselines, tests, child, disk} {
		if err != nil {
			l.damage = append(l.damage, err.Error())
		}
	}
	l.runs, l.history = recordsOf(runs), recordsOf(archived)
	return l
}

// temporary lists the files of interrupted writers.
func (l look) temporary() (names []string) {
	for name := range l.files {
		if strings.HasPrefix(filepath.Base(name), ".tmp-") {
			names = append(names, name)
		}
	}
	return names
}

// aside reports whether a file with this content was set aside.
func (l look) aside(content string) bool {
	for name, a := range l.files {
		if strings.Contains(name, "/damaged/") && a == content {
			return true
		}
	}
	return false
}

// doubts reports whether the next hook can know that a run's record was damaged: the file is where it was, or the job is
// remembered.
func (l look) doubts(r reference) bool {
	return l.files[r.file()] == r.was.files[r.file()] || slices.Contains(l.doubted, r.run.id)
}

// runRecord is a run's record. Two are equal if they differ only in times.
type runRecord struct {
	run   record.Run
	whole string // all of it with times; empty: there is none
}

func recordsOf(runs []record.Run) map[string]runRecord {
	all := map[string]runRecord{}
	for _, r := range runs {
		r.Archived = false
		all[fmt.Sprintf("%d/%s", r.Job.ID, r.Key)] = runRecord{r, exact(r)}
	}
	return all
}

func (r runRecord) equal(o runRecord) bool { return plain(r.run) == plain(o.run) }

// who is what must be right in any record.
func (r runRecord) who() string { return plain(r.run.Job) + plain(r.run.Epoch) + plain(r.run.Devices) }

// alike reports that two records differ only in what was not tried.
func (r runRecord) alike(o runRecord) bool {
	same := func(a, b record.End) bool { return bare(&a) == bare(&b) }
	return r.who() == o.who() && bare(r.run.Start) == bare(o.run.Start) && slices.EqualFunc(r.run.Ends, o.run.Ends, same)
}

func (r runRecord) difference(o runRecord) string {
	a, b := plain(r.run), plain(o.run)
	for len(a) > 60 && len(b) > 60 && a[:60] == b[:60] {
		a, b = a[30:], b[30:]
	}
	return fmt.Sprintf("...%.220q, not ...%.220q", a, b)
}

// last returns the end that an epilog has put on record last, or the start for a prolog; nil if there is none.
func (r runRecord) last(hook slurm.Context) *record.End {
	if n := len(r.run.Ends); n > 0 && hook == slurm.Epilog {
		return &r.run.Ends[n-1]
	}
	return r.run.Start
}

// bare is an end without what only says what was not tried: tests, words, the number of samples.
func bare(e *record.End) string {
	if e == nil {
		return ""
	}
	b := *e
	b.Probes, b.Report, b.Curves = nil, "", nil
	return plain(b)
}

// seen is the memory and processes of the GPUs at an end.
func seen(e *record.End) string {
	if e == nil {
		return ""
	}
	return plain(e.Snapshot) + plain(e.Processes)
}

// untested reports that a GPU was not tested, with a reason.
func untested(e *record.End) bool {
	return e != nil && slices.ContainsFunc(e.Probes, func(p gpu.Probe) bool { return p.Result == gpu.ProbeSkipped })
}

func findings(e *record.End) (codes string) {
	if e == nil {
		return ""
	}
	for _, f := range e.Findings {
		codes = strings.TrimPrefix(codes+" "+string(f.Code), " ")
	}
	return codes
}

// moving are values that are times or follow from one; took is a duration or a time of day in words.
var (
	moving = regexp.MustCompile(`"(\w+_ns|at|wall)":("[^"]*"|[-\d.]+|\[[^]]*\]|null),?`)
	took   = regexp.MustCompile(`\d+(\.\d+)? (s|ms)\b|\d{2}:\d{2}:\d{2}`)
)

func exact(v any) string { return string(rig.Have(json.Marshal(v))) }

func plain(v any) string {
	still := strings.ReplaceAll(moving.ReplaceAllString(exact(v), ""), ",}", "}")
	return took.ReplaceAllString(still, "T")
}

// ownFaults are what a hook reports of a fault that was made for it. A lock that was held is reported as another hook's
// work, and of the drop nothing is, which is the user's.
var ownFaults = []catalog.Code{
	catalog.StateDamage, catalog.StateWrite, catalog.StateLock, catalog.NoRecord, catalog.Again, catalog.BackendCrash, catalog.Output,
}

// admits reports whether an end says that something went wrong in Bookend.
func admits(e *record.End) bool {
	return slices.ContainsFunc(ownFaults, func(c catalog.Code) bool {
		return slices.Contains(strings.Fields(findings(e)), string(c))
	})
}
