package slurmcmd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/slurmconf"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "slurm.conf"),
		"ClusterName=Lab\nInclude nodes.d/*\nInclude %c.conf\nInclude gone.conf\nInclude pipe\n")
	put(t, filepath.Join(dir, "nodes.d/b"), "B=2\n")
	put(t, filepath.Join(dir, "nodes.d/a"), "A=1\nInclude ../deep.conf\n")
	put(t, filepath.Join(dir, "deep.conf"), "Deep=yes\n")
	put(t, filepath.Join(dir, "lab.conf"), "Lab=yes\n")
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := ReadPlugins(filepath.Join(dir, "slurm.conf"))
	if err != nil {
		t.Fatal(err)
	}
	var got, unread []string
	for _, l := range c.Lines {
		for _, p := range l.Pairs {
			got = append(got, p[0])
		}
		if why := l.Unreadable(); why != "" {
			unread = append(unread, why)
		}
	}
	if s := strings.Join(got, " "); s != "ClusterName A Deep B Lab" {
		t.Errorf("read %s", s)
	}
	if len(unread) != 2 || !strings.Contains(unread[0], "no such file") || !strings.Contains(unread[1], "not a file") {
		t.Errorf("%q", unread)
	}
}

// Slurm does not start with a pattern in slurm.conf, so what it matches is not in force.
func TestReadTakesNoPattern(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "nodes.d/a"), "A=1\n")
	put(t, filepath.Join(dir, "slurm.conf"), "ClusterName=lab\nInclude nodes.d/*\n")
	c, err := Read(filepath.Join(dir, "slurm.conf"))
	if _, have := c.Get("A"); err != nil || have || !strings.Contains(c.Doubt(), "Slurm takes no pattern here") {
		t.Errorf("%+v, doubt %q, %v", c.Lines, c.Doubt(), err)
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(filepath.Join(dir, "slurm.conf")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	put(t, filepath.Join(dir, "large.conf"), strings.Repeat("#", slurmconf.MaxBytes+1))
	if _, err := Read(filepath.Join(dir, "large.conf")); err == nil {
		t.Error("a file that is too large was read")
	}
	if _, err := Read(dir); err == nil {
		t.Error("a directory was read")
	}
}
