package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/faultinject"
	"bookend/test/must"
)

const (
	node     = "n1"
	someUser = 65534
	sluidA   = slurm.SLUID("sCHNM7Y8WBK900")
	sluidB   = slurm.SLUID("sCHNM7Y8WBK901")
)

func newDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for path := dir; path != os.TempDir(); path = filepath.Dir(path) {
		must.Do(t, os.Chmod(path, 0o755))
	}
	return dir
}

func open(t *testing.T, run string) *Store {
	t.Helper()
	return must.Have(Open(run, node))(t)
}

// fresh is a new store.
func fresh(t *testing.T) *Store {
	t.Helper()
	return open(t, newDir(t))
}

func job(id slurm.JobID) slurm.Job {
	return slurm.Job{ID: id, Node: node, UID: someUser, GID: someUser}
}

// at is one end of a run, seen n seconds after boot.
func at(n int) *record.End {
	return &record.End{At: time.Duration(n) * time.Second, Wall: time.Unix(1_800_000_000+int64(n), 5).UTC()}
}

func begin(t *testing.T, s *Store, j slurm.Job, n int) {
	t.Helper()
	must.Do(t, s.Begin(record.Run{Job: j, Start: at(n)}))
}

// full is a run with something in every field that a hook fills.
func full(id slurm.JobID) record.Run {
	minor := 2
	device := gpu.Device{ID: "GPU-1", BusID: "0000:1b:00.0", Minor: &minor, Name: "NVIDIA H200", Vendor: "nvidia"}
	end := at(100)
	end.Snapshot = gpu.Snapshot{At: end.At, Driver: gpu.Driver{Version: "580"}, Readings: []gpu.Reading{{
		Device: device,
		Memory: gpu.Memory{Total: gpu.Bytes(1 << 37), Used: gpu.Bytes(5), Free: gpu.Unknown("x"),
			Reserved: gpu.Bytes(0)},
		Processes: []gpu.Process{{PID: 7, Memory: gpu.Bytes(5), Kinds: []gpu.Kind{gpu.Compute}}},
	}}}
	end.Curves = map[gpu.ID]record.Curve{"GPU-1": {State: record.Flat, Looks: 3}, "GPU-0": {State: record.Clean}}
	end.Processes = []record.Process{{PID: 9, Name: "b"}, {PID: 7, Name: "a) R (\n", Start: time.Second, UID: 1,
		Cgroup: slurm.Owner{ID: 3}}}
	end.Findings = []record.Finding{{Code: catalog.Orphan, GPU: "GPU-1", Bytes: gpu.Bytes(5), Doubts: []string{"d"}}}
	end.Report = "line\n"
	end.Verdict = record.Verdict{Action: "warn", Code: catalog.Orphan}
	j := job(id)
	j.SLUID, j.Start = sluidA, time.Unix(1_800_000_000, 0).UTC()
	return record.Run{
		Job: j, Epoch: gpu.Epoch{Boot: "b", Driver: "580", Module: "m@1"}, Devices: []record.Assigned{{Index: 3,
			Device: device}},
		Display: record.Display{Array: slurm.ArrayTask{Master: 5, Task: 6}, HetID: 4}, Start: end,
	}
}

func TestOpenMakesItsDirectories(t *testing.T) {
	run := filepath.Join(newDir(t), "bookend")
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	open(t, run)
	open(t, run)
	for name, mode := range map[string]fs.FileMode{"": 0o755, "state": 0o700, "state/n1": 0o700, "report": 0o711,
		"drop": 0o711} {
		info, err := os.Stat(filepath.Join(run, name))
		must.Not(t, err != nil || info.Mode().Perm() != mode || !info.IsDir(), "%q: %v, %v", name, info, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/", "-x", "n1\x00", "a..b", strings.Repeat("n", 256)} {
		must.Fail(t, fmt.Sprintf("node %q", name), must.Err(Open(newDir(t), name)), ErrName)
	}
	must.Fail(t, "no parent", must.Err(Open(filepath.Join(newDir(t), "no/such"), node)), fs.ErrNotExist)
	for name, plant := range map[string]func(string) error{
		"link":       func(p string) error { return os.Symlink(t.TempDir(), p) },
		"file":       func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"a user's":   func(p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Chown(p, someUser, someUser)) },
		"named pipe": func(p string) error { return unix.Mkfifo(p, 0o600) },
	} {
		for _, where := range []string{"state", "state/n1", "report"} {
			run := newDir(t)
			path := filepath.Join(run, where)
			must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Chmod(run, 0o755), plant(path)))
			must.Fail(t, name+" for "+where, must.Err(Open(run, node)), safefile.ErrNotOurs)
		}
	}
	run := newDir(t)
	must.Do(t, os.Chmod(run, 0o777))
	must.Fail(t, "a root that anybody can write in", must.Err(Open(run, node)), safefile.ErrNotOurs)
}

