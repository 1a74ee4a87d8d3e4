package bench

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/faultinject"
	"bookend/test/must"
	"bookend/test/rig"
)

func TestMain(m *testing.M) {
	faultinject.Serve()
	os.Exit(m.Run())
}

// spent is what a process has used when it ends.
type spent struct {
	opens  int // files and directories, read or not
	read   int // bytes, of files and pipes, by its children too once it has waited for them
	memory int // KiB at most
}

// bounds of a hook on clean GPUs: what was counted, and some room. Whoever needs more makes every job of every node wait
// for it, and says here why: an end's last half MiB is the text of what it may do besides. Its children are named
// exactly; what they read depends on how many processes and mounts the machine has, and is not the hook's.
var bounds = map[string]struct {
	children []string
	hook     spent
}{
	"bookend-prolog": {[]string{"backend", "disk", "kernel", "numbering"}, spent{93, 6 << 10, 9 << 10}},
	"bookend-epilog": {[]string{"backend", "disk", "kernel"}, spent{101, 9 << 10, 9728}},
}

// A hook on clean GPUs starts no process that it did not start before, and opens, reads and holds no more. Counts are the
// same on a busy machine; what they come to in time the benchmarks measure.
func TestCleanHookStaysCheap(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to count system calls needs root")
	}
	dir, config := cleanNode(t, "record: {every: 0s}\n")
	for round := range 3 { // the first finds out what the others know
		job := fmt.Sprintf("SLURM_JOB_ID=%d", 100+round)
		for _, h := range hooks {
			program := filepath.Join(dir, h.name)
			idle := count(t, program, hookEnv(h.context)) // what Go's runtime itself reads is the machine's
			all := count(t, program, hookEnv(h.context, job, "SLURM_JOB_GPUS=0", "BOOKEND_CONFIG="+config,
				"SLURM_JOB_UID=64123", "SLURM_JOB_GID=64123")) // of no other test: a process of the user's costs a child
			if round > 0 {
				judge(t, h.name, idle[h.name][0], all)
			}
		}
	}
}

// judge compares what the processes of a hook have used with its bounds.
func judge(t *testing.T, hook string, idle spent, all map[string][]spent) {
	t.Helper()
	most, own := bounds[hook], all[hook]
	delete(all, hook)
	var children []string
	theirs := 0
	for name, some := range all {
		children = append(children, slices.Repeat([]string{name}, len(some))...)
		for _, child := range some {
			if name != "disk" { // it is not waited for
				theirs += child.read
			}
		}
	}
	slices.Sort(children)
	if !slices.Equal(children, most.children) || len(own) != 1 {
		t.Fatalf("%s started %q, want %q", hook, children, most.children)
	}
	got := spent{own[0].opens - idle.opens, own[0].read - idle.read - theirs, own[0].memory}
	t.Logf("%s: %+v", hook, got)
	must.Not(t, got.opens > most.hook.opens || got.read > most.hook.read || got.memory > most.hook.memory,
		"%s: %+v, at most %+v", hook, got, most.hook)
}

// count runs a hook, and waits for all that it starts.
func count(t *testing.T, program string, env []string) map[string][]spent {
	t.Helper()
	all, opens := map[string][]spent{}, map[int]int{}
	var output bytes.Buffer
	cmd := exec.Command(program)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, "/", &output, &output
	kinds := []faultinject.Filter{{Number: unix.SYS_OPENAT}, {Number: unix.SYS_EXIT_GROUP}}
	late, err := faultinject.Run(cmd, 5*time.Minute, kinds, func(c faultinject.Call) faultinject.Answer {
		pid := c.PID()
		if c.Number != unix.SYS_EXIT_GROUP {
			opens[pid]++
			return faultinject.Answer{}
		}
		name := cmp.Or(rig.Doing(c.Command()), filepath.Base(c.Command()[0]))
		all[name] = append(all[name], spent{
			opens[pid], figure(t, pid, "io", "rchar:"), figure(t, pid, "status", "VmHWM:"),
		})
		return faultinject.Answer{}
	})
	if err != nil || late || cmd.ProcessState.ExitCode() != 0 || output.Len() > 0 {
		t.Fatalf("%s: late %v, %v, %v\n%s", program, late, err, cmd.ProcessState, output.String())
	}
	return all
}

func figure(t *testing.T, pid int, file, name string) (n int) {
	text := must.Have(os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file)))(t)
	_, rest, _ := strings.Cut(string(text), name)
	_ = must.Have(fmt.Sscan(rest, &n))(t)
	return n
}
