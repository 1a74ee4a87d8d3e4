package main

import "strconv"

// exceptions are the breaches that are meant, each with its reason. One that is no longer needed is a breach.
var exceptions = []struct{ rule, dir, what, why string }{
	{"root", "internal/child", quoted("/proc"), "its own children's pids, which only the kernel it runs on knows"},
	{"root", "internal/child", quoted("/proc/self/exe"), "starts this very binary again"},
	{"root", "internal/child", quoted("/proc/self/fd"), "closes its own descriptors"},
	{"root", "internal/confine", quoted("/proc/self/fd"), ownDescriptors},
	{"root", "internal/confine", quoted("/proc/self/fd/"), ownDescriptors},
	{"root", "internal/safefile", quoted("/proc/self/fd/"), "opens again what its own descriptor pins"},
	{"root", "internal/safefile", quoted("/proc/self/fdinfo/"), "reads the mount of its own descriptor"},
	{"root", "internal/asuser", quoted("/bin/getent"), fixedProgram},
	{"root", "internal/asuser", quoted("/usr/bin/getent"), fixedProgram},
	{"root", "internal/asuser", quoted("/bin/id"), fixedProgram},
	{"root", "internal/asuser", quoted("/usr/bin/id"), fixedProgram},
	{"root", "internal/asuser", quoted("/proc/self/task"), "proves on its own threads that the rights are gone"},
	{"root", "internal/asuser", quoted("/proc/self/task/"), "proves on its own threads that the rights are gone"},
	{"root", "internal/inventory", quoted("/usr/lib/x86_64-linux-gnu"), librariesLie},
	{"root", "internal/inventory", quoted("/usr/lib/aarch64-linux-gnu"), librariesLie},
	{"root", "internal/inventory", quoted("/usr/lib64"), librariesLie},
	{"root", "internal/inventory", quoted("/usr/lib"), librariesLie},
	{"root", "internal/doctor", quoted("/usr/bin/bookend"), "where it is installed, for the documentation; the running program itself is looked at"},
	{"system clock", "internal/child", "bookend/internal/clock.System", "says how long a child took; nothing is decided by it"},
	{"init", "internal/nogpu", "func init", leavesEarly},
	{"process", "internal/nogpu", "os.Getenv", leavesEarly},
	{"process", "internal/nogpu", "os.Exit", leavesEarly},
}

const leavesEarly = "ends a hook of a job without GPUs before the rest of the program is initialised"

const ownDescriptors = "lists its own descriptors"

const librariesLie = "names of links are read where the linker looks too; nothing is opened"

const fixedProgram = "hooks have no PATH, and a search through one is what an attacker hopes for"

func quoted(s string) string { return strconv.Quote(s) }

// excepted says whether a breach is meant, and notes in used that its exception is needed.
func excepted(rule, dir, what string, used []bool) bool {
	for i, e := range exceptions {
		if e.rule == rule && e.dir == dir && e.what == what {
			used[i] = true
			return true
		}
	}
	return false
}
