package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/test/faultinject"
	"bookend/test/rig"
)

type fault struct {
	name   string
	answer faultinject.Answer
	group  bool // SIGKILL for the hook's process group, as from slurmd, instead of for the calling process
}

func (f fault) kills() bool { return f.answer.Kill || f.group }

// watched are the system calls by which a hook reaches a file, each with the errors that a file system or the kernel's
// tables can make of it, the likeliest first. SHORT does less than was asked.
var watched = []watching{
	{"openat", unix.SYS_OPENAT, 0, "EMFILE EINTR EACCES ENFILE ENOMEM EIO"},
	{"read", unix.SYS_READ, 3, "EIO SHORT EINTR EAGAIN ENOMEM"},
	{"write", unix.SYS_WRITE, 3, "ENOSPC SHORT EIO EINTR EDQUOT EAGAIN"},
	{"close", unix.SYS_CLOSE, 3, ""},
	{"fstat", unix.SYS_FSTAT, 3, "EIO ENOMEM"},
	{"newfstatat", unix.SYS_NEWFSTATAT, 0, "EIO EACCES ENOMEM"},
	{"getdents64", unix.SYS_GETDENTS64, 3, "EIO ENOMEM"},
	{"readlinkat", unix.SYS_READLINKAT, 0, "EIO ENOMEM"},
	{"mkdirat", unix.SYS_MKDIRAT, 0, "ENOSPC EROFS EACCES EDQUOT EINTR"},
	{"unlinkat", unix.SYS_UNLINKAT, 0, "EIO EROFS EACCES EINTR"},
	{"renameat", unix.SYS_RENAMEAT, 0, "ENOSPC EIO EROFS EDQUOT EINTR"},
	{"renameat2", unix.SYS_RENAMEAT2, 0, "ENOSPC EIO EROFS EDQUOT EINTR"},
	{"fchmod", unix.SYS_FCHMOD, 3, "EIO EROFS EINTR"},
	{"fchmodat", unix.SYS_FCHMODAT, 0, "EIO EROFS"},
	{"fchown", unix.SYS_FCHOWN, 3, "EIO EDQUOT EROFS EINTR"},
	{"fchownat", unix.SYS_FCHOWNAT, 0, "EIO EDQUOT"},
	{"fallocate", unix.SYS_FALLOCATE, 3, "ENOSPC EOPNOTSUPP EIO EDQUOT EINTR"},
	{"fsetxattr", unix.SYS_FSETXATTR, 3, "EOPNOTSUPP ENOSPC EIO EDQUOT EINTR"},
	{"fsync", unix.SYS_FSYNC, 3, "EIO ENOSPC EDQUOT EINTR"},
	{"ftruncate", unix.SYS_FTRUNCATE, 3, "EIO EINTR"},
	{"flock", unix.SYS_FLOCK, 3, "ENOLCK EINTR EAGAIN"},
	{"fcntl", unix.SYS_FCNTL, 3, "ENOLCK EINTR EAGAIN"},
	{"lseek", unix.SYS_LSEEK, 3, "EIO"},
}

type watching struct {
	name   string
	number uintptr
	fromFD uint32 // 0: the call names a file by its second argument, below the directory in its first
	errors string
}

// changing are the calls that change what is kept, as an open for writing does.
var changing = strings.Fields("write mkdirat unlinkat renameat fchmod fchown fchmodat fchownat ftruncate " +
	"fallocate fsetxattr")

// filters select the watched calls of a name, all for "".
func filters(name string) (all []faultinject.Filter) {
	for _, w := range watched {
		if name == "" || w.name == name {
			all = append(all, faultinject.Filter{Number: w.number, When: []faultinject.Arg{faultinject.AtLeast(0, w.fromFD)}})
		}
	}
	return all
}

// point is one system call of a hook, the same in every run of it.
type point struct {
	role  string // "hook", or the task of its child
	call  string
	class string // the file, without what differs between runs
	nth   int    // among those that agree in all this
	write bool   // a file is open for writing, or made
}

func (p point) String() string { return fmt.Sprintf("%s %s %s #%d", p.role, p.call, p.class, p.nth) }

