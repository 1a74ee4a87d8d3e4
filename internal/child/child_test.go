package child

import (
	"bufio"
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

	"bookend/internal/safefile"
	"bookend/test/faultinject"
	"bookend/test/must"
	"bookend/test/rig"
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

func TestEnds(t *testing.T) {
	s := self("echo") // one byte more than is kept is a flood; whether the child ends or is killed first is not
	s.Stdin, s.MaxOutput = []byte("12345"), 4
	expect(t, Run(s), Flooded)
	for name, tt := range map[string]struct {
		op   string
		edit func(*Spec)
		want Result // of what it says where it says something
		kept int    // bytes of its answer
	}{
		"more than a pipe holds, both ways": {"echo", func(s *Spec) { s.Stdin = bytes.Repeat([]byte("request\n"), 60000) },
			Result{Outcome: Exited}, 480000},
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
			must.Be(t, "exit code", res.ExitCode, tt.want.ExitCode)
			must.Be(t, "signal", res.Signal, tt.want.Signal)
			must.Do(t, res.Err)
			must.Not(t, len(res.Stdout) != tt.kept || len(res.Stderr) != len(tt.want.Stderr),
				"got %d and %d bytes, want %d and %d", len(res.Stdout), len(res.Stderr), tt.kept, len(tt.want.Stderr))
			must.Not(t, tt.op == "echo" && !bytes.HasPrefix(s.Stdin, res.Stdout), "the answer is another")
			must.Not(t, res.PID <= 1 || res.StartTicks == 0 || res.Took <= 0, "%+v", res)
			must.Be(t, "alive", Alive("/proc", res.PID, res.StartTicks), false)
		})
	}
}

// A child that goes on is heard line by line, keeps nothing, and ends when it is told to.
func TestLineByLine(t *testing.T) {
	s, stop, lines := self("lines"), make(chan struct{}), 0
	s.MaxOutput, s.Stop = 1<<20, stop
	s.OnLine = func([]byte) bool {
		if lines++; lines == 1000 {
			close(stop)
		}
		return true
	}
	res := Run(s)
	expect(t, res, Stopped)
	must.Not(t, lines < 1000 || len(res.Stdout) >= 1<<20, "%d lines, %d bytes kept", lines, len(res.Stdout))
	s = self("echo")
	var heard []string
	s.OnLine = func(line []byte) bool {
		heard = append(heard, string(line))
		return string(line) != "enough"
	}
	s.Stdin, s.MaxOutput = []byte("one\n\ntwo\nthr"), 6
	res = Run(s)
	expect(t, res, Exited)
	must.Be(t, "heard", append(heard, string(res.Stdout)), []string{"one", "", "two", "thr"})
	s.Stdin = []byte("one\nlonger than that\n")
	expect(t, Run(s), Flooded)
	heard, s.Stdin = nil, []byte("enough\nmore\n")
	expect(t, Run(s), Flooded)
	must.Be(t, "heard until it is enough", heard, []string{"enough"})
}

func TestNotStarted(t *testing.T) {
	for name, edit := range map[string]func(*Spec){
		"missing":   func(s *Spec) { s.Path = "/nonexistent/backend" },
		"relative":  func(s *Spec) { s.Path = "echo" },
		"no time":   func(s *Spec) { s.Timeout = 0 },
		"directory": func(s *Spec) { s.Path = t.TempDir() },
	} {
		s := self("echo")
		edit(&s)
		res := Run(s)
		must.Not(t, res.Outcome != NotStarted || res.Err == nil || res.PID != 0, "%s: got %+v", name, res)
	}
	var res Result
	refused(t, func() { res = Run(self("echo")) }, faultinject.Filter{Number: unix.SYS_PIPE2, Errno: unix.EMFILE})
	expect(t, res, NotStarted)
	must.Fail(t, "without descriptors", res.Err, unix.EMFILE)
}

// A program on a file system that answers late is started when nobody listens any more.
func TestLateStartIsKilled(t *testing.T) {
	path := fifo(t)
	p := must.Have(openPipes())(t)
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
		must.Not(t, string(res.Stdout) != want, "child saw:\n%swant:\n%s", res.Stdout, want)
	}
}

