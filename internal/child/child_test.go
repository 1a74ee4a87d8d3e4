package child

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/frozen"
)

const (
	longTimeout  = time.Minute // never reached
	shortTimeout = time.Second // always reached
)

func expect(t *testing.T, res Result, want Outcome) {
	t.Helper()
	if res.Outcome != want {
		t.Fatalf("outcome %s, want %s: %+v\nstdout %.200q\nstderr %.400q", res.Outcome, want, res, res.Stdout,
			res.Stderr)
	}
}

// gone waits until a process that is not ours has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	for {
		st, err := readStat("/proc", pid)
		if err != nil || st.dead() {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func pids(t *testing.T, out []byte) (list []int) {
	t.Helper()
	for _, f := range strings.Fields(string(out)) {
		if n, err := strconv.Atoi(f); err == nil {
			list = append(list, n)
		}
	}
	return list
}

func TestExited(t *testing.T) {
	s := self("echo")
	s.Stdin = bytes.Repeat([]byte("request\n"), 60000) // more than a pipe holds, both ways
	res := Run(s)
	expect(t, res, Exited)
	if !bytes.Equal(res.Stdout, s.Stdin) {
		t.Errorf("answer has %d bytes, want %d", len(res.Stdout), len(s.Stdin))
	}
	if res.Err != nil || res.ExitCode != 0 || res.PID <= 1 || res.StartTicks == 0 || res.Took <= 0 {
		t.Errorf("result %+v", res)
	}
	if Alive("/proc", res.PID, res.StartTicks) {
		t.Error("a reaped child is alive")
	}
}

func TestEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		op   string
		edit func(*Spec)
		want Result // of what it says where it says something
		kept int    // bytes of its answer
	}{
		"exit code": {"exit", func(s *Spec) { s.Args = append(s.Args, "41") }, Result{Outcome: Exited, ExitCode: 41},
			0},
		"crash": {"killed", func(*Spec) {}, Result{Outcome: Crashed, Signal: syscall.SIGKILL}, 0},
		"hung on an unread request": {"sleep", func(s *Spec) {
			s.Stdin, s.Timeout = make([]byte, 1<<20), shortTimeout
		}, Result{Outcome: Hung, Signal: syscall.SIGKILL}, 0},
		"flood": {"flood", func(s *Spec) { s.MaxOutput = 1000 },
			Result{Outcome: Flooded, Signal: syscall.SIGKILL}, 1000},
		"as much as is kept": {"echo", func(s *Spec) { s.Stdin, s.MaxOutput = []byte("12345"), 5 },
			Result{Outcome: Exited}, 5},
		"hangs": {"sleep", func(s *Spec) { s.Timeout = shortTimeout },
			Result{Outcome: Hung, Signal: syscall.SIGKILL}, 0},
		"hangs, ignores signals": {"deaf", func(s *Spec) { s.Timeout = shortTimeout },
			Result{Outcome: Hung, Signal: syscall.SIGKILL}, 0},
		"hangs, stopped": {"stop", func(s *Spec) { s.Timeout = shortTimeout },
			Result{Outcome: Hung, Signal: syscall.SIGKILL}, 0},
		"request closed unread": {"early", func(s *Spec) { s.Stdin = make([]byte, 1<<20) },
			Result{Outcome: Exited}, len("answer")},
		"stderr is cut": {"diag", func(*Spec) {}, Result{Outcome: Exited, Stderr: make([]byte, maxStderr)},
			len("done")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := self(tt.op)
			tt.edit(&s)
			res := Run(s)
			expect(t, res, tt.want.Outcome)
			if res.ExitCode != tt.want.ExitCode || res.Signal != tt.want.Signal || res.Err != nil {
				t.Errorf("got exit code %d, signal %d, %v, want %d, %d", res.ExitCode, res.Signal, res.Err,
					tt.want.ExitCode, tt.want.Signal)
			}
			if len(res.Stdout) != tt.kept || len(res.Stderr) != len(tt.want.Stderr) {
				t.Errorf("got %d and %d bytes, want %d and %d", len(res.Stdout), len(res.Stderr), tt.kept,
					len(tt.want.Stderr))
			}
		})
	}
}

// One byte more than is kept is a flood; whether the child ends or is killed first is not.
func TestFloodedByOneByte(t *testing.T) {
	s := self("echo")
	s.Stdin, s.MaxOutput = []byte("12345"), 4
	expect(t, Run(s), Flooded)
}

func TestNotStarted(t *testing.T) {
	none := self("echo")
	none.Path = "/nonexistent/backend"
	relative := self("echo")
	relative.Path = "echo"
	late := self("echo")
	late.Timeout = 0
	negative := self("echo")
	negative.MaxOutput = -1
	folder := self("echo")
	folder.Path = t.TempDir()
	for name, s := range map[string]Spec{
		"missing": none, "relative": relative, "no time": late, "negative": negative, "folder": folder,
	} {
		t.Run(name, func(t *testing.T) {
			res := Run(s)
			expect(t, res, NotStarted)
			if res.Err == nil || res.PID != 0 {
				t.Errorf("error %v, pid %d; want an error and no pid", res.Err, res.PID)
			}
		})
	}
}

