package doctor

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
	"bookend/internal/stage"
)

// Look is what a check wants to have looked at.
type Look struct {
	// Paths may be patterns of filepath.Match; a pattern's matches of the wrong kind are left out, unless All is set.
	Paths []string `json:"paths,omitempty"`
	// First: only the first of Paths that exists counts.
	First bool `json:"first,omitempty"`
	Kind  Kind `json:"kind,omitempty"`
	All   bool `json:"all,omitempty"`
	// Content: of files, what they are.
	Content bool `json:"content,omitempty"`
}

// Kind is what a path leads to.
type Kind string

// The kinds.
const (
	Regular Kind = "file"
	Folder  Kind = "folder"
	Other   Kind = "neither file nor folder"
)

// Seen is what came of a Look.
type Seen struct {
	Files []File `json:"files,omitempty"`
	Left  int    `json:"left,omitempty"` // files too many to be looked at
}

// File is what was seen of one path.
type File struct {
	Path    string `json:"path"`
	Missing bool   `json:"missing,omitempty"`
	Error   string `json:"error,omitempty"`  // why it could not be looked at
	Kind    Kind   `json:"kind,omitempty"`   // of what the path leads to, as is all below
	Target  string `json:"target,omitempty"` // of the path itself, if it is a symbolic link
	Real    string `json:"real,omitempty"`   // where all links lead to; empty if there are none
	Mode    uint32 `json:"mode"`             // permissions, with setuid, setgid and sticky bit
	UID     uint32 `json:"uid"`
	Links   uint64 `json:"links"` // names of the file
	// Tmpfs: it is the root of a tmpfs.
	Tmpfs bool `json:"tmpfs,omitempty"`
	// Distrust is the first on the way, the path itself included, that a user could have written; nil if there is none.
	Distrust *Culprit `json:"distrust,omitempty"`
	Content  *Content `json:"content,omitempty"` // nil if not wanted or not readable
}

// Culprit is what safefile.Trusted stops at.
type Culprit struct {
	Path string `json:"path"`
	UID  uint32 `json:"uid"`
	Mode uint32 `json:"mode"`
	Why  string `json:"why"`
}

// Content is what a program or script is, by its beginning.
type Content struct {
	Size  int64 `json:"size"`
	ELF   bool  `json:"elf,omitempty"`   // a program as a linker makes it
	Shell bool  `json:"shell,omitempty"` // "#!"
	// Names are those of Bookend's programs that its text names, comments left out.
	Names []string `json:"names,omitempty"`
	// Execs are those of them that it becomes, so that their exit status is its own.
	Execs []string `json:"execs,omitempty"`
}

// Facts are all that was seen, by the name of the check that asked, and why a check saw nothing.
type Facts struct {
	Seen    map[string][]Seen
	Unknown map[string]string
}