// What a child can reach, seen through /proc: three pipes, although the parent holds a descriptor
// that is not close-on-exec. The child is no Go program, for those open descriptors of their own.
func TestChildHoldsOnlyThreePipes(t *testing.T) {
	leaked := must.Have(unix.Open("/dev/null", unix.O_RDONLY, 0))(t)
	defer unix.Close(leaked)
	p := must.Have(openPipes())(t)
	c := launch(Spec{Path: "/bin/cat"}, p)
	b := <-c.born
	must.Do(t, b.err)
	must.Have(p.stdin.Write([]byte("x")))(t)
	must.Have(p.stdout.Read(make([]byte, 1)))(t)
	folder := "/proc/" + strconv.Itoa(b.pid) + "/fd"
	list := must.Have(os.ReadDir(folder))(t)
	var got []string
	for _, e := range list {
		target, _ := os.Readlink(filepath.Join(folder, e.Name()))
		got = append(got, e.Name()+" "+strings.SplitN(target, ":", 2)[0])
	}
	want := "0 pipe,1 pipe,2 pipe"
	must.Not(t, strings.Join(got, ",") != want, "child holds %v, want %s", got, want)
	must.Be(t, "flags of the parent's stdout", must.Have(unix.FcntlInt(1, unix.F_GETFD, 0))(t), 0)
	p.closeOurs()
	must.Do(t, <-c.ended)
	must.Have(reap(b.pid))(t)
}

// A process left behind with the answer's pipe delays nobody, and does not survive in the child's group.
func TestHeirOfThePipe(t *testing.T) {
	res := Run(self("heir", ""))
	expect(t, res, Exited)
	gone(t, pids(t, res.Stdout)[0])
	res = Run(self("heir", "/usr/bin/setsid"))
	expect(t, res, Exited)
	must.Be(t, "the heir should still have been there", unix.Kill(pids(t, res.Stdout)[0], unix.SIGKILL), nil)
}

func TestGroupIsKilled(t *testing.T) {
	s := self("swarm")
	s.MaxOutput = 4 << 10
	res := Run(s)
	expect(t, res, Flooded)
	list := pids(t, res.Stdout)
	must.Be(t, "processes in the swarm", len(list), 20)
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

// stubborn runs a child that survives SIGKILL until its tracer goes, and floods; end is at its end once it is gone.
func stubborn(t *testing.T, edit func(*Spec)) (results chan Result, tracer int, end *bufio.Reader) {
	t.Helper()
	path := fifo(t)
	s := self("unkillable", path)
	s.MaxOutput = 64
	edit(&s)
	results = make(chan Result, 1)
	go func() { results <- Run(s) }()
	file := must.Have(os.Open(path))(t)
	end = bufio.NewReader(file)
	must.Have(fmt.Fscan(end, &tracer))(t)
	t.Cleanup(func() { _ = unix.Kill(tracer, unix.SIGKILL); file.Close() })
	return results, tracer, end
}

// What dies late, but within its grace, is not abandoned.
func TestGrace(t *testing.T) {
	results, tracer, _ := stubborn(t, func(s *Spec) { s.Grace = longTimeout })
	select {
	case res := <-results:
		t.Fatalf("given up: %+v", res.Outcome)
	case <-time.After(2 * grace):
	}
	must.Do(t, unix.Kill(tracer, unix.SIGKILL))
	expect(t, <-results, Flooded)
}

func TestAbandoned(t *testing.T) {
	results, tracer, end := stubborn(t, func(*Spec) {})
	res := <-results
	expect(t, res, Abandoned)
	must.Not(t, !Alive("/proc", res.PID, res.StartTicks) || Alive("/proc", res.PID, res.StartTicks+1),
		"an abandoned child that still is there is not alive, or another process is taken for it")
	must.Do(t, unix.Kill(tracer, unix.SIGKILL))
	_, err := io.Copy(io.Discard, end) // ends with the child
	must.Do(t, err)
	for gone(t, res.PID); Alive("/proc", res.PID, res.StartTicks); {
		time.Sleep(time.Millisecond)
	}
}

// A child that has answered and is slow to die, as on a busy machine, is waited for as long as it has time: only one
// that sleeps so that no signal wakes it is given up at once.
func TestAnsweredAndDiesSlowly(t *testing.T) {
	const timeout = 2 * time.Second
	results, _, _ := stubborn(t, func(s *Spec) { s.OneLine, s.Timeout = true, timeout })
	res := <-results
	must.Not(t, res.Outcome != Abandoned || res.Took < timeout, "%s after %v of %v", res.Outcome, res.Took, timeout)
}

// The running program is started again even when its file is gone or replaced.
func TestSelfSurvivesUpgrade(t *testing.T) {
	exe := must.Have(os.Executable())(t)
	copied := filepath.Join(t.TempDir(), "hook")
	must.Do(t, exec.Command("/bin/cp", exe, copied).Run())
	out, err := exec.Command(copied, "--child", "upgrade").CombinedOutput()
	must.Not(t, err != nil || string(out) != "exited ", "got %q, %v", out, err)
}

// A child that has answered is not waited for to its deadline when it does not end, and what it said stands.
func TestAnsweredAndStays(t *testing.T) {
	for script, want := range map[string]Outcome{"echo answer; exec /bin/sleep 1000": Hung, "echo answer": Exited} {
		res := Run(Spec{Path: "/bin/sh", Args: []string{"-c", script}, MaxOutput: 100, OneLine: true, Timeout: time.Hour})
		expect(t, res, want)
		must.Be(t, "its words", string(res.Stdout), "answer\n")
	}
}

// A child that has answered and sleeps in the kernel for a moment only, as the end of a process may, is not abandoned.
func TestAnsweredAndNaps(t *testing.T) {
	long := maxNap
	t.Cleanup(func() { maxNap = long })
	maxNap = longTimeout
	disk := faultinject.NewFS(t, filepath.Join(t.TempDir(), "disk"))
	disk.Freeze()
	res := Run(Spec{
		Path: "/bin/sh", Args: []string{"-c", "echo answer; echo more > " + disk.Dir + "/file"}, MaxOutput: 100,
		OneLine: true, Timeout: longTimeout,
		Started: func(pid int, _ uint64) {
			go func() { // a busy machine may take its time until it has answered, sleeps and is killed
				for !rig.ReadProcess(pid).Killed() {
					time.Sleep(time.Millisecond)
				}
				time.AfterFunc(4*grace, disk.Thaw)
			}()
		},
	})
	expect(t, res, Hung)
	must.Be(t, "its words", string(res.Stdout), "answer\n")
}

const statTail = " 1 2 3 0 -1 4 5 6 7 8 9 10 11 12 20 0 %threads 0 %start 14 15\n"

func statLine(name, state, threads, start string) string {
	return "42 (" + name + ") " + state + strings.NewReplacer("%threads", threads, "%start", start).Replace(statTail)
}

func TestAlive(t *testing.T) {
	tests := map[string]struct {
		stat string
		want bool
	}{
		"same":                  {statLine("python", "D", "1", "777"), true},
		"hostile name":          {statLine("a) Z 1\n(b", "S", "1", "777"), true},
		"reused number":         {statLine("python", "D", "1", "778"), false},
		"zombie":                {statLine("python", "Z", "1", "777"), false},
		"zombie, thread left":   {statLine("python", "Z", "2", "777"), true},
		"dead":                  {statLine("python", "X", "0", "777"), false},
		"garbage, so no answer": {"42 (python", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			must.Do(t, os.Mkdir(filepath.Join(proc, "42"), 0o755))
			must.Do(t, os.WriteFile(filepath.Join(proc, "42", "stat"), []byte(test.stat), 0o644))
			must.Be(t, "alive", Alive(proc, 42, 777), test.want)
		})
	}
	must.Not(t, Alive(t.TempDir(), 42, 777) || Alive("/proc", 0, 777) || Alive("/proc", os.Getpid(), 0),
		"a missing process, pid 0 or an unknown start time is alive")
}

