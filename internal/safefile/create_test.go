package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCreate(t *testing.T) {
	others := func(path string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { ok(t, os.Lchown(filepath.Join(dir, path), user, user)) }
	}
	link := func(target, name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { ok(t, os.Symlink(target, filepath.Join(dir, name))) }
	}
	file := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { put(t, filepath.Join(dir, name), "before", 0o644) }
	}
	for name, tt := range map[string]struct {
		make  []func(*testing.T, string)
		path  string
		over  bool
		err   error
		there string // the file that is written; empty: none
	}{
		"a new file":            {nil, "new", false, nil, "new"},
		"a new file, replacing": {nil, "new", true, nil, "new"},
		"in a user's directory": {[]func(*testing.T, string){others("sub")}, "sub/new", false, nil,
			"sub/new"},
		"one that is there":            {[]func(*testing.T, string){file("old")}, "old", false, fs.ErrExist, ""},
		"one that is there, replacing": {[]func(*testing.T, string){file("old")}, "old", true, nil, "old"},
		"another's, replacing": {[]func(*testing.T, string){file("old"), others("old")}, "old", true, nil,
			"old"},
		"a link in its place": {[]func(*testing.T, string){link("victim", "l")}, "l", false, fs.ErrExist,
			""},
		"a link in its place, replacing": {[]func(*testing.T, string){file("victim"), link("victim", "l")}, "l",
			true, ErrNotOurs, ""},
		"a FIFO, replacing": {[]func(*testing.T,
			string){func(t *testing.T, dir string) { ok(t, unix.Mkfifo(filepath.Join(dir, "p"), 0o666)) }}, "p", true,
			ErrNotOurs, ""},
		"a directory, replacing": {nil, "sub", true, ErrNotOurs, ""},
		"through a link of one's own": {[]func(*testing.T, string){link("sub", "l")}, "l/new", false, nil,
			"sub/new"},
		"through an absolute link": {[]func(*testing.T,
			string){func(t *testing.T, dir string) { ok(t, os.Symlink(dir+"/sub", dir+"/l")) }}, "l/new", false, nil,
			"sub/new"},
		"through a link upwards": {[]func(*testing.T, string){link("../sub", "sub/l")}, "sub/l/new", false,
			nil, "sub/new"},
		"through a link of another's": {[]func(*testing.T, string){link("sub", "l"), others("l")}, "l/new",
			false, ErrUntrusted, ""},
		"through another's, replacing": {[]func(*testing.T, string){link("sub", "l"), others("l")}, "l/new", true,
			ErrUntrusted, ""},
		"through a link to itself": {[]func(*testing.T, string){link("l", "l")}, "l/new", false, unix.ELOOP,
			""},
		"in a directory that is a file": {[]func(*testing.T, string){file("old")}, "old/new", false, unix.ENOTDIR,
			""},
		"in a directory that is not there": {nil, "none/new", false, fs.ErrNotExist, ""},
		"a directory's name":               {nil, "sub/", false, unix.EINVAL, ""},
		"the directory itself":             {nil, "sub/..", false, unix.EINVAL, ""},
		"with dots and slashes on the way": {nil, "./sub//.././new", false, nil, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := rootsFolder(t)
			ok(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
			for _, f := range tt.make {
				f(t, dir)
			}
			before := map[string]string{"old": "before", "victim": "before"}
			err := Create(dir+"/"+tt.path, []byte("content"), tt.over)
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Fatalf("%v, want %v", err, tt.err)
			}
			for name, want := range before {
				if got, err := os.ReadFile(filepath.Join(dir, name)); err == nil && name != tt.there &&
					string(got) != want {
					t.Errorf("%s has %q", name, got)
				}
			}
			if tt.there == "" {
				if got := entries(t, filepath.Join(dir, "sub")); got != "" && got != "l" {
					t.Errorf("left %q", got)
				}
				return
			}
			if got := content(t, filepath.Join(dir, tt.there)); got != "content" {
				t.Errorf("content %q", got)
			}
			info, err := os.Lstat(filepath.Join(dir, tt.there))
			ok(t, err)
			if info.Mode() != 0o600 || info.Sys().(*syscall.Stat_t).Uid != 0 {
				t.Errorf("mode %v, %+v", info.Mode(), info.Sys())
			}
		})
	}
}

func TestCreateInTheWorkingFolder(t *testing.T) {
	dir := rootsFolder(t)
	t.Chdir(dir)
	ok(t, Create("page.html", []byte("content"), false))
	if got := content(t, dir+"/page.html"); got != "content" {
		t.Errorf("%q", got)
	}
	ok(t, os.Mkdir("sub", 0o755))
	ok(t, Create("sub/page.html", []byte("content"), false))
}

// A file that does not fit leaves nothing.
func TestCreateWithoutRoom(t *testing.T) {
	for _, over := range []bool{false, true} {
		dir := smallTmpfs(t)
		if err := Create(dir+"/page.html", make([]byte, 1<<16), over); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%v", err)
		}
		if got := entries(t, dir); got != "" {
			t.Errorf("left %q", got)
		}
	}
}

func TestReadGiven(t *testing.T) {
	dir := rootsFolder(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("users"), "content", 0o666)
	ok(t, os.Chown(at("users"), user, user))
	put(t, at("long"), "content and more", 0o600)
	ok(t, os.Symlink("users", at("link")))
	ok(t, unix.Mkfifo(at("fifo"), 0o666))
	for name, want := range map[string]error{"users": nil, "long": ErrTooLarge, "link": unix.ELOOP,
		"fifo": ErrNotOurs, "none": fs.ErrNotExist, ".": ErrNotOurs} {
		got, err := ReadGiven(at(name), 8)
		if !errors.Is(err, want) || want == nil && string(got) != "content" {
			t.Errorf("%s: %q, %v, want %v", name, got, err, want)
		}
	}
}