// lookAll does the looks of checks at once, each check's in a child.
func lookAll(s Site, patience time.Duration, checks []Check) Facts {
	all := Facts{map[string][]Seen{}, map[string]string{}}
	var guard sync.Mutex
	var asks []func()
	for _, c := range checks {
		if c.looks == nil || !c.judgeable(s) {
			continue
		}
		looks := c.looks(s)
		if len(looks) == 0 {
			continue
		}
		asks = append(asks, func() {
			seen, err := stage.Ask[[]Seen](opLook, looks, patience)
			guard.Lock()
			defer guard.Unlock()
			if all.Seen[c.Name] = seen; err != nil {
				all.Unknown[c.Name] = err.Error()
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
func (l Look) inspectAll() (seen Seen) {
	for _, path := range l.Paths {
		pattern := strings.ContainsAny(path, "*?[")
		matches := []string{path}
		if pattern {
			matches, _ = filepath.Glob(path) // a pattern that is none matches nothing
		}
		room := min(len(matches), maxFiles-len(seen.Files))
		seen.Left += len(matches) - room
		for _, m := range matches[:room] {
			f := inspect(m, l.Content)
			odd := l.Kind == Regular && (f.Kind == Other || f.Kind == "") // no kind: a link that leads nowhere
			wanted := l.All || odd || f.Kind == l.Kind
			if pattern && (f.Missing || !wanted) || l.First && f.Missing { // gone since, or another's
				continue
			}
			if seen.Files = append(seen.Files, f); l.First {
				return seen
			}
		}
	}
	if l.First && len(l.Paths) > 0 {
		seen.Files = []File{{Path: l.Paths[0], Missing: true}}
	}
	return seen
}

func inspect(path string, content bool) File {
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
	f.Kind, f.Mode, f.UID, f.Links = kindOf(st.Mode), st.Mode&permissions, st.Uid, uint64(st.Nlink)
	if real, err := filepath.EvalSymlinks(path); err == nil && real != filepath.Clean(path) {
		f.Real = real
	}
	f.Distrust = culprit(path, 0)
	var above unix.Stat_t
	var on unix.Statfs_t
	if f.Kind == Folder && unix.Stat(filepath.Dir(path), &above) == nil && unix.Statfs(path, &on) == nil {
		f.Tmpfs = above.Dev != st.Dev && on.Type == unix.TMPFS_MAGIC
	}
	if content && f.Kind == Regular {
		f.read()
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

// maxLinks bounds the symbolic links followed, as the kernel does.
const maxLinks = 40

// culprit finds what makes safefile.Trusted refuse a path: the first on the way down, and behind a link the first on
// the way to its target. It only says what to repair; whether to trust is up to safefile.
func culprit(path string, links int) *Culprit {
	for _, p := range withParents(path) {
		why := safefile.Trusted(p)
		if why == nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return &Culprit{Path: p, Why: err.Error()}
		}
		target, err := os.Readlink(p)
		if st.Mode&unix.S_IFMT != unix.S_IFLNK || err != nil || links == maxLinks {
			return &Culprit{Path: p, UID: st.Uid, Mode: st.Mode & permissions, Why: why.Error()}
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(p), target)
		}
		if found := culprit(target, links+1); found != nil {
			return found
		}
		return &Culprit{Path: p, Mode: st.Mode & permissions, Why: why.Error()}
	}
	return nil
}

// withParents lists every directory above a path, from the top, and the path.
func withParents(path string) []string {
	list := []string{path}
	for path != filepath.Dir(path) {
		path = filepath.Dir(path)
		list = append(list, path)
	}
	slices.Reverse(list)
	return list
}

// maxScript is how much of a script is read.
const maxScript = 64 << 10

// read finds out what a file is.
func (f *File) read() {
	// Threat: none by content: it is only searched for names. A pipe that has taken its place is not waited for.
	file, err := os.OpenFile(f.Path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return
	}
	text, _ := io.ReadAll(io.LimitReader(file, maxScript))
	f.Content = contentOf(text, st.Size())
}

func contentOf(text []byte, size int64) *Content {
	c := Content{Size: size, ELF: bytes.HasPrefix(text, []byte("\x7fELF")), Shell: bytes.HasPrefix(text, []byte("#!"))}
	if c.ELF {
		return &c
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			c.add(line)
		}
	}
	return &c
}

// namedBy are Bookend's programs by the words that stand for them in scripts: themselves, the package's scripts, and
// the check that it has for Node Health Check.
var namedBy = map[string]string{
	"bookend-prolog": "bookend-prolog", "/hooks/prolog": "bookend-prolog", "/hooks/task-prolog": "bookend-prolog",
	"bookend-epilog": "bookend-epilog", "/hooks/epilog": "bookend-epilog", "/hooks/task-epilog": "bookend-epilog",
	"bookend-healthcheck": "bookend-healthcheck", "/hooks/healthcheck": "bookend-healthcheck",
	"check_bookend": "bookend-healthcheck",
}

// add notes what a line of a script names. The package's own scripts name the program once, as hook.
func (c *Content) add(line string) {
	execs := slices.Contains(strings.Fields(line), "exec")
	if execs && strings.Contains(line, "$hook") {
		c.Execs = append(c.Execs, c.Names...)
	}
	for word, program := range namedBy {
		if !hasWord(line, word) {
			continue
		}
		c.Names = append(c.Names, program)
		if execs && word == program {
			c.Execs = append(c.Execs, program)
		}
	}
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