// faults are all that is tried at a point, kills last. A close fails for written files alone, as file systems do it.
func (p point) faults() (all []fault) {
	names := watched[slices.IndexFunc(watched, func(w watching) bool { return w.name == p.call })].errors
	switch {
	case p.call == "openat" && p.write:
		names = "ENOSPC EMFILE EINTR EROFS EDQUOT EACCES ENFILE"
	case p.call == "close" && p.write:
		names = "EIO EINTR"
	}
	for name := range strings.FieldsSeq(names) {
		answer := faultinject.Answer{Short: 1}
		for e := unix.Errno(1); name != "SHORT" && e < 200; e++ {
			if unix.ErrnoName(e) == name {
				answer = faultinject.Answer{Errno: e}
			}
		}
		all = append(all, fault{name: name, answer: answer})
	}
	all = append(all, fault{name: "SIGKILL", answer: faultinject.Answer{Kill: true}})
	if p.role != "hook" {
		all = append(all, fault{name: "SIGKILL of the group", group: true})
	}
	return all
}

// tracer names the calls of one run of a hook.
type tracer struct {
	dir   string
	roles map[int]string
	seen  map[point]int
}

func newTracer(dir string) *tracer {
	return &tracer{dir: dir, roles: map[int]string{}, seen: map[point]int{}}
}

// point names a call; ok is false for one that touches nothing that the hooks keep.
func (t *tracer) point(c faultinject.Call) (p point, ok bool) {
	w := watched[slices.IndexFunc(watched, func(w watching) bool { return w.number == c.Number })]
	path := c.File(0)
	if w.fromFD == 0 {
		path = named(c)
	}
	if p.class, ok = t.class(path); !ok || w.name == "fcntl" && c.Args[1] != unix.F_OFD_SETLK {
		return p, false
	}
	p.call, p.role = w.name, t.role(c)
	p.write = w.name == "openat" && c.Args[2]&(unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT) != 0 ||
		w.name == "close" && writable(c)
	t.seen[p]++
	p.nth = t.seen[p]
	return p, true
}

// writable reports whether the file of a descriptor is open for writing, and no lock.
func writable(c faultinject.Call) bool {
	info, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", c.TID, int32(c.Args[0])))
	_, text, _ := strings.Cut(string(info), "flags:")
	flags, err := strconv.ParseInt(strings.TrimSpace(strings.SplitN(text, "\n", 2)[0]), 8, 64)
	return err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY && flags&unix.O_PATH == 0 &&
		!strings.Contains(filepath.Base(c.File(0)), "lock")
}

// named is the path of a call that names a file below a directory.
func named(c faultinject.Call) string {
	name := c.Text(1)
	if self, cut := strings.CutPrefix(name, "/proc/self/fd"); cut {
		fd, err := strconv.Atoi(filepath.Base(self)) // of fd/ or fdinfo/
		if err != nil {
			return ""
		}
		c.Args[0] = uint64(fd)
		return c.File(0)
	}
	switch {
	case filepath.IsAbs(name):
		return name
	case int32(c.Args[0]) == unix.AT_FDCWD:
		return ""
	}
	return filepath.Join(c.File(0), name)
}

// changes are what differs in paths between runs of a hook, or between runs of long ago, which are all alike.
var changes = []struct {
	of *regexp.Regexp
	to string
}{
	{regexp.MustCompile(` \(deleted\)$`), ""},
	{regexp.MustCompile(`\.tmp-[0-9a-f]+$`), ".tmp-*"},
	{regexp.MustCompile(`/1[0-9]{3}(/|-)t16[0-9]+\.json`), "/OLDER${1}*.json"},
	{regexp.MustCompile(`/1[0-9]{3}$`), "/OLDER"},
	{regexp.MustCompile(`/lock-[0-9]+$`), "/lock-*"},
}

// class is a path below the node's directory without what differs.
func (t *tracer) class(path string) (string, bool) {
	rest, below := strings.CutPrefix(path, t.dir+"/")
	top, _, _ := strings.Cut(rest, "/")
	if !below || !slices.Contains(keptDirs, top) {
		return "", false
	}
	for _, c := range changes {
		rest = c.of.ReplaceAllString(rest, c.to)
	}
	return rest, true
}

// role says which process of the hook makes a call.
func (t *tracer) role(c faultinject.Call) string {
	if role, known := t.roles[c.TID]; known {
		return role
	}
	role := cmp.Or(rig.Doing(c.Command()), "hook")
	t.roles[c.TID] = role
	return role
}
