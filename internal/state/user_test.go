package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

func bothNames(id slurm.JobID) slurm.Job {
	j := job(id)
	j.SLUID = sluidA
	return j
}

func TestUserReadsReportAndLeavesARecord(t *testing.T) {
	for _, name := range []string{"7", string(sluidA)} {
		run := folder(t)
		s := open(t, run)
		j := bothNames(7)
		for range 2 { // a requeued job finds its earlier files
			if err := errors.Join(s.PutReport(j, StartReport{Text: "old"}), s.PutReport(j, StartReport{Clean: true, Text: "text"}), s.MakeDrop(j)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.ReadDrop(j); err == nil {
			t.Error("a record nobody has written")
		}
		if got := asUser(t, nobody, run, name); got != "true text <nil>" {
			t.Errorf("by %s: %q", name, got)
		}
		if got, err := s.ReadDrop(j); err != nil || string(got) != "claim "+name {
			t.Errorf("by %s: %q, %v", name, got, err)
		}
		if got := asUser(t, nobody-1, run, name); got != "refused: true" {
			t.Errorf("another user, by %s: %q", name, got)
		}
		if got := asUser(t, nobody, run, "8"); got != "refused: false" {
			t.Errorf("another job: %q", got)
		}
	}
}

// The report is root's, and its user's to be read: whoever owns a file may make it grow.
func TestReportIsReadable(t *testing.T) {
	run := folder(t)
	s := open(t, run)
	if err := s.PutReport(bothNames(7), StartReport{Text: "text"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n1_7", "n1_" + string(sluidA)} {
		info, err := os.Lstat(filepath.Join(run, "report", name))
		if err != nil || info.Mode() != 0o640 || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if r, err := GetReport(run, node, slurm.Owner{ID: 7}); err != nil || r.Text != "text" {
		t.Errorf("%+v, %v", r, err)
	}
	if err := s.PutReport(job(8), StartReport{Text: strings.Repeat("x", maxReport)}); !errors.Is(err, safefile.ErrTooLarge) {
		t.Error(err)
	}
}

func TestReadDropRefuses(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("root's"), 0o600)); err != nil {
		t.Fatal(err)
	}
	own := func(err error, path string) error { return errors.Join(err, os.Lchown(path, nobody, nobody)) }
	for name, plant := range map[string]func(string) error{
		"link":        func(p string) error { return own(os.Symlink(secret, p), p) },
		"second name": func(p string) error { return os.Link(secret, p) },
		"named pipe":  func(p string) error { return own(unix.Mkfifo(p, 0o600), p) },
		"folder":      func(p string) error { return own(os.Mkdir(p, 0o700), p) },
		"root's":      func(p string) error { return os.WriteFile(p, []byte("x"), 0o644) },
		"too large":   func(p string) error { return own(os.WriteFile(p, make([]byte, maxDrop+1), 0o600), p) },
		"nothing":     func(string) error { return nil },
	} {
		run := folder(t)
		s := open(t, run)
		if err := errors.Join(s.MakeDrop(job(7)), plant(filepath.Join(run, "drop/n1_7", DropFile))); err != nil {
			t.Fatal(name, err)
		}
		if got, err := s.ReadDrop(job(7)); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// The folder of an earlier run of another user's is put aside, unless it is in use as a mount point, and goes with the job's.
func TestMakeDropPutsAnotherUsersAside(t *testing.T) {
	run := folder(t)
	s := open(t, run)
	j := job(7)
	j.UID = nobody - 1
	path := filepath.Join(run, "drop/n1_7")
	if err := errors.Join(s.MakeDrop(j), os.WriteFile(filepath.Join(path, "theirs"), nil, 0o600), s.MakeDrop(job(7))); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(path); err != nil || len(left) != 0 {
		t.Errorf("the job finds %v, %v", left, err)
	}
	if err := RemoveDrop(run, "n1", slurm.Owner{ID: 7}); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(run, "drop")); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if err := errors.Join(s.MakeDrop(j), unix.Mount(path, path, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(path, unix.MNT_DETACH)
	if err := s.MakeDrop(job(7)); !errors.Is(err, safefile.ErrNotOurs) {
		t.Error(err)
	}
}

func TestRemoveDrop(t *testing.T) {
	run := folder(t)
	s := open(t, run)
	outside := folder(t)
	keep := filepath.Join(outside, "keep")
	deep := filepath.Join(run, "drop/n1_7", strings.Repeat("d/", maxDropDepth-1))
	err := errors.Join(s.MakeDrop(bothNames(7)), s.MakeDrop(job(8)), os.WriteFile(keep, nil, 0o600), os.MkdirAll(deep, 0o700),
		os.Symlink(outside, filepath.Join(deep, "link")), os.Symlink(outside, filepath.Join(run, "drop/n1_7/link")),
		unix.Mkfifo(filepath.Join(run, "drop/n1_7/pipe"), 0o600))
	for i := range 300 {
		err = errors.Join(err, os.WriteFile(filepath.Join(deep, fmt.Sprint(i)), nil, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := RemoveDrop(run, node, slurm.Owner{ID: 7, SLUID: sluidA}); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(filepath.Join(run, "drop"))
	if err != nil || len(left) != 1 || left[0].Name() != "n1_8" {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("a link led out: %v", err)
	}
}

// A process that outlived its job keeps filling the folder while it is emptied.
func TestRemoveDropOfARestlessUser(t *testing.T) {
	run := folder(t)
	s := open(t, run)
	j := job(7)
	if err := s.MakeDrop(j); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(run, "drop/n1_7")
	filler := exec.Command("/bin/sh", "-c", "mkdir sub; while : >sub/$i && : >$i; do i=$((i+1)); [ $i -ne 5 ] || echo busy; done")
	filler.Dir, filler.Env = dir, []string{"PATH=/usr/bin:/bin", "i=0"}
	filler.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: j.UID, Gid: j.GID}}
	out, err := filler.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := filler.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = filler.Process.Kill()
		_ = filler.Wait()
	})
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if err := RemoveDrop(run, node, slurm.Owner{ID: 7}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestRemoveDropIsBounded(t *testing.T) {
	run := folder(t)
	s := open(t, run)
	if err := errors.Join(s.MakeDrop(job(7)), os.MkdirAll(filepath.Join(run, "drop/n1_7", strings.Repeat("d/", maxDropDepth+2)), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := RemoveDrop(run, node, slurm.Owner{ID: 7}); err == nil {
		t.Error("no bound on depth")
	}
	root, err := os.OpenRoot(run)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for i := range 5 {
		if err := os.WriteFile(filepath.Join(run, "report", fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left := 3
	if err := removeTree(root, "report", &left, 9); err == nil {
		t.Error("no bound on files")
	}
	if names, err := os.ReadDir(filepath.Join(run, "report")); err != nil || len(names) != 2 {
		t.Errorf("%d files left, %v; want 2", len(names), err)
	}
	if err := RemoveDrop(filepath.Join(run, "none"), node, slurm.Owner{ID: 7}); err != nil {
		t.Errorf("no drop at all: %v", err)
	}
	if _, err := os.Stat(filepath.Join(run, "drop/n1_7")); errors.Is(err, fs.ErrNotExist) {
		t.Error("test is void")
	}
}