func TestNamesAreChecked(t *testing.T) {
	s := fresh(t)
	before := tree(t, s.Users.Run)
	for _, bad := range []slurm.Job{
		{Node: node},
		{Node: "n2", ID: 1},
		{Node: "../n1", ID: 1},
		{Node: node, ID: 1, SLUID: "../../../../etc/x"},
		{Node: node, ID: 1, SLUID: "sCHNM7Y8WBK90/"},
	} {
		found, find := s.Find(bad)
		for name, err := range map[string]error{
			"Begin": s.Begin(record.Run{Job: bad}), "Close": s.Close(record.Run{Job: bad}, record.End{}), "Find": find,
			"PutReport": s.Users.PutReport(bad, Report{}), "MakeDrop": s.Users.MakeDrop(bad),
			"ReadDrop": must.Err(s.Users.ReadDrop(bad)),
		} {
			must.Fail(t, fmt.Sprintf("%s(%+v)", name, bad), err, ErrName)
		}
		must.Not(t, kindOf(found) != "none", "%+v: found %+v", bad, found)
	}
	must.Fail(t, "key", s.Begin(record.Run{Key: "../x", Job: job(1)}), ErrName)
	for _, owner := range []slurm.Owner{{}, {SLUID: "../x"}, {ID: 1, SLUID: "../x"}} {
		must.Fail(t, fmt.Sprintf("drop of %+v", owner), s.Users.EditDrop(1, owner, 0, nil), ErrName)
		must.Fail(t, fmt.Sprintf("report of %+v", owner), must.Err(s.Users.Report(1, owner)), ErrName)
	}
	must.Be(t, "something was written", tree(t, s.Users.Run), before)
}

// sizes are how many records there are, and how many damaged ones.
func sizes(runs []record.Run, damage []Damage) [2]int { return [2]int{len(runs), len(damage)} }

// there reports whether there is something at a path.
func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// tree lists everything below a directory, locks left out.
func tree(t *testing.T, root string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if !strings.HasPrefix(filepath.Base(path), "lock-") {
			paths = append(paths, strings.TrimPrefix(path, root))
		}
		return err
	})
	must.Do(t, err)
	return paths
}

// Where nothing can be written each writer says so, no fault goes silent, and what is there is read.
func TestUnwritable(t *testing.T) {
	run := newDir(t)
	must.Tmpfs(t, run, "size=256k,mode=0755")
	s := open(t, run)
	begin(t, s, job(1), 10)
	filler := filepath.Join(run, "filler")
	must.Fail(t, "filler", os.WriteFile(filler, make([]byte, 1<<20), 0o600), unix.ENOSPC)
	writers := func(want error) {
		t.Helper()
		for name, err := range map[string]error{
			"Begin":     s.Begin(record.Run{Job: job(2), Start: at(20)}),
			"Close":     s.Close(record.Run{Job: job(1)}, *at(20)),
			"PutReport": s.Users.PutReport(job(1), Report{Text: "x"}),
			"SetStuck":  StuckChildren.Add(s, Stuck{PID: 1}, anyone),
		} {
			must.Fail(t, name, err, want)
		}
		found, err := open(t, run).Find(job(1))
		must.Not(t, kindOf(found) != "open" || err != nil, "the record from before: %+v, %v", found, err)
	}
	writers(unix.ENOSPC)
	must.Do(t, os.Remove(filler))
	noRoom := faultinject.Filter{Number: unix.SYS_MKDIRAT, Errno: unix.ENOSPC, When: faultinject.Below(0)}
	err := refused(t, noRoom, func() error { return s.Begin(record.Run{Job: job(3), Start: at(10)}) })
	must.Fail(t, "without room for a directory", err, unix.ENOSPC)
	must.Be(t, "runs and damage", sizes(s.Runs()), [2]int{1, 0})
	for _, path := range tree(t, run) {
		must.Not(t, strings.Contains(path, safefile.TempPrefix), "left behind: %s", path)
	}
	must.Do(t, unix.Mount("none", run, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	writers(unix.EROFS)
	must.Fail(t, "read-only", errors.Join(s.Users.MakeDrop(job(1)), StuckChildren.Add(s, Stuck{}, anyone)), unix.EROFS)
	must.Fail(t, "a new node", must.Err(Open(run, "n2")), unix.EROFS)
	must.Do(t, unix.Mount("none", run, "", unix.MS_REMOUNT, ""))
	begin(t, s, job(2), 20)
}

func TestNodes(t *testing.T) {
	run, kept := newDir(t), t.TempDir()
	must.Be(t, "no nodes", len(must.Have(Nodes(run, kept))(t)), 0)
	open(t, run)
	for _, dir := range []string{"history/n0", "history/n1", "history/no node"} {
		must.Do(t, os.MkdirAll(filepath.Join(kept, dir), 0o700))
	}
	must.Be(t, "nodes", must.Have(Nodes(run, kept))(t), []string{"n0", "n1"})
	must.Be(t, "nodes with state", must.Have(Nodes(run, ""))(t), []string{"n1"})
}
