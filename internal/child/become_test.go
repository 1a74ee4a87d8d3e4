//go:build !race

// The race detector links cgo, with which a Go program cannot change all its threads; no hook has it.

package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/faultinject"
	"bookend/test/must"
)

const (
	uid = 65533
	gid = 65532
)

func become() error { return Become(uid, gid, []uint32{gid}) }

func init() {
	becoming = map[string]func(string) error{
		"become":    becomeAndTry,
		"again":     func(string) error { return errors.Join(become(), worked(Become(uid+1, gid, []uint32{gid}))) },
		"inherited": becomeWithInheritedCapabilities,
		"limited":   becomeOneOfTooMany,
		"holding":   becomeHoldingAFile,
		"regain":    becomeAndRegain,
		"step":      becomeWithout,
		"confined":  confined,
		"traced": func(string) error {
			err := become()
			fmt.Println("ready")
			_, _ = os.Stdin.Read(make([]byte, 1))
			return err
		},
	}
}

func worked(err error) error {
	if err == nil {
		return errors.New("it worked")
	}
	return nil
}

// manyThreads keeps n threads of their own; each then looks at itself when asked.
func manyThreads(n int, look func() error) (ask func() error) {
	start, answers := make(chan struct{}), make(chan error)
	ready := make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			ready <- struct{}{}
			<-start
			answers <- look()
		}()
		<-ready
	}
	return func() (err error) {
		close(start)
		for range n {
			err = errors.Join(err, <-answers)
		}
		return err
	}
}

func becomeAndTry(string) error {
	look := func() error {
		r, e, s := unix.Getresuid()
		rg, eg, sg := unix.Getresgid()
		if r != uid || e != uid || s != uid || rg != gid || eg != gid || sg != gid {
			return fmt.Errorf("thread %d is %d:%d", unix.Gettid(), e, eg)
		}
		if _, err := os.ReadFile("/etc/shadow"); !errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("thread %d reads /etc/shadow: %v", unix.Gettid(), err)
		}
		return errors.Join(worked(unix.Setuid(0)), worked(unix.Setgid(0)), worked(unix.Setgroups([]int{0})))
	}
	ask := manyThreads(12, look)
	if err := Become(uid, gid, []uint32{gid, 7, 5}); err != nil {
		return err
	}
	groups, err := unix.Getgroups()
	if err != nil || !slices.Equal(groups, []int{5, 7, gid}) {
		return fmt.Errorf("groups %v, %v", groups, err)
	}
	later := manyThreads(2, look) // threads made afterwards
	return errors.Join(look(), ask(), later())
}

func becomeWithInheritedCapabilities(string) error {
	runtime.LockOSThread()
	// SECBIT_NO_SETUID_FIXUP: this thread keeps its capabilities
	return errors.Join(unix.Prctl(unix.PR_SET_SECUREBITS, 1<<2, 0, 0, 0), become())
}

// becomeAndRegain begins with all capabilities inheritable and one ambient, as a service manager may leave them, and
// keeps the bounding set: no set gives anything back, to the process itself or to a program that it executes.
func becomeAndRegain(path string) error {
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps, none [2]unix.CapUserData
	err := unix.Capget(&header, &caps[0])
	caps[0].Inheritable, caps[1].Inheritable = caps[0].Permitted, caps[1].Permitted
	err = errors.Join(err, unix.Capset(&header, &caps[0]),
		unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SETUID, 0, 0))
	groups := []uint32{gid}
	for g := range uint32(200) {
		groups = append(groups, 100_000+g)
	}
	if err = errors.Join(err, Become(uid, gid, groups)); err != nil {
		return err
	}
	inheritable, permitted := none, none
	inheritable[0].Inheritable, permitted[0].Permitted = 1<<unix.CAP_SETUID, 1<<unix.CAP_SETUID
	status, err := exec.Command(path, "/proc/self/status").Output()
	for _, want := range []string{"Uid:\t65533\t65533\t65533\t65533\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n"} {
		if !strings.Contains(string(status), want) {
			err = errors.Join(err, fmt.Errorf("a program has no %q: %s", want, status))
		}
	}
	return errors.Join(err, worked(unix.Capset(&header, &inheritable[0])), worked(unix.Capset(&header, &permitted[0])),
		worked(unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SETUID, 0, 0)),
		worked(unix.Setresuid(-1, 0, -1)), worked(unix.Kill(os.Getppid(), 0)),
		worked(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)))
}

