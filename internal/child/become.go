package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
)

// ErrRefused means that the ids are not a user's, or that a descriptor is open.
var ErrRefused = errors.New("refusing to become")

// Become makes every thread of the process run as uid and gid, with exactly these groups and no capabilities,
// permanently, and verifies it. It refuses if any descriptor other than 0 to 2 is open. After an error the process must
// exit and do nothing for the user. Become is meant for a short-lived child that holds only its three pipes: the hook's
// own binary started again. No program is executed afterwards: one started as the user (SysProcAttr.Credential) would
// be dumpable again and so traceable by the user, who could then answer root in its name.
//
// The order matters: no_new_privs first, so that nothing gained later survives; groups, gid and uid while CAP_SETGID
// and CAP_SETUID are held; the capabilities, which a securebit could have kept, last. Linux keeps all of these per
// thread, and package unix would change the calling thread only. The bounding set stays: it limits what a program gains
// as it is executed, which is nothing with no_new_privs, and to drop it stops all threads once for each capability.
func Become(uid, gid uint32, groups []uint32) error {
	if err := errors.Join(plainIDs(uid, gid, groups), holdsNothing(descriptors)); err != nil {
		return err
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"set limits", limit},
		{"set no_new_privs", func() error { return prctlAll(unix.PR_SET_NO_NEW_PRIVS, 1) }},
		{"set groups", func() error { return syscall.Setgroups(ints(groups)) }},
		{"set gid", func() error { return syscall.Setresgid(int(gid), int(gid), int(gid)) }},
		{"set uid", func() error { return syscall.Setresuid(int(uid), int(uid), int(uid)) }},
		{"drop capabilities", dropCapabilities},
		// After the ids: changing them resets it to fs.suid_dumpable, which an admin may have set to 1.
		{"set undumpable", func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("become user %d: %s: %w", uid, s.what, err)
		}
	}
	if err := prove(uid, gid, groups); err != nil {
		return fmt.Errorf("become user %d: %w", uid, err)
	}
	return nil
}

func plainIDs(uid, gid uint32, groups []uint32) error {
	for _, id := range append([]uint32{uid, gid}, groups...) {
		if id == 0 || id == noID {
			return fmt.Errorf("%w user %d, group %d, groups %v", ErrRefused, uid, gid, groups)
		}
	}
	if len(groups) > maxGroups {
		return fmt.Errorf("%w user %d: %d groups", ErrRefused, uid, len(groups))
	}
	return nil
}

// pending is how long descriptors may stay open: an abandoned lookup that had not started yet, as on a node with many
// hooks at once, still has some. The second for an append has room for this and lookupTimeout.
const pending = 300 * time.Millisecond

// holdsNothing refuses to carry one of root's descriptors over to the user's side.
func holdsNothing(open func() ([]int, error)) error {
	const pause = 10 * time.Millisecond
	fds, err := open()
	for waited := time.Duration(0); err == nil && len(fds) > 0 && waited < pending; waited += pause {
		time.Sleep(pause)
		fds, err = open()
	}
	if err != nil || len(fds) > 0 {
		return errors.Join(fmt.Errorf("%w anybody: descriptors %v are open", ErrRefused, fds), err)
	}
	return nil
}

// maxFiles is how many files the process may have open as the user: it opens one after another.
const maxFiles = 64

// limit forbids core files and lifts the process limit, with which a user could starve Go's runtime of threads.
func limit() error {
	var processes unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NPROC, &processes)
	return errors.Join(err,
		unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: processes.Max, Max: processes.Max}),
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
		unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: maxFiles, Max: maxFiles}),
	)
}

func ints(ids []uint32) []int {
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = int(id)
	}
	return out
}

// prctlAll calls prctl on every thread. It works only in a program without cgo, which all hooks are.
func prctlAll(option int, arg uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, uintptr(option), arg, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	// AllThreadsSyscall keeps what its arguments point to in place (go:uintptrescapes).
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// prove fails unless every thread runs as the user, can never run as another again, and is not traced.
func prove(uid, gid uint32, groups []uint32) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("prove: %w", err)
	}
	for _, t := range tasks {
		status, err := os.ReadFile("/proc/self/task/" + t.Name() + "/status")
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err == nil {
			err = proveThread(string(status), uid, gid, groups)
		}
		if err != nil {
			return fmt.Errorf("prove: thread %s: %w", t.Name(), err)
		}
	}
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || dumpable != 0 {
		return fmt.Errorf("prove: dumpable is %d, %v", dumpable, err)
	}
	return nil
}

// proveThread checks for the required lines in /proc/PID/task/TID/status.
func proveThread(status string, uid, gid uint32, groups []uint32) error {
	all := "Groups:\t"
	for _, g := range slices.Sorted(slices.Values(groups)) { // the kernel lists them sorted
		all += fmt.Sprint(g, " ")
	}
	// TracerPid: if fs.suid_dumpable is 1, the user could have attached before the process became undumpable.
	want := []string{
		fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d", uid), fmt.Sprintf("Gid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d", gid),
		strings.TrimSpace(all), "NoNewPrivs:\t1", "TracerPid:\t0",
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		want = append(want, set+":\t0000000000000000")
	}
	has := map[string]bool{}
	for line := range strings.Lines(status) {
		has[strings.TrimSpace(line)] = true
	}
	for _, line := range want {
		if !has[line] {
			return fmt.Errorf("its status has no line %q", line)
		}
	}
	return nil
}

