package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/settle"
	"bookend/internal/slurm"
	"bookend/test/must"
	"bookend/test/refuse"
)

const (
	node   = "n1"
	nobody = 65534
	sluidA = slurm.SLUID("sCHNM7Y8WBK900")
	sluidB = slurm.SLUID("sCHNM7Y8WBK901")
)

// The test binary also plays the job's user, who does as a task hook does, and a probe: BOOKEND_TEST_ROLE says which.
func TestMain(m *testing.M) {
	switch os.Getenv("BOOKEND_TEST_ROLE") {
	case "":
		os.Exit(m.Run())
	case "probe":
		holdAsProbe(os.Args[1])
	}
	run, owner := os.Args[1], slurm.Owner{SLUID: slurm.SLUID(os.Args[2])}
	if id, ok := slurm.ParseJobID(os.Args[2]); ok {
		owner = slurm.Owner{ID: id}
	}
	report, err := GetReport(run, node, owner)
	if err != nil {
		fmt.Println("refused:", errors.Is(err, fs.ErrPermission))
		os.Exit(0)
	}
	dir, name := DropFile(run, node, owner)
	err = safefile.Rewrite(dir, name, []byte("claim "+os.Args[2]))
	fmt.Println(report.Clean, report.Text, err)
}

// asUser runs the test binary as the job's user.
func asUser(t *testing.T, uid uint32, run, owner string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", run, owner)
	cmd.Env = []string{"BOOKEND_TEST_ROLE=task"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as user %d: %v: %s", uid, err, out)
	}
	return strings.TrimSpace(string(out))
}

