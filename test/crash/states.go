package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/rig"
)

// entry is one file or folder of what the hooks keep.
type entry struct {
	mode     os.FileMode
	uid, gid int
	changed  time.Time
	data     string
}

// image is what the hooks keep, by path below the node's folder.
type image map[string]entry

const logFile = "log/bookend.log"

func capture(dir string) image {
	im := image{}
	for _, top := range kept {
		rig.Try(filepath.WalkDir(filepath.Join(dir, top), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			rig.Try(err)
			info := rig.Have(d.Info())
			st := info.Sys().(*syscall.Stat_t)
			e := entry{mode: info.Mode(), uid: int(st.Uid), gid: int(st.Gid), changed: info.ModTime()}
			if info.Mode().IsRegular() {
				e.data = string(rig.Have(os.ReadFile(path)))
			}
			im[strings.TrimPrefix(path, dir+"/")] = e
			return nil
		}))
	}
	return im
}

// copyTo makes a folder a copy of the image, with no more to do than differs from the copy before it. Files get their
// times too: what is kept for how long goes by them.
func (im image) copyTo(dir string) {
	is, names := capture(dir), slices.Sorted(maps.Keys(im))
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(is))) { // what lies in a folder first
		if now, stays := im[name]; !stays || now.mode.Type() != is[name].mode.Type() {
			rig.Try(os.Remove(filepath.Join(dir, name)))
			delete(is, name)
		}
	}
	for _, name := range names {
		if e, was := is[name]; !was || e != im[name] {
			im[name].write(filepath.Join(dir, name))
		}
	}
	for _, name := range slices.Backward(names) { // a folder's time last, after what is in it
		rig.Try(os.Chtimes(filepath.Join(dir, name), im[name].changed, im[name].changed))
	}
}