// umask lets files have the modes with which they are created: slurmd's own may be 0 or 077, which are both wrong.
const umask = 0o022

// Confine makes a root process give up, permanently, what slurmd's environment left it with and no hook needs:
// descriptors above 2 (with Slurm up to 21.08, all that slurmd has open); memory that others may read, trace or find in
// a core file; and files writable by others. Children started later inherit the result, so nothing is given up
// that a vendor's driver may need. An error says what could not be given up; the rest was. Call it first in a process.
func Confine() error {
	unix.Umask(umask)
	err := errors.Join(
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0),
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
		eachDescriptor(func(fd int) error {
			// Descriptors that Go's runtime or this process opened are close-on-exec, and so not inherited.
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			if err == nil && flags&unix.FD_CLOEXEC == 0 {
				err = unix.Close(fd)
			}
			return err
		}))
	if err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	return nil
}

// eachDescriptor calls do for each open descriptor above 2.
func eachDescriptor(do func(fd int) error) error {
	fds, err := descriptors()
	for _, fd := range fds {
		if wrong := do(fd); wrong != nil && !errors.Is(wrong, unix.EBADF) { // EBADF: closed meanwhile
			err = errors.Join(err, fmt.Errorf("descriptor %d: %w", fd, wrong))
		}
	}
	return err
}

// poller is how /proc names the descriptors of Go's poller: epoll, and an eventfd to wake it.
const poller = "anon_inode:[event"

// descriptors lists the open descriptors above 2 except Go's poller. go.mod keeps Go's runtime from opening others.
func descriptors() (fds []int, err error) {
	// Threat: none, the kernel's own list of this process's descriptors.
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("list descriptors: %w", err)
	}
	for _, e := range list {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		// The descriptor of the listing itself is closed by now.
		if open, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(open, poller) {
			fds = append(fds, fd)
		}
	}
	return fds, nil
}

const (
	lookupTimeout   = 500 * time.Millisecond // a name service that hangs costs half of an append's second
	maxLookupOutput = 256 << 10              // about 23,000 groups of 10 digits
	maxGroups       = 1 << 16                // NGROUPS_MAX since Linux 2.6.4
)

// noID means "leave unchanged" to setresuid and similar calls, so it is not a valid id.
const noID = ^uint32(0)

// lookups and accounts print a user's groups, and a user's line, from the system's name service: a hook has no NSS.
var (
	lookups  = []string{"/usr/bin/id", "/bin/id"}
	accounts = []string{"/usr/bin/getent", "/bin/getent"}
)

// lookUp returns what one of the programs prints; ok is false if there is none or it fails. Threat: a program that
// another user could have put there would run as root; a name could be taken for an option, or for another user's
// number.
func lookUp(programs []string, args ...string) (text string, ok bool) {
	at := slices.IndexFunc(programs, func(path string) bool { return safefile.Trusted(path) == nil })
	if at < 0 {
		return "", false
	}
	res := Run(Spec{Path: programs[at], Args: args, MaxOutput: maxLookupOutput, Timeout: lookupTimeout})
	return string(res.Stdout), res.Outcome == Exited && res.ExitCode == 0
}

// Groups returns a user's groups from the system's name service, the primary gid first. It returns gid only if there is
// no answer within half a second. Group 0 is left out: no rights of root's group are needed.
func Groups(uid, gid uint32) []uint32 {
	text, ok := lookUp(lookups, "-G", fmt.Sprint("+", uid)) // with the plus sign, id(1) accepts only a number
	if !ok {
		return []uint32{gid}
	}
	return groupsIn(text, gid)
}

// Home returns a user's home by the system's name service. Only root may ask: see Become. The caller checks the path.
func Home(uid uint32) (string, error) {
	// Threat: a user traces a program that runs as them, and so has a process outside the limits of their jobs.
	if os.Geteuid() != 0 {
		return "", fmt.Errorf("%w: find home: a program would run as user %d", ErrRefused, os.Geteuid())
	}
	text, ok := lookUp(accounts, "passwd", fmt.Sprint(uid))
	fields := strings.Split(strings.TrimSuffix(text, "\n"), ":")
	if !ok || len(fields) != 7 || fields[2] != fmt.Sprint(uid) {
		return "", fmt.Errorf("find home of uid %d: no account", uid)
	}
	return fields[5], nil
}

// groupsIn parses one line of decimal group ids, the primary one first; any other text yields the primary one only.
func groupsIn(out string, gid uint32) []uint32 {
	line, only := strings.TrimSuffix(out, "\n"), []uint32{gid}
	all := slices.Clone(only)
	for f := range strings.FieldsSeq(line) {
		g, err := strconv.ParseUint(f, 10, 32)
		if err != nil || uint32(g) == noID || strings.ContainsAny(line, "\n\x00") {
			return only
		}
		if g != 0 && !slices.Contains(all, uint32(g)) && len(all) < maxGroups {
			all = append(all, uint32(g))
		}
	}
	return all
}
