package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/test/intercept"
)

// watched are the system calls by which a hook comes near a file.
var watched = []struct {
	name   string
	number uintptr
	fromFD uint32
	at     bool // names a file below the folder in its first argument by its second
}{
	{"openat", unix.SYS_OPENAT, 0, true},
	{"read", unix.SYS_READ, 3, false},
	{"write", unix.SYS_WRITE, 3, false},
	{"close", unix.SYS_CLOSE, 3, false},
	{"fstat", unix.SYS_FSTAT, 3, false},
	{"newfstatat", unix.SYS_NEWFSTATAT, 0, true},
	{"getdents64", unix.SYS_GETDENTS64, 3, false},
	{"readlinkat", unix.SYS_READLINKAT, 0, true},
	{"mkdirat", unix.SYS_MKDIRAT, 0, true},
	{"unlinkat", unix.SYS_UNLINKAT, 0, true},
	{"renameat", unix.SYS_RENAMEAT, 0, true},
	{"renameat2", unix.SYS_RENAMEAT2, 0, true},
	{"fchmod", unix.SYS_FCHMOD, 3, false},
	{"fchmodat", unix.SYS_FCHMODAT, 0, true},
	{"fchown", unix.SYS_FCHOWN, 3, false},
	{"fchownat", unix.SYS_FCHOWNAT, 0, true},
	{"fsync", unix.SYS_FSYNC, 3, false},
	{"ftruncate", unix.SYS_FTRUNCATE, 3, false},
	{"flock", unix.SYS_FLOCK, 3, false},
	{"fcntl", unix.SYS_FCNTL, 3, false},
	{"lseek", unix.SYS_LSEEK, 3, false},
}

// kinds are the watched calls of a name, all for "".
func kinds(name string) (all []intercept.Kind) {
	for _, w := range watched {
		if name == "" || w.name == name {
			all = append(all, intercept.Kind{Number: w.number, FromFD: w.fromFD})
		}
	}
	return all
}

// point is one system call of a hook, the same in every run of it.
type point struct {
	role  string // "hook", or what its child does
	call  string
	class string // the file, without what differs from run to run
	nth   int    // among those that agree in all this
	write bool   // a file is open for writing, or made
}

func (p point) String() string { return fmt.Sprintf("%s %s %s #%d", p.role, p.call, p.class, p.nth) }

// tracer finds the points of one run of a hook.
type tracer struct {
	dir   string
	roles map[int]string
	seen  map[point]int
}

func newTracer(dir string) *tracer {
	return &tracer{dir: dir, roles: map[int]string{}, seen: map[point]int{}}
}

// point names a call; ok is false for one that touches nothing that the hooks keep.
func (t *tracer) point(c intercept.Call) (p point, ok bool) {
	for _, w := range watched {
		if w.number != c.Number {
			continue
		}
		path := ""
		if w.at {
			path = t.named(c)
		} else {
			path = c.File(0)
		}
		if p.class, ok = t.class(path); !ok || w.name == "fcntl" && c.Args[1] != unix.F_OFD_SETLK {
			return p, false
		}
		p.call, p.role = w.name, t.role(c)
		p.write = w.name == "openat" && c.Args[2]&(unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT) != 0 || w.name == "close" &&
			writable(c)
		t.seen[p]++
		p.nth = t.seen[p]
		return p, true
	}
	return p, false
}

// writable reports whether the file of a descriptor is open for writing, and no lock.
func writable(c intercept.Call) bool {
	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", c.TID, int32(c.Args[0])))
	if err != nil || strings.Contains(filepath.Base(c.File(0)), "lock") {
		return false
	}
	for line := range strings.Lines(string(info)) {
		if text, is := strings.CutPrefix(line, "flags:"); is {
			flags, err := strconv.ParseInt(strings.TrimSpace(text), 8, 64)
			return err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY && flags&unix.O_PATH == 0
		}
	}
	return false
}

// named is the path of a call that names a file below a folder.
func (t *tracer) named(c intercept.Call) string {
	name := c.Text(1)
	for _, self := range []string{"/proc/self/fd/", "/proc/self/fdinfo/"} {
		if fd, cut := strings.CutPrefix(name, self); cut {
			n, err := strconv.Atoi(fd)
			if err != nil {
				return ""
			}
			c.Args[0] = uint64(n)
			return c.File(0)
		}
	}
	if filepath.IsAbs(name) {
		return name
	}
	if int32(c.Args[0]) == unix.AT_FDCWD {
		return ""
	}
	return filepath.Join(c.File(0), name)
}

var (
	temporary = regexp.MustCompile(`\.tmp-[0-9a-f]+$`)
	olderRun  = regexp.MustCompile(`/1[0-9]{3}(/t16[0-9]+\.json|-t16[0-9]+\.json|$)`)
	olderLock = regexp.MustCompile(`/lock-[0-9]+$`)
	deadFile  = regexp.MustCompile(` \(deleted\)$`)
)

// class is a path below the node's folder without random names; runs of long ago are all alike.
func (t *tracer) class(path string) (string, bool) {
	rest, below := strings.CutPrefix(deadFile.ReplaceAllString(path, ""), t.dir+"/")
	if !below {
		return "", false
	}
	for _, top := range kept {
		if rest == top || strings.HasPrefix(rest, top+"/") {
			rest = temporary.ReplaceAllString(rest, ".tmp-*")
			rest = olderRun.ReplaceAllString(rest, "/OLDER$1")
			if strings.Contains(rest, "OLDER") {
				rest = regexp.MustCompile(`t16[0-9]+`).ReplaceAllString(rest, "*")
			}
			return olderLock.ReplaceAllString(rest, "/lock-*"), true
		}
	}
	return "", false
}

// role says which process of the hook a call comes from.
func (t *tracer) role(c intercept.Call) string {
	if role, known := t.roles[c.TID]; known {
		return role
	}
	role := "hook"
	switch words := c.Command(); {
	case len(words) == 3 && words[1] == "--child":
		role = words[2]
	case len(words) > 0 && filepath.Base(words[0]) == "backend":
		role = "backend"
	}
	t.roles[c.TID] = role
	return role
}
