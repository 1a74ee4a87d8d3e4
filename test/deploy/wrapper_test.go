package deploy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/test/must"
)

// drainers are the hooks whose exit status drains a node; that of the others would fail a task, and is 0.
var (
	drainers = []string{"prolog", "epilog"}
	allHooks = append([]string{"task-prolog", "task-epilog"}, drainers...)
)

func passed(name string, verdict int) int {
	if slices.Contains(drainers, name) {
		return verdict
	}
	return 0
}

// underEachShell runs a test under each program that a distribution has as /bin/sh.
func underEachShell(t *testing.T, test func(t *testing.T, shell string)) {
	for _, name := range []string{"dash", "bash", "busybox"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("%s is not installed (apt-get install %s)", name, name)
			}
			shell := filepath.Join(open(t), "sh") // all of them look at the name that they are called by
			must.Do(t, os.Symlink(program, shell))
			test(t, shell)
		})
	}
}

// open makes a directory that every user may enter.
func open(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		must.Do(t, os.Chmod(d, 0o755))
	}
	return dir
}

// under starts a shipped hook under a shell as Slurm does, with a program of the given text in the place of Bookend's.
func under(t *testing.T, shell, name, text string) (cmd *exec.Cmd, out, errs *bytes.Buffer) {
	t.Helper()
	program := write(t, filepath.Join(open(t), "program"), text, 0o755)
	cmd, out, errs = hook(shell)
	cmd.Args = append(cmd.Args, script(t, name, program, "/nowhere/own"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, out, errs
}

// Slurm sees a hook's verdict and its output. Whatever else ends a hook is no verdict: it drains no node and fails no
// task. Nor is a program that is there and cannot be started: cut short by a crash, or without its interpreter.
func TestHooksPassVerdictsOnly(t *testing.T) {
	t.Parallel()
	// Go is to start for four cores.
	const starts = "#!/bin/sh\necho \"$# $SLURMD_NODENAME $GOMAXPROCS\"; echo e >&2; "
	ends := map[string]int{starts + "exit 0\n": 0, starts + "exit 40\n": catalog.ExitOther,
		"\x7fELF\x02\x01\x01\x00((( ;": 0, "": 0, "#!/nowhere/sh\n": 0}
	for _, e := range catalog.Exits() {
		ends[fmt.Sprintf(starts+"exit %d\n", e.Exit)] = e.Exit
	}
	for _, other := range []int{1, 2, 3, 9, 100, 125, 126, 127, 128, 137, 255} {
		ends[fmt.Sprintf(starts+"exit %d\n", other)] = 0
	}
	for _, signal := range []string{"KILL", "TERM", "SEGV", "ABRT", "HUP"} {
		ends[starts+"kill -"+signal+" $$\n"] = 0
	}
	underEachShell(t, func(t *testing.T, shell string) {
		for text, verdict := range ends {
			said := map[bool]string{true: "0 n1 4\n"}[strings.HasPrefix(text, starts)]
			for _, name := range allHooks {
				cmd, out, errs := under(t, shell, name, text)
				_ = cmd.Run()
				want := passed(name, verdict)
				if exit := cmd.ProcessState.ExitCode(); exit != want || out.String() != said ||
					said != "" && !strings.HasPrefix(errs.String(), "e\n") {
					t.Errorf("%s, program %q: %v, %q, %q; want exit status %d", name, text, cmd.ProcessState, out, errs, want)
				}
			}
		}
	})
}

// Where no process can be made, the shell itself fails. bash would try for 15 s: the task hooks look at the limits first.
func TestHooksWhereTheShellCannotFork(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("root's processes are not counted, and only root becomes a user without any")
	}
	program := write(t, filepath.Join(open(t), "program"), "#!/bin/sh\necho runs\nexit 10\n", 0o755)
	own := write(t, filepath.Join(open(t), "own"), "#!/bin/sh\nexit 7\n", 0o755)
	// in the place of a removed package's programs
	text := must.Have(os.ReadFile("../../deploy/packages/scripts/stub.sh"))(t)
	stub := write(t, filepath.Join(open(t), "stub"), string(text), 0o755)
	underEachShell(t, func(t *testing.T, shell string) {
		var started []*exec.Cmd
		scripts := map[string]string{"stub.sh": stub}
		for _, name := range append(names(t, "*-beside-own"), allHooks...) {
			scripts[name] = script(t, name, program, own)
		}
		for name, path := range scripts {
			cmd, _, _ := hook("/bin/bash")
			cmd.Args = append(cmd.Args, "-c", `ulimit -u 0; exec "$@"`, name, shell, path)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64999, Gid: 64999}}
			must.Do(t, cmd.Start())
			started = append(started, cmd)
		}
		for _, cmd := range started {
			_ = cmd.Wait()
			name, want := cmd.Args[3], 0
			if strings.Contains(name, "beside") {
				want = 7
			}
			out, errs := cmd.Stdout.(*bytes.Buffer), cmd.Stderr.(*bytes.Buffer)
			if cmd.ProcessState.ExitCode() != want || out.Len() > 0 {
				t.Errorf("%s: %v, %q, want exit status %d and no hook", name, cmd.ProcessState, out, want)
			}
			if strings.HasPrefix(name, "task-") && strings.Contains(errs.String(), "retry") {
				t.Errorf("%s tries again: %q", name, errs)
			}
		}
	})
}