// A program on a file system that answers late is started when nobody listens any more.
func TestLateStartIsKilled(t *testing.T) {
	path := fifo(t)
	p, err := openPipes()
	ok(t, err)
	defer p.closeOurs()
	c := &process{born: make(chan birth), ended: make(chan error), disown: make(chan struct{})}
	close(c.disown)
	done := make(chan struct{})
	go func() { c.live(self("unkillable", path), p); close(done) }()
	<-done // reaped although it would have waited for a reader of the FIFO for ever
}

func TestChildIsOnItsOwn(t *testing.T) {
	t.Setenv("LD_PRELOAD_CANARY", "1")
	s := self("report")
	for env, want := range map[string]string{"": "env 0 ", "GIVEN=yes": "env 1 yes"} {
		if s.Env = nil; env != "" {
			s.Env = []string{env}
		}
		res := Run(s)
		expect(t, res, Exited)
		want = "leader true true\ncwd /\n" + want + "\nname " + filepath.Base(os.Args[0]) + "\n"
		if string(res.Stdout) != want {
			t.Errorf("child saw:\n%swant:\n%s", res.Stdout, want)
		}
	}
}

// What a child can reach, seen through /proc: three pipes, although the parent holds a lock and an inherited
// descriptor that are not close-on-exec. The child is no Go program, for those open descriptors of their own.
func TestChildHoldsOnlyThreePipes(t *testing.T) {
	leakFile(t)
	p, err := openPipes()
	ok(t, err)
	c := launch(Spec{Path: "/bin/cat"}, p)
	b := <-c.born
	if b.err != nil {
		t.Fatal(b.err)
	}
	if _, err := p.stdin.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.stdout.Read(make([]byte, 1)); err != nil { // it runs
		t.Fatal(err)
	}
	folder := "/proc/" + strconv.Itoa(b.pid) + "/fd"
	list, err := os.ReadDir(folder)
	ok(t, err)
	var got []string
	for _, e := range list {
		target, _ := os.Readlink(filepath.Join(folder, e.Name()))
		got = append(got, e.Name()+" "+strings.SplitN(target, ":", 2)[0])
	}
	if want := "0 pipe,1 pipe,2 pipe"; strings.Join(got, ",") != want {
		t.Errorf("child holds %v, want %s", got, want)
	}
	p.closeOurs()
	ok(t, <-c.ended)
	if _, err := reap(b.pid); err != nil {
		t.Fatal(err)
	}
}

func leakFile(t *testing.T) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "lock")
	ok(t, err)
	t.Cleanup(func() { f.Close() })
	ok(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
}

func TestSealDescriptors(t *testing.T) {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	ok(t, err)
	defer unix.Close(fd)
	ok(t, SealDescriptors())
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags != unix.FD_CLOEXEC {
		t.Errorf("flags %d, %v; want close-on-exec", flags, err)
	}
	if flags, err := unix.FcntlInt(1, unix.F_GETFD, 0); err != nil || flags != 0 {
		t.Errorf("flags of stdout %d, %v; want none", flags, err)
	}
}

// A process left behind with the answer's pipe delays nobody, and does not survive in the child's group.
func TestHeirOfThePipe(t *testing.T) {
	t.Run("in the group", func(t *testing.T) {
		res := Run(self("heir", "inside"))
		expect(t, res, Exited)
		gone(t, pids(t, res.Stdout)[0])
	})
	t.Run("outside", func(t *testing.T) {
		res := Run(self("heir", "outside"))
		expect(t, res, Exited)
		pid := pids(t, res.Stdout)[0]
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Errorf("the heir should still have been there: %v", err)
		}
	})
}

func TestGroupIsKilled(t *testing.T) {
	s := self("swarm")
	s.MaxOutput = 4 << 10
	res := Run(s)
	expect(t, res, Flooded)
	list := pids(t, res.Stdout)
	if len(list) != 20 {
		t.Fatalf("%d processes in the swarm, want 20", len(list))
	}
	for _, pid := range list {
		gone(t, pid)
	}
}

func TestHoldStdin(t *testing.T) {
	s := self("untilhangup", filepath.Join(t.TempDir(), "mark"))
	s.HoldStdin, s.Timeout = true, shortTimeout
	expect(t, Run(s), Hung)
	s.HoldStdin, s.Timeout = false, longTimeout
	expect(t, Run(s), Exited)
}

// What dies late, but within its grace, is not abandoned.
func TestGrace(t *testing.T) {
	path := fifo(t)
	s := self("unkillable", path)
	s.MaxOutput, s.Grace = 64, longTimeout
	results := make(chan Result, 1)
	go func() { results <- Run(s) }()
	end, err := os.Open(path)
	ok(t, err)
	defer end.Close()
	var tracer int
	if _, err := fmt.Fscan(end, &tracer); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(tracer, unix.SIGKILL) })
	select {
	case res := <-results:
		t.Fatalf("given up: %+v", res.Outcome)
	case <-time.After(2 * grace):
	}
	ok(t, unix.Kill(tracer, unix.SIGKILL))
	expect(t, <-results, Flooded)
}