// folder is a fresh RUN that users can reach.
func folder(t *testing.T) string {
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

func job(id slurm.JobID) slurm.Job { return slurm.Job{ID: id, Node: node, UID: nobody, GID: nobody} }

// at is one end of a run, seen n seconds after boot.
func at(n int) *ledger.End {
	return &ledger.End{At: time.Duration(n) * time.Second, Wall: time.Unix(1_800_000_000+int64(n), 5).UTC()}
}

func begin(t *testing.T, s *Store, j slurm.Job, n int) {
	t.Helper()
	must.Do(t, s.Begin(ledger.Run{Job: j, Start: at(n)}))
}

// full is a run with something in every field that a hook fills.
func full(id slurm.JobID) ledger.Run {
	minor := 2
	device := gpu.Device{ID: "GPU-1", BusID: "0000:1b:00.0", Minor: &minor, Name: "NVIDIA H200", Vendor: "nvidia"}
	end := at(100)
	end.Snapshot = gpu.Snapshot{At: end.At, Driver: gpu.Driver{Version: "580"}, Readings: []gpu.Reading{{
		Device: device,
		Memory: gpu.Memory{Total: gpu.Bytes(1 << 37), Used: gpu.Bytes(5), Free: gpu.Unknown("x"),
			Reserved: gpu.Bytes(0)},
		Processes: []gpu.Process{{PID: 7, Memory: gpu.Bytes(5), Kinds: []gpu.Kind{gpu.Compute}}},
	}}}
	end.Curves = map[gpu.ID]settle.Curve{"GPU-1": {State: settle.Flat, Looks: 3}, "GPU-0": {State: settle.Clean}}
	end.Processes = []finding.Process{{PID: 9, Name: "b"}, {PID: 7, Name: "a) R (\n", Start: time.Second, UID: 1,
		Cgroup: slurm.Owner{ID: 3}}}
	end.Findings = []finding.Finding{{Code: code.Orphan, GPU: "GPU-1", Bytes: gpu.Bytes(5), Doubts: []string{"d"}}}
	end.Report = "line\n"
	end.Verdict = finding.Verdict{Action: "warn", Code: code.Orphan}
	j := job(id)
	j.SLUID, j.Start = sluidA, time.Unix(1_800_000_000, 0).UTC()
	return ledger.Run{
		Job: j, Epoch: gpu.Epoch{Boot: "b", Driver: "580", Module: "m@1"}, Devices: []ledger.Assigned{{Index: 3,
			Device: device}},
		Display: ledger.Display{Array: slurm.ArrayTask{Master: 5, Task: 6}, HetID: 4}, Start: end,
	}
}

func TestOpenMakesItsFolders(t *testing.T) {
	run := filepath.Join(folder(t), "bookend")
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	open(t, run)
	open(t, run)
	for name, mode := range map[string]fs.FileMode{"": 0o755, "state": 0o700, "state/n1": 0o700, "report": 0o711,
		"drop": 0o711} {
		if info, err := os.Stat(filepath.Join(run, name)); err != nil || info.Mode().Perm() != mode || !info.IsDir() {
			t.Errorf("%q: %v, %v", name, info, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/", "-x", "n1\x00", "a..b", strings.Repeat("n", 256)} {
		if _, err := Open(folder(t), name); !errors.Is(err, ErrName) {
			t.Errorf("node %q: %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(folder(t), "no/such"), node); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no parent: %v", err)
	}
	for name, plant := range map[string]func(string) error{
		"link":       func(p string) error { return os.Symlink(t.TempDir(), p) },
		"file":       func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"a user's":   func(p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Chown(p, nobody, nobody)) },
		"named pipe": func(p string) error { return unix.Mkfifo(p, 0o600) },
	} {
		for _, where := range []string{"state", "state/n1", "report"} {
			run := folder(t)
			path := filepath.Join(run, where)
			must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Chmod(run, 0o755), plant(path)))
			if _, err := Open(run, node); !errors.Is(err, safefile.ErrNotOurs) {
				t.Errorf("%s for %s: %v", name, where, err)
			}
		}
	}
	run := folder(t)
	must.Do(t, os.Chmod(run, 0o777))
	if _, err := Open(run, node); !errors.Is(err, safefile.ErrNotOurs) {
		t.Errorf("a root that anybody can write in: %v", err)
	}
}

func TestNamesAreChecked(t *testing.T) {
	run := folder(t)
	s := open(t, run)
	before := tree(t, run)
	for _, bad := range []slurm.Job{
		{Node: node},
		{Node: "n2", ID: 1},
		{Node: "../n1", ID: 1},
		{Node: node, ID: 1, SLUID: "../../../../etc/x"},
		{Node: node, ID: 1, SLUID: "sCHNM7Y8WBK90/"},
	} {
		_, which, find := s.Find(bad)
		_, read := s.ReadDrop(bad)
		for name, err := range map[string]error{
			"Begin": s.Begin(ledger.Run{Job: bad}), "Close": s.Close(ledger.Run{Job: bad}, ledger.End{}), "Find": find,
			"PutReport": s.PutReport(bad, Report{}), "MakeDrop": s.MakeDrop(bad), "ReadDrop": read,
		} {
			if !errors.Is(err, ErrName) {
				t.Errorf("%s(%+v): %v", name, bad, err)
			}
		}
		if which != ledger.NoRun {
			t.Errorf("%+v: found %s", bad, which)
		}
	}
	if err := s.Begin(ledger.Run{Key: "../x", Job: job(1)}); !errors.Is(err, ErrName) {
		t.Errorf("key: %v", err)
	}
	for _, owner := range []slurm.Owner{{}, {SLUID: "../x"}, {ID: 1, SLUID: "../x"}} {
		if dir, name := DropFile(run, node, owner); dir != "" || name != "" {
			t.Errorf("%+v: drop %q, %q", owner, dir, name)
		}
		if _, err := GetReport(run, node, owner); !errors.Is(err, ErrName) {
			t.Errorf("%+v: %v", owner, err)
		}
	}
	if after := tree(t, run); !reflect.DeepEqual(after, before) {
		t.Errorf("something was written: %v", after)
	}
}

// tree lists everything below a folder, locks left out.
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

func mount(t *testing.T, options string) string {
	t.Helper()
	dir := folder(t)
	must.Do(t, unix.Mount("none", dir, "tmpfs", 0, options))
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Where nothing can be written each writer says so, no fault goes silent, and what is there is read.
func TestUnwritable(t *testing.T) {
	run := mount(t, "size=256k,mode=0755")
	s := open(t, run)
	begin(t, s, job(1), 10)
	filler := filepath.Join(run, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	writers := func(want error) {
		t.Helper()
		for name, err := range map[string]error{
			"Begin":     s.Begin(ledger.Run{Job: job(2), Start: at(20)}),
			"Close":     s.Close(ledger.Run{Job: job(1)}, *at(20)),
			"PutReport": s.PutReport(job(1), Report{Text: "x"}),
			"SetStuck":  s.SetStuck(Stuck{PID: 1}),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
		}
		if say, _ := s.Repeat("X", 0); !say {
			t.Error("a fault went silent")
		}
		if _, which, err := open(t, run).Find(job(1)); which != ledger.OpenRun || err != nil {
			t.Errorf("the record from before: %s, %v", which, err)
		}
	}
	writers(unix.ENOSPC)
	must.Do(t, os.Remove(filler))
	noRoom := refuse.Call{Number: unix.SYS_MKDIRAT, Errno: unix.ENOSPC, When: refuse.Below(0)}
	err := refused(t, noRoom, func() error { return s.Begin(ledger.Run{Job: job(3), Start: at(10)}) })
	if runs, damage := s.Runs(); !errors.Is(err, unix.ENOSPC) || len(runs) != 1 || len(damage) != 0 {
		t.Errorf("without room for a directory: got %v, %d runs, %v, want %v", err, len(runs), damage, unix.ENOSPC)
	}
	for _, path := range tree(t, run) {
		if strings.Contains(path, safefile.TempPrefix) {
			t.Errorf("left behind: %s", path)
		}
	}
	must.Do(t, unix.Mount("none", run, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	writers(unix.EROFS)
	if err := errors.Join(s.MakeDrop(job(1)), s.ClearStuck()); !errors.Is(err, unix.EROFS) {
		t.Errorf("got %v, want %v", err, unix.EROFS)
	}
	if _, err := Open(run, "n2"); !errors.Is(err, unix.EROFS) {
		t.Errorf("a new node: got %v, want %v", err, unix.EROFS)
	}
	must.Do(t, unix.Mount("none", run, "", unix.MS_REMOUNT, ""))
	begin(t, s, job(2), 20)
}

func TestNodes(t *testing.T) {
	run, kept := folder(t), t.TempDir()
	if nodes, err := Nodes(run, kept); err != nil || len(nodes) != 0 {
		t.Errorf("%q, %v", nodes, err)
	}
	open(t, run)
	for _, dir := range []string{"history/n0", "history/n1", "history/no node"} {
		must.Do(t, os.MkdirAll(filepath.Join(kept, dir), 0o700))
	}
	if nodes, err := Nodes(run, kept); err != nil || !slices.Equal(nodes, []string{"n0", "n1"}) {
		t.Errorf("%q, %v", nodes, err)
	}
	if nodes, err := Nodes(run, ""); err != nil || !slices.Equal(nodes, []string{"n1"}) {
		t.Errorf("%q, %v", nodes, err)
	}
}
