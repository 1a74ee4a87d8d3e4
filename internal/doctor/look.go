package doctor

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/operation"
	"bookend/internal/safefile"
)

// Look is what a check wants to have looked at.
type Look struct {
	// Paths may be patterns of filepath.Match; a pattern's matches of the wrong kind are left out.
	Paths []string `json:"paths,omitempty"`
	// First: only the first of Paths that exists counts.
	First bool `json:"first,omitempty"`
	Kind  Kind `json:"kind,omitempty"` // empty: all kinds
	// Names: of files, which of Bookend's programs they name.
	Names bool `json:"names,omitempty"`
}

// Kind is what a path leads to.
type Kind string

// The kinds.
const (
	Regular Kind = "file"
	Folder  Kind = "directory"
	Other   Kind = "neither file nor directory"
)

// File is what was seen of one path.
type File struct {
	Path    string `json:"path"`
	Missing bool   `json:"missing,omitempty"`
	Error   string `json:"error,omitempty"`  // why it could not be looked at
	Kind    Kind   `json:"kind,omitempty"`   // of what the path leads to, as is all below
	Target  string `json:"target,omitempty"` // of the path itself, if it is a symbolic link
	Real    string `json:"real,omitempty"`   // where all links lead to
	Mode    uint32 `json:"mode"`             // permissions, with setuid, setgid and sticky bit
	// Tmpfs: it is the root of a tmpfs.
	Tmpfs bool `json:"tmpfs,omitempty"`
	// Distrust is the first on the way, the path itself included, that a user could have written; nil if there is none.
	Distrust *Culprit `json:"distrust,omitempty"`
	Names    []string `json:"names,omitempty"` // of Bookend's programs, in the text of a script
}

// Culprit is what safefile.Trusted stops at.
type Culprit struct {
	Path string `json:"path"`
	UID  uint32 `json:"uid"`
	Mode uint32 `json:"mode"`
	Why  string `json:"why"`
}

// looked is what came of a check's looks: the files of each, or why there are none.
type looked struct {
	seen [][]File
	why  string
}

// lookAll does the looks of checks at once, each check's in a child.
func lookAll(s Site, patience time.Duration, checks []Check) []looked {
	all := make([]looked, len(checks))
	var asks []func()
	for i, c := range checks {
		if c.looks == nil || !c.judgeable(s) {
			continue
		}
		looks := c.looks(s)
		asks = append(asks, func() {
			seen, err := operation.Ask[[][]File](opLook, looks, patience)
			if all[i].seen = seen; err != nil {
				all[i].why = err.Error()
			}
		})
	}
	together(asks...)
	return all
}

// maxFiles bounds one look, so that what is seen fits through a child's pipe: a node keeps some hundred records in
// memory, and some ten thousand on disk.
const maxFiles = 20_000

// inspectAll does a look. It may hang with the file system, and so belongs into a child.
func (l Look) inspectAll() (seen []File) {
	for _, path := range l.Paths {
		pattern := strings.ContainsAny(path, "*?[")
		matches := []string{path}
		if pattern {
			matches, _ = filepath.Glob(path) // a pattern that is none matches nothing
		}
		for _, m := range matches[:min(len(matches), maxFiles-len(seen))] {
			f := inspect(m, l.Names)
			odd := l.Kind == Regular && (f.Kind == Other || f.Kind == "") // no kind: a link that leads nowhere
			wanted := l.Kind == "" || odd || f.Kind == l.Kind
			if pattern && (f.Missing || !wanted) || l.First && f.Missing { // gone since, or another's
				continue
			}
			if seen = append(seen, f); l.First {
				return seen
			}
		}
	}
	if l.First && len(l.Paths) > 0 {
		seen = []File{{Path: l.Paths[0], Missing: true}}
	}
	return seen
}

func inspect(path string, names bool) File {
	f := File{Path: path}
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		if f.Target, err = os.Readlink(path); err == nil {
			err = unix.Stat(path, &st)
		}
	}
	switch missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR); {
	case missing && f.Target == "":
		f.Missing = true
		return f
	case missing:
		f.Error = "leads to " + f.Target + ", which does not exist"
		return f
	case err != nil:
		f.Error = err.Error()
		return f
	}
	f.Kind, f.Mode = kindOf(st.Mode), st.Mode&permissions
	f.Real, _ = filepath.EvalSymlinks(path)
	f.Distrust = culprit(path)
	var above unix.Stat_t
	var on unix.Statfs_t
	if f.Kind == Folder && unix.Stat(filepath.Dir(path), &above) == nil && unix.Statfs(path, &on) == nil {
		f.Tmpfs = above.Dev != st.Dev && on.Type == unix.TMPFS_MAGIC
	}
	if names && f.Kind == Regular {
		f.Names = namesIn(readScript(path))
	}
	return f
}

const permissions = 0o7777

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return Regular
	case unix.S_IFDIR:
		return Folder
	}
	return Other
}

// culprit is what makes safefile.Trusted refuse a path; nil where it does not.
func culprit(path string) *Culprit {
	err := safefile.Trusted(path)
	if u, is := errors.AsType[*safefile.Untrusted](err); is {
		return &Culprit{Path: u.Path, UID: u.UID, Mode: u.Mode, Why: err.Error()}
	}
	if err != nil {
		return &Culprit{Path: path, Why: err.Error()}
	}
	return nil
}

// maxScript is how much of a script is read.
const maxScript = 64 << 10

func readScript(path string) []byte {
	// Threat: none by content: it is only searched for names. A pipe that has taken its place is not waited for.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer file.Close()
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(file, maxScript))
	return text
}

// namedBy are Bookend's programs by the words that stand for them in scripts: themselves, the package's scripts, and
// the check that it has for Node Health Check.
var namedBy = map[string]string{
	"bookend-prolog": "bookend-prolog", "/hooks/prolog": "bookend-prolog", "/hooks/task-prolog": "bookend-prolog",
	"bookend-epilog": "bookend-epilog", "/hooks/epilog": "bookend-epilog", "/hooks/task-epilog": "bookend-epilog",
	"bookend-healthcheck": "bookend-healthcheck", "/hooks/healthcheck": "bookend-healthcheck",
	"check_bookend": "bookend-healthcheck",
}

// namesIn are Bookend's programs that a script names, comments left out; of a program as a linker makes it none.
func namesIn(text []byte) (names []string) {
	if bytes.HasPrefix(text, []byte("\x7fELF")) {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for word, program := range namedBy {
			if hasWord(line, word) {
				names = append(names, program)
			}
		}
	}
	return names
}

// hasWord reports a program's name in a line that is not the beginning of a longer one.
func hasWord(line, name string) bool {
	const more = "-_.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for {
		_, rest, ok := strings.Cut(line, name)
		if !ok || rest == "" || !strings.ContainsRune(more, rune(rest[0])) {
			return ok
		}
		line = rest
	}
}