// A cgroup without room for a process, as slurmd's may be, costs a hook no time under any shell; with room it runs.
func TestHooksInAFullCgroup(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a cgroup")
	}
	cgroup, set := pidsCgroup(t)
	program := write(t, filepath.Join(open(t), "program"), "#!/bin/sh\necho runs\n", 0o755)
	for _, room := range []int{1, 2} {
		set(room)
		for _, shell := range []string{"dash", "bash", "busybox"} {
			path, err := exec.LookPath(shell)
			if err != nil {
				continue // another test says so
			}
			link := filepath.Join(open(t), "sh")
			must.Do(t, os.Symlink(path, link))
			for _, name := range allHooks {
				cmd, out, errs := hook("/bin/bash")
				cmd.Args = append(cmd.Args, "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, cgroup, link,
					script(t, name, program, "/nowhere/own"))
				err := cmd.Run()
				if err != nil || (out.String() == "runs\n") != (room == 2) || strings.Contains(errs.String(), "retry") {
					t.Errorf("%s, %s, room for %d: %v, %q, %q", shell, name, room, err, out, errs)
				}
			}
		}
	}
}

// pidsCgroup makes a cgroup, and returns what limits its processes.
func pidsCgroup(t *testing.T) (dir string, set func(most int)) {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir = filepath.Join(root, fmt.Sprint("bookend-test-", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if syscall.Access(filepath.Join(dir, "pids.max"), 0) == nil {
			return dir, func(most int) {
				must.Do(t, os.WriteFile(filepath.Join(dir, "pids.max"), fmt.Append(nil, most), 0o644))
			}
		}
	}
	t.Skip("no cgroup that limits processes can be made here")
	return "", nil
}

// slurmd sends SIGTERM to the process group, and SIGKILL 10 ms later, which drains. The script does not wait for a
// hook then.
func TestHooksStoppedBySlurmd(t *testing.T) {
	t.Parallel()
	underEachShell(t, func(t *testing.T, shell string) {
		for _, name := range allHooks {
			stopped(t, shell, name, "trap 'exit 10' TERM; echo ready; for i in $(seq 600); do sleep 1; done; exit 11",
				true)
			stopped(t, shell, name, "echo ready; exec sleep 1000", true)
		}
		for _, name := range drainers {
			stopped(t, shell, name, "trap '' TERM; echo ready; sleep 60; exit 10", true)
			said := stopped(t, shell, name, "trap 'echo stopped; exit 10' TERM; echo ready; for i in $(seq 600); do "+
				"sleep 1; done; exit 11", false)
			if said != "stopped\n" {
				t.Errorf("%s does not pass SIGTERM on: %q", name, said)
			}
		}
	})
}

// stopped has a hook that is at work get SIGTERM, with its process group or alone, and returns what the hook then
// writes, if it is the script that tells it.
func stopped(t *testing.T, shell, name, text string, group bool) (said string) {
	t.Helper()
	cmd, _, _ := under(t, shell, name, "#!/bin/sh\n"+text+"\n")
	cmd.Stdout, cmd.Stderr = nil, nil
	pipe := must.Have(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	pid := cmd.Process.Pid
	defer syscall.Kill(-pid, syscall.SIGKILL)
	out := bufio.NewReader(pipe)
	if line, err := out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Errorf("%s, program %q: %q, %v", name, text, line, err)
	}
	if group {
		pid = -pid
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if !group {
		rest, _ := io.ReadAll(out)
		said = string(rest)
	}
	_ = cmd.Wait()
	if exit := cmd.ProcessState.ExitCode(); exit != 0 {
		t.Errorf("%s, program %q: %v, want exit status 0", name, text, cmd.ProcessState)
	}
	return said
}

// Under RunInJob Slurm 25.05 and later start hooks with SIGCHLD blocked.
func TestHooksWithoutSIGCHLD(t *testing.T) {
	t.Parallel()
	underEachShell(t, func(t *testing.T, shell string) {
		withoutSIGCHLD(t)
		for _, name := range allHooks {
			for text, verdict := range map[string]int{"sleep 0.1; exit 10": 10, "sleep 0.1; exit 2": 0, "kill -KILL $$": 0} {
				cmd, _, _ := under(t, shell, name, "#!/bin/sh\n"+text+"\n")
				must.Do(t, cmd.Start())
				guard := guard(cmd)
				_ = cmd.Wait()
				guard.Stop()
				if exit, want := cmd.ProcessState.ExitCode(), passed(name, verdict); exit != want {
					t.Errorf("%s, program %q: %v, want exit status %d", name, text, cmd.ProcessState, want)
				}
			}
			stopped(t, shell, name, "trap 'exit 10' TERM; echo ready; for i in $(seq 600); do sleep 1; done; exit 11",
				true)
		}
	})
}

// guard ends a hook that hangs, with its process group.
func guard(cmd *exec.Cmd) *time.Timer {
	return time.AfterFunc(2*time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
}

// withoutSIGCHLD has what this test starts begin with SIGCHLD blocked. Its thread ends with the test.
func withoutSIGCHLD(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	var set unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGCHLD - 1)
	must.Do(t, unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil))
}

// A hook has crashed, syslog hangs, and slurmd stops the hook: the script ends at once.
func TestHooksStoppedWhileSyslogHangs(t *testing.T) {
	t.Parallel()
	underEachShell(t, func(t *testing.T, shell string) {
		for _, name := range drainers {
			dir := open(t)
			called := filepath.Join(dir, "called")
			write(t, filepath.Join(dir, "timeout"),
				"#!/bin/sh\nexec /usr/bin/setsid /bin/sh -c ': >"+called+"; exec /bin/sleep 1000'\n", 0o755)
			program := write(t, filepath.Join(dir, "program"), "#!/bin/sh\nexit 2\n", 0o755)
			path := script(t, name, program, "/nowhere/own")
			text := must.Have(os.ReadFile(path))(t)
			write(t, path, strings.Replace(string(text), "PATH=/usr/bin:/bin", "PATH="+dir, 1), 0o755)
			cmd, _, _ := hook(shell)
			cmd.Args, cmd.Stdout, cmd.Stderr = append(cmd.Args, path), nil, nil
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			must.Do(t, cmd.Start())
			guard := guard(cmd)
			for syscall.Access(called, 0) != nil && syscall.Kill(cmd.Process.Pid, 0) == nil {
				time.Sleep(time.Millisecond)
			}
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			guard.Stop()
		}
	})
}
