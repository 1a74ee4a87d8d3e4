package state

import (
	"errors"
	"os"
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
			must(t, errors.Join(s.PutReport(j, StartReport{Text: "old"}), s.PutReport(j,
				StartReport{Clean: true, Text: "text"}), s.MakeDrop(j)))
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
	must(t, s.PutReport(bothNames(7), StartReport{Text: "text"}))
	for _, name := range []string{"n1_7", "n1_" + string(sluidA)} {
		info, err := os.Lstat(filepath.Join(run, "report", name))
		if err != nil || info.Mode() != 0o640 || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if r, err := GetReport(run, node, slurm.Owner{ID: 7}); err != nil || r.Text != "text" {
		t.Errorf("%+v, %v", r, err)
	}
	if err := s.PutReport(job(8), StartReport{Text: strings.Repeat("x", maxReport)}); !errors.Is(err,
		safefile.ErrTooLarge) {
		t.Error(err)
	}
}

func TestReadDropRefuses(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, errors.Join(os.WriteFile(secret, []byte("root's"), 0o600)))
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
