package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
)

// Look is what a check wants to have looked at.
type Look struct {
	// Place is the file system it is likely on: one child looks at all of a place, so that a place that does not answer
	// costs no other.
	Place string `json:"place"`
	// Paths may be patterns of filepath.Match; a pattern's matches of the wrong kind are left out.
	Paths []string `json:"paths,omitempty"`
	// First: only the first of Paths that is there counts.
	First bool `json:"first,omitempty"`
	// Up: of a folder that is not there the file system is that of the nearest above.
	Up   bool `json:"up,omitempty"`
	Kind Kind `json:"kind,omitempty"`
	// All: a pattern's matches of every kind count, as for Slurm.
	All bool `json:"all,omitempty"`
	// Content: of files, what they are and what they lie on.
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

// File is what was seen of one path.
type File struct {
	Path    string `json:"path"`
	Missing bool   `json:"missing,omitempty"`
	Error   string `json:"error,omitempty"`  // why it could not be looked at
	Kind    Kind   `json:"kind,omitempty"`   // of what the path leads to, as is all below
	Target  string `json:"target,omitempty"` // of the path itself, where it is a symbolic link
	Real    string `json:"real,omitempty"`   // where all links lead to; empty where there are none
	Mode    uint32 `json:"mode"`             // permissions, with setuid, setgid and sticky bit
	UID     uint32 `json:"uid"`
	Links   uint64 `json:"links"` // names of the file
	// Distrust is the first on the way that anybody but root could have written, the path itself included; nil where there
	// is none.
	Distrust *Culprit    `json:"distrust,omitempty"`
	System   *FileSystem `json:"system,omitempty"` // of a folder, or where Look has Content
	// Content is what a file is; nil where nobody wanted it, or it could not be read.
	Content *Content `json:"content,omitempty"`
}

// Content is what a file is, by its beginning.
type Content struct {
	Size  int64 `json:"size"`
	ELF   bool  `json:"elf,omitempty"`   // a program as a linker makes it
	Shell bool  `json:"shell,omitempty"` // "#!"
	// Names are those of Bookend's programs that its text names, comments left out.
	Names []string `json:"names,omitempty"`
	// Execs are those of them that it becomes, so that how they end is how it ends.
	Execs []string `json:"execs,omitempty"`
}

// Culprit is what safefile.Trusted stops at.
type Culprit struct {
	Path string `json:"path"`
	UID  uint32 `json:"uid"`
	Mode uint32 `json:"mode"`
	Why  string `json:"why"`
}

// FileSystem is what a folder is on.
type FileSystem struct {
	Mount    string `json:"mount"` // the folder that it is mounted at
	Own      bool   `json:"own"`   // mounted at the folder itself
	Tmpfs    bool   `json:"tmpfs"`
	Network  string `json:"network,omitempty"` // "nfs" and the like; empty where it is the node's own
	NoSUID   bool   `json:"nosuid"`
	NoDev    bool   `json:"nodev"`
	NoExec   bool   `json:"noexec"`
	ReadOnly bool   `json:"read_only"`
	Bytes    uint64 `json:"bytes"` // 0: no limit
	Free     uint64 `json:"free"`  // bytes, those kept for root among them
	Inodes   uint64 `json:"inodes"`
	Unused   uint64 `json:"unused"` // inodes
}

const permissions = 0o7777

// maxFiles bounds one look, so that what is seen fits through a child's pipe: a node keeps some hundred records in memory,
// and some ten thousand on disk.
const maxFiles = 20_000

// see looks at what a check wants. It may hang with the file system, and so belongs into a child.
func see(l Look) Seen {
	var seen Seen
	for _, path := range l.Paths {
		if !strings.ContainsAny(path, "*?[") {
			f := inspect(path)
			if l.Content {
				f.read()
			}
			if l.First && f.Missing {
				continue
			}
			if l.Up && f.Missing {
				f.System = nearest(path)
			}
			seen.Files = append(seen.Files, f)
			if l.First {
				break
			}
			continue
		}
		matches, err := filepath.Glob(path)
		if err != nil {
			return Seen{Unknown: err.Error()}
		}
		room := min(len(matches), maxFiles-len(seen.Files))
		seen.Left += len(matches) - room
		for _, m := range matches[:room] {
			f := inspect(m)
			if l.Content {
				f.read()
			}
			if !f.Missing && (l.All || f.Target != "" || f.Kind == l.Kind || f.Kind == Other) { // missing: gone since
				seen.Files = append(seen.Files, f)
			}
		}
	}
	if l.First && len(seen.Files) == 0 && len(l.Paths) > 0 {
		seen.Files = []File{{Path: l.Paths[0], Missing: true}}
	}
	return seen
}

func inspect(path string) File {
	f := File{Path: path}
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		if f.Target, err = os.Readlink(path); err == nil {
			err = unix.Stat(path, &st)
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		f.Missing = f.Target == ""
		if !f.Missing {
			f.Error = "leads to " + f.Target + ", which does not exist"
		}
		return f
	}
	if err != nil {
		f.Error = err.Error()
		return f
	}
	f.Kind, f.Mode, f.UID, f.Links = kindOf(st.Mode), st.Mode&permissions, st.Uid, uint64(st.Nlink)
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		f.Real = real
	}
	f.Distrust = culprit(path, 0)
	if f.Kind == Folder {
		f.System = system(path)
	}
	return f
}

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
// the way to where that leads. It only says what to repair; whether to trust is safefile's to say.
func culprit(path string, links int) *Culprit {
	for _, p := range above(path) {
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

// above lists every folder above a path, from the top, and the path.
func above(path string) []string {
	list := []string{path}
	for path != filepath.Dir(path) {
		path = filepath.Dir(path)
		list = append([]string{path}, list...)
	}
	return list
}

// nearest describes the file system of the nearest folder above path that is there.
func nearest(path string) *FileSystem {
	for path != filepath.Dir(path) {
		path = filepath.Dir(path)
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil {
			return system(path)
		}
	}
	return nil
}

// system describes the file system of a folder; nil where the kernel does not tell.
func system(path string) *FileSystem {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return nil
	}
	at := mountPoint(path)
	has := func(flag int64) bool { return st.Flags&flag != 0 }
	return &FileSystem{
		Mount: at, Own: at == filepath.Clean(path), Tmpfs: st.Type == unix.TMPFS_MAGIC, Network: networks[uint32(st.Type)],
		NoSUID: has(unix.ST_NOSUID), NoDev: has(unix.ST_NODEV), NoExec: has(unix.ST_NOEXEC), ReadOnly: has(unix.ST_RDONLY),
		Bytes: st.Blocks * uint64(st.Bsize), Free: st.Bfree * uint64(st.Bsize), Inodes: st.Files, Unused: st.Ffree,
	}
}

// mountPoint is the topmost folder above path that is on the same mount. Links on the way are followed.
func mountPoint(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	path = filepath.Clean(path)
	for path != filepath.Dir(path) && mountOf(path) == mountOf(filepath.Dir(path)) {
		path = filepath.Dir(path)
	}
	return path
}

// mountOf tells mounts apart: by device, and where the kernel tells it (Linux 5.8) by the mount's own number.
func mountOf(path string) [2]uint64 {
	var st unix.Stat_t
	var more unix.Statx_t
	if unix.Stat(path, &st) != nil {
		return [2]uint64{}
	}
	if unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &more) != nil {
		more.Mnt_id = 0
	}
	return [2]uint64{uint64(st.Dev), more.Mnt_id}
}