// One thread that nothing wakes is enough; what cannot be read is none.
func TestUninterruptible(t *testing.T) {
	proc := t.TempDir()
	put := func(folder, state string) {
		t.Helper()
		must.Do(t, os.MkdirAll(filepath.Join(proc, folder), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(proc, folder, "stat"), []byte(statLine("x", state, "2", "777")), 0o644))
	}
	put("42", "S")
	must.Not(t, Uninterruptible(proc, 42, 777), "without a list of its threads")
	put("42/task/42", "S")
	put("42/task/no number", "D")
	must.Not(t, Uninterruptible(proc, 42, 777), "no thread is in state D")
	put("42/task/43", "D")
	must.Not(t, !Uninterruptible(proc, 42, 777) || Uninterruptible(proc, 42, 778) || Uninterruptible(proc, 43, 777),
		"a thread is in state D, of this very process")
}

// The trap behind threads: the process whose first thread has ended is shown as a zombie and lives.
func TestHeadlessProcessIsAlive(t *testing.T) {
	s := self("headless")
	p := must.Have(openPipes())(t)
	defer p.closeOurs()
	c := launch(s, p)
	b := <-c.born
	must.Do(t, b.err)
	must.Have(p.stdout.Read(make([]byte, 1)))(t)
	st, err := readStat("/proc", b.pid)
	must.Not(t, err != nil || st.State != 'Z', "stat %+v, %v; want a zombie", st, err)
	must.Not(t, !Alive("/proc", b.pid, b.ticks), "a process with a living thread counts as dead")
	kill(b.pid)
	must.Do(t, <-c.ended)
	must.Not(t, Alive("/proc", b.pid, b.ticks), "a zombie counts as alive")
	must.Have(reap(b.pid))(t)
}

