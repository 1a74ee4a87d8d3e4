package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A job's user reads his start report, through the task hook too, and can do nothing else with it: neither open it for
// writing, so that it fills the file system of all records, nor let others read it.
func TestReportCannotGrow(t *testing.T) {
	n := newNode(t, "enforce")
	must(t, os.Chmod(n.dir, 0o755))
	n.clean(prolog, newJob())
	path := filepath.Join(n.conf.run, "report", nodeName+"_100")
	if !reads(user, path) || reads(bystander, path) {
		t.Error("not its user alone reads the report")
	}
	for _, try := range []string{"chmod 600 " + path, "cat /dev/zero >> " + path, "setfacl -m u:1:rw " + path, "rm -f " + path, "ln " + path + " " + n.in("x")} {
		if does(user, try) {
			t.Errorf("his user can: %s", try)
		}
	}
	if o := n.task(taskProlog, newJob().with("SLURM_LOCALID", "0")); len(lines(o.output, "print | bookend: GPU 0")) != 1 {
		t.Errorf("%v", o)
	}
}

// does reports whether a user succeeds with a line of the shell.
func does(uid uint32, line string) bool {
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd.Run() == nil
}

func reads(uid uint32, path string) bool { return does(uid, "cat "+path) }
