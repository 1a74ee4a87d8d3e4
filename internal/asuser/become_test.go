//go:build !race

// The race detector links cgo, with which a Go program cannot change all its threads; no hook has it.

package asuser

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/internal/child"

	"golang.org/x/sys/unix"
)

const (
	uid = 65533
	gid = 65532
)

// The test binary started again plays the child that becomes a user; its exit code 0 means all went as said.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "--child" {
		os.Exit(m.Run())
	}
	var err error
	switch os.Args[2] {
	case "become":
		err = becomeAndTry()
	case "again":
		err = errors.Join(Become(uid, gid, []uint32{gid}), refused(Become(uid+1, gid, []uint32{gid})))
	case "inherited":
		err = becomeWithInheritedCapabilities()
	case "limited":
		err = becomeOneOfTooMany()
	case "holding":
		err = becomeHoldingAFile()
	case "confined":
		err = confined()
	case "traced":
		err = becomeAndWait()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func refused(err error) error {
	if err == nil {
		return errors.New("it worked")
	}
	return nil
}

// manyThreads keeps n threads of their own busy waiting; each then looks at itself when asked.
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

func becomeAndTry() error {
	look := func() error {
		r, e, s := unix.Getresuid()
		rg, eg, sg := unix.Getresgid()
		if r != uid || e != uid || s != uid || rg != gid || eg != gid || sg != gid {
			return fmt.Errorf("thread %d is %d:%d", unix.Gettid(), e, eg)
		}
		if _, err := os.ReadFile("/etc/shadow"); !errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("thread %d reads /etc/shadow: %v", unix.Gettid(), err)
		}
		return refused(unix.Setuid(0))
	}
	ask := manyThreads(12, look)
	if err := Become(uid, gid, []uint32{gid, 7, 5}); err != nil {
		return err
	}
	groups, err := unix.Getgroups()
	if err != nil || fmt.Sprint(groups) != fmt.Sprint([]int{5, 7, gid}) {
		return fmt.Errorf("groups %v, %v", groups, err)
	}
	later := manyThreads(2, look) // threads made afterwards
	return errors.Join(look(), ask(), later())
}

func becomeWithInheritedCapabilities() error {
	runtime.LockOSThread()
	// SECBIT_NO_SETUID_FIXUP: this thread keeps its capabilities
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, 1<<2, 0, 0, 0); err != nil {
		return err
	}
	return Become(uid, gid, []uint32{gid})
}

// becomeOneOfTooMany has slurmd's limit of processes, which the user has reached: Go needs threads all the same.
func becomeOneOfTooMany() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
		return err
	}
	limit.Cur = 1
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
		return err
	}
	if err := Become(uid, gid, []uint32{gid}); err != nil {
		return err
	}
	return manyThreads(20, func() error { return nil })()
}

// becomeHoldingAFile has a file of root's open, which must not reach the user's side.
func becomeHoldingAFile() error {
	secret, err := os.Open("/etc/shadow")
	if err != nil {
		return err
	}
	defer secret.Close()
	if err := Become(uid, gid, []uint32{gid}); !errors.Is(err, ErrRefused) || os.Geteuid() != 0 {
		return fmt.Errorf("it became %d: %v", os.Geteuid(), err)
	}
	return nil
}

func becomeAndWait() error {
	if err := Become(uid, gid, []uint32{gid}); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err := os.Stdin.Read(make([]byte, 1))
	if err != nil && err.Error() == "EOF" {
		return nil
	}
	return err
}

func self(op string) child.Spec {
	s := child.Self(op)
	s.MaxOutput, s.Timeout = 4<<10, time.Minute
	return s
}

func TestBecome(t *testing.T) {
	for _, op := range []string{"become", "again", "inherited", "limited", "holding"} {
		t.Run(op, func(t *testing.T) {
			res := child.Run(self(op))
			if res.Outcome != child.Exited || res.ExitCode != 0 {
				t.Errorf("%s, exit code %d: %s", res.Outcome, res.ExitCode, res.Stderr)
			}
		})
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
		"too many":      Become(uid, gid, slicesOf(1, maxGroups+1)),
	} {
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v, want %v", name, err, ErrRefused)
		}
	}
	if os.Geteuid() != 0 {
		t.Fatal("the test process itself became somebody else")
	}
}

func slicesOf(g uint32, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = g
	}
	return out
}

const goodStatus = "Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t5 8 \n" +
	"CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n" +
	"CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nTracerPid:\t0\n"

func TestProveThread(t *testing.T) {
	ok(t, proveThread(goodStatus, 7, 8, []uint32{8, 5}))
	for _, change := range []string{
		"Uid:\t7\t7\t7\t7|Uid:\t7\t7\t7\t0", "Uid:\t7\t7\t7\t7|Uid:\t0\t7\t7\t7", "Gid:\t8|Gid:\t9", "5 8|0 5 8",
		"5 8|8",
		"CapInh:\t0|CapInh:\t1", "CapPrm:\t0|CapPrm:\t1", "CapEff:\t0|CapEff:\t1", "CapBnd:\t0|CapBnd:\t1",
		"CapAmb:\t0|CapAmb:\t1", "NoNewPrivs:\t1|NoNewPrivs:\t0", "NoNewPrivs:\t1\n|", "TracerPid:\t0|TracerPid:\t7",
		"CapBnd:|CapXXX:",
	} {
		old, now, _ := strings.Cut(change, "|")
		if err := proveThread(strings.Replace(goodStatus, old, now, 1), 7, 8, []uint32{8, 5}); err == nil {
			t.Errorf("%q passes", change)
		}
	}
}

// The user cannot get at the process that writes for him: its memory and descriptors stay root's.
func TestUserCannotTrace(t *testing.T) {
	r, w, err := os.Pipe()
	ok(t, err)
	in, hold, err := os.Pipe()
	ok(t, err)
	defer hold.Close()
	p, err := os.StartProcess("/proc/self/exe", []string{"asuser", "--child", "traced"},
		&os.ProcAttr{Files: []*os.File{in, w, os.Stderr}})
	ok(t, err)
	w.Close()
	if _, err := r.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/"+strconv.Itoa(p.Pid)+"/mem", &st); err != nil || st.Uid != 0 {
		t.Errorf("owner of its memory is %d, %v; want root", st.Uid, err)
	}
	hold.Close()
	if state, err := p.Wait(); err != nil || !state.Success() {
		t.Errorf("child: %v, %v", state, err)
	}
}

// What a lookup that never started still has open goes with it; what stays open is root's.
func TestAwaitsWhatIsPending(t *testing.T) {
	left := 2
	closing := func() ([]int, error) {
		left--
		return make([]int, left), nil
	}
	if err := awaitNone(closing); err != nil {
		t.Errorf("closed in time: %v", err)
	}
	if err := awaitNone(func() ([]int, error) { return []int{7}, nil }); !errors.Is(err, ErrRefused) {
		t.Errorf("got %v, want %v", err, ErrRefused)
	}
}