// powerful is a program that gives who executes it root's user id, and another that gives capabilities.
func powerful(t *testing.T) (paths []string) {
	cat := must.Have(os.ReadFile("/bin/cat"))(t)
	dir := must.RootsDir(t)
	must.Do(t, os.Chmod(dir, 0o755))
	for _, name := range []string{"setuid", "capable"} {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, cat, 0o755))
		paths = append(paths, path)
	}
	// VFS_CAP_REVISION_2, effective: CAP_SETUID is permitted and inheritable
	all := append([]byte{1, 0, 0, 2}, slices.Repeat([]byte{1 << unix.CAP_SETUID, 0, 0, 0}, 2)...)
	must.Do(t, errors.Join(os.Chmod(paths[0], 0o755|os.ModeSetuid),
		unix.Setxattr(paths[1], "security.capability", append(all, make([]byte, 8)...), 0)))
	return paths
}

// becomeOneOfTooMany has slurmd's limit of processes, which the user has reached: Go needs threads all the same.
func becomeOneOfTooMany(string) error {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit)
	limit.Cur = 1
	if err = errors.Join(err, unix.Setrlimit(unix.RLIMIT_NPROC, &limit), become()); err != nil {
		return err
	}
	return manyThreads(20, func() error { return nil })()
}

// becomeHoldingAFile has a file of root's open, which must not reach the user's side.
func becomeHoldingAFile(string) error {
	secret, err := os.Open("/etc/shadow")
	if err != nil {
		return err
	}
	defer secret.Close()
	if err := become(); !errors.Is(err, ErrRefused) || os.Geteuid() != 0 {
		return fmt.Errorf("it became %d: %v", os.Geteuid(), err)
	}
	return nil
}

// opening is an open of a file, or of a directory, as package os does it.
func opening(errno unix.Errno, flags uint32) faultinject.Filter {
	return call(unix.SYS_OPENAT, errno, faultinject.Arg{Index: 2, Is: unix.O_CLOEXEC | flags})
}

func call(number uintptr, errno unix.Errno, when ...faultinject.Arg) faultinject.Filter {
	return faultinject.Filter{Number: number, Errno: errno, When: when}
}

func prctl(errno unix.Errno, option uint32) faultinject.Filter {
	return call(unix.SYS_PRCTL, errno, faultinject.Arg{Index: 0, Is: option})
}

func limiting(what uint32) faultinject.Filter {
	return call(unix.SYS_PRLIMIT64, unix.EPERM, faultinject.Arg{Index: 1, Is: what})
}

// steps are what the kernel, or a sandbox around the process, can refuse on the way to the user.
var steps = map[string]faultinject.Filter{
	"descriptors":       opening(unix.ENFILE, unix.O_DIRECTORY),
	"process limit":     limiting(unix.RLIMIT_NPROC),
	"core files":        limiting(unix.RLIMIT_CORE),
	"open files":        limiting(unix.RLIMIT_NOFILE),
	"no_new_privs":      prctl(unix.EINVAL, unix.PR_SET_NO_NEW_PRIVS),
	"groups":            call(unix.SYS_SETGROUPS, unix.EPERM),
	"gid":               call(unix.SYS_SETRESGID, unix.EAGAIN),
	"uid":               call(unix.SYS_SETRESUID, unix.EAGAIN), // the user has as many processes as he may
	"capabilities":      call(unix.SYS_CAPSET, unix.EPERM),
	"undumpable":        prctl(unix.EINVAL, unix.PR_SET_DUMPABLE),
	"proof of threads":  opening(unix.EACCES, 0),
	"proof of dumpable": prctl(unix.EINVAL, unix.PR_GET_DUMPABLE),
}

// becomeWithout is refused a step: a half user is never taken for one.
func becomeWithout(step string) error {
	if err := faultinject.RefuseAll(steps[step]); err != nil {
		return err
	}
	if err := become(); err == nil || !strings.Contains(err.Error(), steps[step].Errno.Error()) {
		return fmt.Errorf("Become says %v", err)
	}
	return nil
}

// confined starts with what nobody should have, and looks at what is left of it.
func confined(string) error {
	unix.Umask(0)
	if fds, err := descriptors(); err != nil || len(fds) < 3 {
		return fmt.Errorf("it began with descriptors %v, %v", fds, err)
	}
	kept, err := os.Open("/proc/self/stat") // close-on-exec: its own
	if err = errors.Join(err, Confine()); err != nil {
		return err
	}
	var core unix.Rlimit
	err = unix.Getrlimit(unix.RLIMIT_CORE, &core)
	dumpable, err2 := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	mask := unix.Umask(0)
	fds, err3 := descriptors()
	if err := errors.Join(err, err2, err3); err != nil || core.Cur != 0 || core.Max != 0 || dumpable != 0 ||
		mask != umask || !slices.Equal(fds, []int{int(kept.Fd())}) {
		return fmt.Errorf("core files of %d bytes, dumpable %d, umask %#o, descriptors %v: %v", core.Cur, dumpable, mask,
			fds, err)
	}
	return nil
}