func (e entry) write(path string) {
	if e.mode.IsDir() {
		rig.Try(os.MkdirAll(path, 0o700))
	} else {
		rig.Try(os.WriteFile(path, []byte(e.data), 0o600))
	}
	rig.Try(errors.Join(os.Chown(path, e.uid, e.gid), os.Chmod(path, e.mode.Perm())))
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

// aside reports whether a file lies among those set aside.
func (l look) aside(e entry) bool {
	for name, a := range l.files {
		if strings.Contains(name, "/damaged/") && a.data == e.data {
			return true
		}
	}
	return false
}

// doubts reports whether the next hook knows that a run's record was damaged: the file is where it was, or the job is
// remembered.
func (l look) doubts(r reference) bool {
	return l.files[r.file()].data == r.was.files[r.file()].data || slices.Contains(l.doubted, r.run.id)
}

// look is all that the hooks keep, as files and as the next hook would read them.
type look struct {
	files   image
	runs    map[string]record // by job id and key
	history map[string]record
	damage  []string      // what cannot be used
	doubted []slurm.JobID // whose records were set aside and still matter
}

// record is a run's record: one form for all that agree but for times.
type record struct {
	who   string // job, epoch, devices
	claim string // what the job's task hook told, for display
	start end
	ends  []end
	whole string // all of it, times included, but for whether it was archived
}

// end is what one hook has put on record; none where all is empty.
type end struct {
	all   string // without times
	bare  string // that without what only says what was not tried: tests, words, how often somebody looked
	seen  string // what lay on the cards
	found string // its codes
	// untested says that a card was not tested, and why.
	untested bool
}

// look reads what the hooks keep by now. It is decoded in a folder of the checker's own: what is set aside there is not
// set aside for the next hook.
func (n *node) look() (l look) {
	folder := n.dir + "-decoded"
	l.files = capture(n.dir)
	l.files.copyTo(folder)
	store := rig.Have(state.Open(filepath.Join(folder, "run"), nodeName))
	doubts, list := store.Damaged() // before records are set aside in the checker's directory
	for _, d := range doubts {
		l.doubted = append(l.doubted, d.Job)
	}
	runs, damage := store.Runs()
	archived, more := state.History(filepath.Join(folder, "var"), nodeName)
	for _, d := range append(damage, more...) {
		l.damage = append(l.damage, strings.TrimPrefix(d.Path, folder+"/")+": "+d.Why)
	}
	_, baselines := store.Baselines()
	_, tests := store.Probes()
	stuck, child := store.Stuck(nil, func(state.Stuck) bool { return true })
	if stuck != nil {
		child = errors.New("a stuck child is on record, and there was none")
	}
	_, disk := store.DiskTroubles()
	for _, err := range []error{list, baselines, tests, child, disk} {
		if err != nil {
			l.damage = append(l.damage, err.Error())
		}
	}
	l.runs, l.history = canonical(runs), canonical(archived)
	return l
}

// known are the records that were read before: most are what they were a hook ago.
var known sync.Map // of whole to record

func canonical(runs []ledger.Run) map[string]record {
	all := map[string]record{}
	for _, r := range runs {
		r.Archived = false
		whole := exact(r)
		rec, is := known.Load(whole)
		if !is {
			made := record{who: plain(r.Job) + plain(r.Epoch) + plain(r.Devices), claim: plain(r.Display), whole: whole}
			if r.Start != nil {
				made.start = endOf(*r.Start)
			}
			for _, e := range r.Ends {
				made.ends = append(made.ends, endOf(e))
			}
			rec = made
			known.Store(whole, rec)
		}
		all[fmt.Sprintf("%d/%s", r.Job.ID, r.Key)] = rec.(record)
	}
	return all
}

func endOf(e ledger.End) end {
	out := end{all: plain(e), seen: plain(e.Snapshot) + plain(e.Processes)}
	out.untested = slices.ContainsFunc(e.Probes, func(p gpu.Probe) bool { return p.Result == gpu.ProbeSkipped })
	e.Probes, e.Report, e.Curves = nil, "", nil
	out.bare = plain(e)
	var codes []string
	for _, f := range e.Findings {
		codes = append(codes, string(f.Code))
	}
	out.found = strings.Join(codes, " ")
	return out
}

// moving are the names of values that are times, or that follow from one; took a duration or a time of day in words.
var (
	moving = regexp.MustCompile(`(_ns|^at|^wall)$`)
	took   = regexp.MustCompile(`[0-9]+(\.[0-9]+)? (s|ms)\b|[0-9]{2}:[0-9]{2}:[0-9]{2}`)
)

func plain(v any) string {
	var tree any
	rig.Try(json.Unmarshal([]byte(exact(v)), &tree))
	return took.ReplaceAllString(exact(still(tree)), "T")
}

func exact(v any) string { return string(rig.Have(json.Marshal(v))) }

func still(v any) any {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(key string, _ any) bool { return moving.MatchString(key) })
		for key := range v {
			v[key] = still(v[key])
		}
	case []any:
		for i := range v {
			v[i] = still(v[i])
		}
	}
	return v
}

func (r record) equal(o record) bool { return r.text() == o.text() }

func (r record) alike(o record) bool {
	same := func(a, b end) bool { return a.bare == b.bare }
	return r.who == o.who && same(r.start, o.start) && slices.EqualFunc(r.ends, o.ends, same)
}

func (r record) difference(o record) string {
	a, b := r.text(), o.text()
	for len(a) > 60 && len(b) > 60 && a[:60] == b[:60] {
		a, b = a[30:], b[30:]
	}
	return fmt.Sprintf("...%.220q, not ...%.220q", a, b)
}

// last is the end that an epilog has put on record, the start for a prolog.
func (r record) last(h hookName) end {
	if n := len(r.ends); n > 0 && h == epilog {
		return r.ends[n-1]
	}
	return r.start
}

func (r record) text() string {
	text := r.who + r.claim + " start " + r.start.all
	for _, e := range r.ends {
		text += " end " + e.all
	}
	return text
}

// ownFaults are what a hook says of the trouble that a fault made for it; of a lock that was held, that another is at
// work; of the drop, which is the user's.
var ownFaults = []code.Code{
	code.StateDamage, code.StateWrite, code.StateLock, code.NoRecord, code.Again, code.BackendCrash, code.Output,
}

// admits reports whether the end says that something of its own went wrong.
func (e end) admits() bool {
	return slices.ContainsFunc(ownFaults, func(c code.Code) bool {
		return slices.Contains(strings.Fields(e.found), string(c))
	})
}
