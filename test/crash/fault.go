package main

import (
	"golang.org/x/sys/unix"

	"bookend/test/intercept"
)

// fault is what becomes of one system call.
type fault struct {
	name   string
	answer intercept.Answer
	kills  bool
	group  bool // SIGKILL for the hook's process group, as slurmd does, instead of for the calling process
	undone bool // the call does not happen, and removes nothing
}

func errno(name string, e unix.Errno) fault {
	return fault{name: name, answer: intercept.Fail(e), undone: true}
}

var (
	kill      = fault{name: "SIGKILL", answer: intercept.Kill(), kills: true}
	killGroup = fault{name: "SIGKILL of the group", kills: true, group: true}
	short     = fault{name: "short", answer: intercept.Short(1)}

	eacces = errno("EACCES", unix.EACCES)
	eagain = errno("EAGAIN", unix.EAGAIN)
	edquot = errno("EDQUOT", unix.EDQUOT)
	eintr  = errno("EINTR", unix.EINTR)
	eio    = errno("EIO", unix.EIO)
	emfile = errno("EMFILE", unix.EMFILE)
	enfile = errno("ENFILE", unix.ENFILE)
	enolck = errno("ENOLCK", unix.ENOLCK)
	enomem = errno("ENOMEM", unix.ENOMEM)
	enospc = errno("ENOSPC", unix.ENOSPC)
	erofs  = errno("EROFS", unix.EROFS)
)

// fitting are the faults that a file system, or the kernel's tables, can make of a call, the likeliest first. A close
// that fails is tried on written files alone: no system lets one fail and leaves the file open.
var fitting = map[string][]fault{
	"openat":     {emfile, eintr, eacces, enfile, enomem, eio},
	"read":       {eio, short, eintr, eagain, enomem},
	"write":      {enospc, short, eio, eintr, edquot, eagain},
	"fstat":      {eio, enomem},
	"newfstatat": {eio, eacces, enomem},
	"getdents64": {eio, enomem},
	"readlinkat": {eio, enomem},
	"mkdirat":    {enospc, erofs, eacces, edquot, eintr},
	"unlinkat":   {eio, erofs, eacces, eintr},
	"renameat":   {enospc, eio, erofs, edquot, eintr},
	"renameat2":  {enospc, eio, erofs, edquot, eintr},
	"fchmod":     {eio, erofs, eintr},
	"fchmodat":   {eio, erofs},
	"fchown":     {eio, edquot, erofs, eintr},
	"fchownat":   {eio, edquot},
	"fsync":      {eio, enospc, edquot, eintr},
	"ftruncate":  {eio, eintr},
	"flock":      {enolck, eintr, eagain},
	"fcntl":      {enolck, eintr, eagain},
	"lseek":      {eio},
}

// faultsOf are all that is tried at a point, kills last.
func faultsOf(p point) []fault {
	all := fitting[p.call]
	switch {
	case p.call == "openat" && p.write:
		all = []fault{enospc, emfile, eintr, erofs, edquot, eacces, enfile}
	case p.call == "close" && p.write:
		all = []fault{eio, eintr}
	}
	all = append(append([]fault{}, all...), kill)
	if p.role != "hook" {
		all = append(all, killGroup)
	}
	return all
}