func TestBecome(t *testing.T) {
	ops := [][]string{{"become"}, {"again"}, {"inherited"}, {"limited"}, {"holding"}}
	for step := range steps {
		ops = append(ops, []string{"step", step})
	}
	for _, path := range powerful(t) {
		ops = append(ops, []string{"regain", path})
	}
	for _, op := range ops {
		res := Run(self(op[0], op[1:]...))
		must.Not(t, res.Outcome != Exited || res.ExitCode != 0,
			"%q: %s, exit code %d: %s", op, res.Outcome, res.ExitCode, res.Stderr)
	}
}

func TestBecomeRefuses(t *testing.T) {
	for name, err := range map[string]error{
		"root":          Become(0, gid, []uint32{gid}),
		"root's group":  Become(uid, 0, []uint32{gid}),
		"group of root": Become(uid, gid, []uint32{gid, 0}),
		"no uid":        Become(noID, gid, nil),
		"no gid":        Become(uid, noID, nil),
		"no group":      Become(uid, gid, []uint32{noID}),
		"too many":      Become(uid, gid, slices.Repeat([]uint32{1}, maxGroups+1)),
	} {
		must.Fail(t, name, err, ErrRefused)
	}
	if os.Geteuid() != 0 {
		t.Fatal("the test process itself became somebody else")
	}
}

const goodStatus = "Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t5 8 \n" +
	"CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n" +
	"CapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nTracerPid:\t0\n"

// The proof fails for a thread that is not all the user's, and for a process that is still root or says nothing.
func TestProof(t *testing.T) {
	must.Do(t, proveThread(goodStatus, 7, 8, []uint32{8, 5}))
	for _, change := range []string{
		"Uid:\t7\t7\t7\t7|Uid:\t7\t7\t7\t0", "Uid:\t7\t7\t7\t7|Uid:\t0\t7\t7\t7", "Gid:\t8|Gid:\t9", "5 8|0 5 8", "5 8|8",
		"CapInh:\t0|CapInh:\t1", "CapPrm:\t0|CapPrm:\t1", "CapEff:\t0|CapEff:\t1",
		"CapAmb:\t0|CapAmb:\t1", "NoNewPrivs:\t1|NoNewPrivs:\t0", "NoNewPrivs:\t1\n|", "TracerPid:\t0|TracerPid:\t7",
	} {
		old, now, _ := strings.Cut(change, "|")
		if err := proveThread(strings.Replace(goodStatus, old, now, 1), 7, 8, []uint32{8, 5}); err == nil {
			t.Errorf("%q passes", change)
		}
	}
	for errno, want := range map[unix.Errno]string{0: "thread", unix.EIO: "input/output error",
		unix.ENOENT: "dumpable"} { // each thread has ended
		calls := []faultinject.Filter{opening(errno, 0)}
		if errno == 0 {
			calls = nil
		}
		var err error
		must.Do(t, faultinject.Refuse(calls, func() { err = prove(uid, gid, []uint32{gid}) }))
		must.Not(t, err == nil || !strings.Contains(err.Error(), want), "got %v, want %q", err, want)
	}
}

// The user cannot get at the process that writes for him: its memory and descriptors stay root's.
func TestUserCannotTrace(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "--child", "traced")
	in := must.Have(cmd.StdinPipe())(t)
	out, err := cmd.StdoutPipe()
	must.Do(t, errors.Join(err, SealDescriptors(), cmd.Start()))
	must.Have(out.Read(make([]byte, 6)))(t)
	var st unix.Stat_t
	if err := unix.Stat("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/mem", &st); err != nil || st.Uid != 0 {
		t.Errorf("owner of its memory is %d, %v; want root", st.Uid, err)
	}
	must.Do(t, errors.Join(in.Close(), cmd.Wait()))
}

// What a lookup that never started still has open goes with it; what stays open is root's.
func TestAwaitsWhatIsPending(t *testing.T) {
	left := 2
	closing := func() ([]int, error) {
		left--
		return make([]int, left), nil
	}
	must.Be(t, "closed in time", holdsNothing(closing), nil)
	must.Fail(t, "one that stays open", holdsNothing(func() ([]int, error) { return []int{7}, nil }), ErrRefused)
}

func TestConfine(t *testing.T) {
	file := must.Have(os.Create(filepath.Join(t.TempDir(), "another daemon's")))(t)
	cmd := exec.Command("/proc/self/exe", "--child", "confined")
	cmd.ExtraFiles = []*os.File{file, file, file}
	out, err := cmd.CombinedOutput()
	must.Not(t, err != nil, "%v: %s", err, out)
}