// script is a lookup program in a folder that is root's up to the top.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(must.RootsDir(t), "lookup")
	must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	return path
}

func TestGroups(t *testing.T) {
	programs := lookups
	t.Cleanup(func() { lookups = programs })
	const missing = "/nonexistent/id"
	mistrusted := script(t, "echo 66")
	must.Do(t, os.Chmod(mistrusted, 0o777))
	good := script(t, `[ "$*" = "-G +1000" ] && echo 20 30`)
	for name, test := range map[string]struct {
		from []string
		want []uint32
	}{
		"an answer":           {[]string{good}, []uint32{10, 20, 30}},
		"second path":         {[]string{missing, mistrusted, good}, []uint32{10, 20, 30}},
		"group 0 and doubles": {[]string{script(t, "echo 0 20 20 10")}, []uint32{10, 20}},
		"not trusted":         {[]string{mistrusted}, []uint32{10}},
		"hangs":               {[]string{script(t, "exec /bin/sleep 1000"), good}, []uint32{10}},
		"floods":              {[]string{script(t, "while echo 11 22; do :; done")}, []uint32{10}},
		"nothing":             {[]string{script(t, "true")}, []uint32{10}},
	} {
		lookups = test.from
		must.Be(t, name, Groups(1000, 10), test.want)
	}
	lookups = programs
	must.Be(t, "the system's own, of Debian's user sync", Groups(4, 99), []uint32{99, 65534})
}

// noFile refuses an open by package os, of no directory.
var noFile = faultinject.Filter{Number: unix.SYS_OPENAT, Errno: unix.ENFILE, When: []faultinject.Arg{{Index: 2, Is: unix.O_CLOEXEC}}}

func refused(t *testing.T, f func(), calls ...faultinject.Filter) {
	t.Helper()
	must.Do(t, faultinject.Refuse(calls, f))
}

// A child whose start time cannot be read runs all the same, and is unknown later: it is never taken for another.
func TestUnknownStartTime(t *testing.T) {
	p := must.Have(openPipes())(t)
	defer p.closeOurs()
	var b birth
	s := self("")
	s.Path = "/proc/self/exe"
	refused(t, func() { b = start(s, p) }, noFile)
	must.Not(t, b.err != nil || b.pid == 0 || b.ticks != 0 || Alive("/proc", b.pid, b.ticks), "%+v", b)
	kill(b.pid)
	must.Have(reap(b.pid))(t)
}

// A process that is not there to be waited for is given up, not taken for ended; what cannot be reaped says why.
func TestNotToBeWaitedFor(t *testing.T) {
	var res Result
	res.finish(Exited, awaitZombie(1))
	must.Be(t, "outcome", res.Outcome, Abandoned)
	must.Fail(t, "not waited for", res.Err, unix.ECHILD)
	res = Result{PID: 1}
	res.finish(Exited, nil)
	must.Fail(t, "not reaped", res.Err, unix.ECHILD)
}

// A panic beside Run comes back as an error.
func TestPanicsComeBack(t *testing.T) {
	c := launch(self("echo"), nil)
	b := <-c.born
	must.Not(t, b.err == nil || b.pid != 0, "started with no pipes: %+v", b)
	r, w, err := os.Pipe()
	must.Do(t, err)
	defer r.Close()
	_, err = w.WriteString("text")
	w.Close()
	out := <-gather(r, keeper{limit: -1})
	must.Not(t, err != nil || out.err == nil, "%v: kept %q of a pipe with room for -1 bytes", err, out.bytes)
}

func TestPanicInParallelIsAnError(t *testing.T) {
	results, err := Parallel(3, func(i int) int { return 1 / (i - 1) })
	must.Not(t, err == nil || !strings.Contains(err.Error(), "divide") || results != nil, "got %v, %v", results, err)
}

// A program that a user could have replaced is not started: it would run as root.
func TestForeign(t *testing.T) {
	program, mark := filepath.Join(t.TempDir(), "own"), filepath.Join(t.TempDir(), "mark")
	must.Do(t, os.WriteFile(program, []byte("#!/bin/sh\n: >"+mark+"\n"), 0o777))
	must.Do(t, os.Chmod(program, 0o777))
	res := Run(Spec{Path: program, Foreign: true, Timeout: longTimeout})
	expect(t, res, NotStarted)
	must.Fail(t, "a program that all can write", res.Err, safefile.ErrUntrusted)
	_, err := os.Lstat(mark)
	must.Not(t, !os.IsNotExist(err), "it was started")
	expect(t, Run(Spec{Path: "/bin/true", Foreign: true, Timeout: longTimeout}), Exited)
}
