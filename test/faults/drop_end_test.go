package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/rig"
)

// inDrop runs a shell as a user in his job's drop folder.
func (n *node) inDrop(uid int, folder, shell string) *exec.Cmd {
	n.Helper()
	cmd := exec.Command("/bin/sh", "-c", shell)
	cmd.Dir, cmd.Stderr = filepath.Join(n.conf.run, "drop", folder), os.Stderr
	cmd.SysProcAttr = rig.As(uid)
	return cmd
}

func (n *node) drops() (names []string) {
	n.Helper()
	entries, err := os.ReadDir(filepath.Join(n.conf.run, "drop"))
	must(n, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A job that fills the drop, at whatever depth, has filled it until its end; whoever gets its id then finds nothing of
// it.
func TestDropOfDeepFolders(t *testing.T) {
	n := newNode(t, "enforce")
	n.mountRun("size=64m,nr_inodes=8k")
	n.clean(prolog, newJob())
	must(t, n.inDrop(user, "n1_100", "for i in $(seq 300); do mkdir d; cd -P d; done; echo secret > file; "+
		"head -c 8M /dev/zero > big; for i in $(seq 3000); do : > $i; done").Run())
	n.clean(epilog, newJob())
	for next := numbered(101); len(n.drops()) > 0; {
		if names := n.drops(); !strings.HasPrefix(names[0], "n1_100.aside-") {
			t.Fatalf("the name is not free: %q", names)
		}
		n.clean(prolog, next)
		n.clean(epilog, next)
	}
	later := newJob().Of(bystander)
	n.clean(prolog, later)
	if found, err := os.ReadDir(n.in("run/drop/n1_100")); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
	n.clean(epilog, later)
	if names := n.drops(); len(names) > 0 {
		t.Errorf("left: %q", names)
	}
}

// One id, used by several users whose ends never came: each has a folder of his own, and one end collects all.
func TestDropsReused(t *testing.T) {
	n := newNode(t, "enforce")
	const users = 3
	for uid := user - users + 1; uid <= user; uid++ {
		if o := n.hook(prolog, newJob().Of(uid)); o.exit != 0 {
			t.Fatal(o)
		}
		must(t, n.inDrop(uid, "n1_100", "echo mine > job.json").Run())
	}
	if names := n.drops(); len(names) != users {
		t.Errorf("%q", names)
	}
	if len(lines(n.log(), "BKD-ST-WRITE")) > 0 {
		t.Errorf("log:\n%s", n.log())
	}
	if o := n.hook(epilog, newJob().Of(user)); o.exit != 0 {
		t.Error(o)
	}
	if names := n.drops(); len(names) > 0 {
		t.Errorf("left: %q", names)
	}
}

// While another is at the drops, a job's end takes no longer, counts and archives as ever, and frees its own name; the
// next one removes what was left. A mount of a user's below his folder is no worse than that, and is told.
func TestDropsInOthersHands(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	must(t, n.inDrop(user, "n1_100", "mkdir -p a/b; echo x > a/b/c").Run())
	release := n.lock(n.in("run/state"), "drop.lock")
	n.clean(epilog, newJob())
	release()
	archived, err := os.ReadDir(n.in("var/history/n1"))
	if names := n.drops(); err != nil || len(archived) != 1 || len(names) != 1 || names[0] != "n1_100.aside-0" {
		t.Errorf("%q, %v, %v", names, archived, err)
	}
	at := n.in("run/drop/n1_100.aside-0/a")
	must(t, unix.Mount("none", at, "tmpfs", 0, ""))
	n.clean(prolog, bystanding())
	if o := n.hook(epilog, bystanding()); o.exit != 0 ||
		len(lines(n.log(), "BKD-ST-WRITE", "remove drops", "busy")) != 1 {
		t.Errorf("%v\n%s", o, n.log())
	}
	must(t, unix.Unmount(at, unix.MNT_DETACH))
	n.clean(prolog, numbered(102))
	n.clean(epilog, numbered(102))
	if names := n.drops(); len(names) > 0 {
		t.Errorf("left: %q", names)
	}
}
