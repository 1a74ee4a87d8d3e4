package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Which hook knows a task's limit of address space: none has it itself, both read in their environment what Slurm carries
// to the task.
func TestTaskHooksAndLimits(t *testing.T) {
	const limit = 64 << 30
	dir := TempDir(t)
	c := Start(t, Options{Dir: dir, Nodes: oneNode, TaskProlog: HookFile(dir, "task_prolog"), TaskEpilog: HookFile(dir, "task_epilog")})
	user := anybody(t)
	home, err := c.Home(user)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"task_prolog", "task_epilog"} {
		text := fmt.Sprintf("#!/bin/sh\n[ \"$SLURM_STEP_ID\" ] || echo \"own $(ulimit -v) carried $SLURM_RLIMIT_AS\" >%s/%s.$SLURM_JOB_ID\n", home, name)
		if _, err := WriteHook(dir, name, text); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ args, hook, task string }{
		{"", "own unlimited carried ", "unlimited"},
		{"--propagate=AS", fmt.Sprintf("own unlimited carried U%d", uint64(limit)), fmt.Sprint(limit >> 10)},
	} {
		var id JobID
		limited(t, limit, func() { id, err = c.Submit(user, "ulimit -v", strings.Fields(tt.args)...) })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Wait(id, patience, "COMPLETED"); err != nil {
			t.Fatal(err)
		}
		if out, err := c.Output(id); err != nil || strings.TrimSpace(out) != tt.task {
			t.Errorf("%q: the task's limit is %q, %v; want %q", tt.args, out, err, tt.task)
		}
		for _, name := range []string{"task_prolog", "task_epilog"} {
			said, err := os.ReadFile(filepath.Join(home, name+"."+string(id)))
			if err != nil || strings.TrimSuffix(string(said), "\n") != tt.hook {
				t.Errorf("%q: %s says %q, %v; want %q", tt.args, name, said, err, tt.hook)
			}
		}
	}
}

// limited does something with a soft limit of this process's address space, which what it starts inherits.
func limited(t *testing.T, bytes uint64, do func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &before); err != nil {
		t.Fatal(err)
	}
	during := before
	during.Cur = bytes
	if err := unix.Setrlimit(unix.RLIMIT_AS, &during); err != nil {
		t.Fatal(err)
	}
	do()
	if err := unix.Setrlimit(unix.RLIMIT_AS, &before); err != nil {
		t.Fatal(err)
	}
}
