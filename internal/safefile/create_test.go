package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/must"
)

// arranged is a folder of root's with a folder sub, and what the words say.
func arranged(t *testing.T, words string) (dir string) {
	t.Helper()
	dir = rootsFolder(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	must.Do(t, os.Mkdir(at("sub"), 0o755))
	for word := range strings.FieldsSeq(words) {
		switch kind, name, _ := strings.Cut(word, ":"); kind {
		case "file":
			put(t, at(name), "before", 0o644)
		case "others":
			must.Do(t, os.Lchown(at(name), user, user))
		case "fifo":
			must.Do(t, unix.Mkfifo(at(name), 0o666))
		case "link":
			target, name, _ := strings.Cut(name, ">")
			must.Do(t, os.Symlink(strings.Replace(target, "DIR", dir, 1), at(name)))
		}
	}
	return dir
}

func TestCreate(t *testing.T) {
	for name, tt := range map[string]struct {
		there   string
		path    string
		over    bool
		err     error
		written string // the file that is written; empty: none
	}{
		"a new file":                       {"", "new", false, nil, "new"},
		"a new file, replacing":            {"", "new", true, nil, "new"},
		"in a user's directory":            {"others:sub", "sub/new", false, nil, "sub/new"},
		"one that is there":                {"file:old", "old", false, fs.ErrExist, ""},
		"one that is there, replacing":     {"file:old", "old", true, nil, "old"},
		"another's, replacing":             {"file:old others:old", "old", true, nil, "old"},
		"a link in its place":              {"link:victim>l", "l", false, fs.ErrExist, ""},
		"a link in its place, replacing":   {"file:victim link:victim>l", "l", true, ErrNotOurs, ""},
		"a FIFO, replacing":                {"fifo:p", "p", true, ErrNotOurs, ""},
		"a directory, replacing":           {"", "sub", true, ErrNotOurs, ""},
		"through a link of one's own":      {"link:sub>l", "l/new", false, nil, "sub/new"},
		"through an absolute link":         {"link:DIR/sub>l", "l/new", false, nil, "sub/new"},
		"through a link upwards":           {"link:../sub>sub/l", "sub/l/new", false, nil, "sub/new"},
		"through a link of another's":      {"link:sub>l others:l", "l/new", false, ErrUntrusted, ""},
		"through another's, replacing":     {"link:sub>l others:l", "l/new", true, ErrUntrusted, ""},
		"through a link to itself":         {"link:l>l", "l/new", false, unix.ELOOP, ""},
		"in a directory that is a file":    {"file:old", "old/new", false, unix.ENOTDIR, ""},
		"in a directory that is not there": {"", "none/new", false, fs.ErrNotExist, ""},
		"a directory's name":               {"", "sub/", false, unix.EINVAL, ""},
		"the directory itself":             {"", "sub/..", false, unix.EINVAL, ""},
		"with dots and slashes on the way": {"", "./sub//.././new", false, nil, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := arranged(t, tt.there)
			err := Create(dir+"/"+tt.path, []byte("content"), tt.over)
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Fatalf("%v, want %v", err, tt.err)
			}
			for _, name := range []string{"old", "victim"} {
				got, err := os.ReadFile(filepath.Join(dir, name))
				if err == nil && name != tt.written && string(got) != "before" {
					t.Errorf("%s has %q", name, got)
				}
			}
			if tt.written == "" {
				if got := entries(t, filepath.Join(dir, "sub")); got != "" && got != "l" {
					t.Errorf("left %q", got)
				}
				return
			}
			info := must.Have(os.Lstat(filepath.Join(dir, tt.written)))(t)
			if got := content(t, filepath.Join(dir, tt.written)); got != "content" || info.Mode() != 0o600 ||
				info.Sys().(*syscall.Stat_t).Uid != 0 {
				t.Errorf("content %q, mode %v, %+v", got, info.Mode(), info.Sys())
			}
		})
	}
}

func TestCreateInTheWorkingFolder(t *testing.T) {
	dir := arranged(t, "")
	t.Chdir(dir)
	must.Do(t, errors.Join(Create("page.html", []byte("content"), false), Create("sub/page.html", nil, false)))
	must.Be(t, "content", content(t, dir+"/page.html"), "content")
}

// A file that does not fit leaves nothing.
func TestCreateWithoutRoom(t *testing.T) {
	for _, over := range []bool{false, true} {
		dir := smallTmpfs(t)
		must.Fail(t, fmt.Sprint("replacing ", over), Create(dir+"/page.html", make([]byte, 1<<16), over), unix.ENOSPC)
		must.Be(t, "left", entries(t, dir), "")
	}
}

func TestReadGiven(t *testing.T) {
	dir := rootsFolder(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("users"), "content", 0o666)
	must.Do(t, os.Chown(at("users"), user, user))
	put(t, at("long"), "content and more", 0o600)
	must.Do(t, os.Symlink("users", at("link")))
	must.Do(t, unix.Mkfifo(at("fifo"), 0o666))
	for name, want := range map[string]error{"users": nil, "long": ErrTooLarge, "link": unix.ELOOP,
		"fifo": ErrNotOurs, "none": fs.ErrNotExist, ".": ErrNotOurs} {
		got, err := ReadGiven(at(name), 8)
		if !errors.Is(err, want) || want == nil && string(got) != "content" {
			t.Errorf("%s: %q, %v, want %v", name, got, err, want)
		}
	}
}