func TestAbandoned(t *testing.T) {
	path := fifo(t)
	s := self("unkillable", path)
	s.MaxOutput = 64
	results := make(chan Result, 1)
	go func() { results <- Run(s) }()
	end, err := os.Open(path)
	ok(t, err)
	defer end.Close()

	res := <-results
	tracer := pids(t, res.Stdout)[0]
	t.Cleanup(func() { _ = unix.Kill(tracer, unix.SIGKILL) })
	expect(t, res, Abandoned)
	if !Alive("/proc", res.PID, res.StartTicks) {
		t.Error("an abandoned child that still is there is not alive")
	}
	if Alive("/proc", res.PID, res.StartTicks+1) {
		t.Error("another process of the same number is taken for the child")
	}
	ok(t, unix.Kill(tracer, unix.SIGKILL))
	if _, err := io.Copy(io.Discard, end); err != nil { // ends with the child
		t.Fatal(err)
	}
	gone(t, res.PID)
	for Alive("/proc", res.PID, res.StartTicks) {
		time.Sleep(time.Millisecond)
	}
}

// The running program is started again even when its file is gone or replaced.
func TestSelfSurvivesUpgrade(t *testing.T) {
	exe, err := os.Executable()
	ok(t, err)
	copied := filepath.Join(t.TempDir(), "hook")
	ok(t, exec.Command("/bin/cp", exe, copied).Run())
	out, err := exec.Command(copied, "--child", "upgrade").CombinedOutput()
	if err != nil || string(out) != "exited " {
		t.Errorf("got %q, %v", out, err)
	}
}

// Whoever waits for a child's first words hears of them while it goes on.
func TestOnLines(t *testing.T) {
	heard, calls := make(chan struct{}), 0
	done := make(chan Result)
	go func() {
		done <- Run(Spec{
			Path: "/bin/sh", Args: []string{"-c", "echo one; printf two; echo; sleep 0.2"}, MaxOutput: 4 << 10,
			Timeout: time.Minute,
			Lines:   2, OnLines: func() { calls++; close(heard) },
		})
	}()
	select {
	case <-heard:
	case res := <-done:
		t.Fatalf("ended unheard: %+v", res)
	}
	if res := <-done; string(res.Stdout) != "one\ntwo\n" || calls != 1 {
		t.Errorf("%q, called %d times, %v", res.Stdout, calls, res.Err)
	}
}

// A child that has answered is not waited for to its deadline when it does not end, and what it said stands.
func TestAnsweredAndStays(t *testing.T) {
	res := Run(Spec{Path: "/bin/sh", Args: []string{"-c", "echo answer; exec /bin/sleep 1000"}, MaxOutput: 100,
		OneLine: true, Timeout: time.Hour})
	expect(t, res, Hung)
	if string(res.Stdout) != "answer\n" || res.Signal != syscall.SIGKILL {
		t.Errorf("%q, %v", res.Stdout, res.Signal)
	}
	res = Run(Spec{Path: "/bin/sh", Args: []string{"-c", "echo answer"}, MaxOutput: 100, OneLine: true,
		Timeout: time.Hour})
	if expect(t, res, Exited); string(res.Stdout) != "answer\n" {
		t.Errorf("%q", res.Stdout)
	}
}

// A child that has answered and is slow to die, as on a busy machine, is waited for as long as it has time: only one
// that sleeps so that no signal wakes it is given up at once.
func TestAnsweredAndDiesSlowly(t *testing.T) {
	path := fifo(t)
	s := self("unkillable", path)
	s.MaxOutput, s.OneLine, s.Timeout = 64, true, 2*time.Second
	results := make(chan Result, 1)
	go func() { results <- Run(s) }()
	end, err := os.Open(path)
	ok(t, err)
	defer end.Close()
	res := <-results
	tracer := pids(t, res.Stdout)[0]
	t.Cleanup(func() { _ = unix.Kill(tracer, unix.SIGKILL) })
	if expect(t, res, Abandoned); res.Took < s.Timeout {
		t.Errorf("given up after %v of %v", res.Took, s.Timeout)
	}
}

// A child that has answered and sleeps in the kernel for a moment only, as the end of a process may, is not abandoned.
func TestAnsweredAndNaps(t *testing.T) {
	long := maxNap
	t.Cleanup(func() { maxNap = long })
	maxNap = longTimeout
	disk := frozen.New(t, filepath.Join(t.TempDir(), "disk"))
	disk.Freeze()
	res := Run(Spec{
		Path: "/bin/sh", Args: []string{"-c", "echo answer; echo more > " + disk.Dir + "/file"}, MaxOutput: 100,
		OneLine: true, Timeout: longTimeout,
		Started: func(int, uint64) { time.AfterFunc(4*grace, disk.Thaw) },
	})
	if expect(t, res, Hung); string(res.Stdout) != "answer\n" {
		t.Errorf("%q", res.Stdout)
	}
}
