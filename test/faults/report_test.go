package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A job's start report is for its user alone; which other jobs there are is nobody's business.
func TestReportsOfOthers(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, bystanding())
	n.clean(prolog, newJob())
	folder := filepath.Join(n.conf.run, "report")
	st, err := os.Stat(folder)
	must(t, err)
	if st.Mode().Perm() != 0o711 {
		t.Errorf("the folder's mode is %v", st.Mode())
	}
	if said := n.task(taskProlog, newJob()); !strings.Contains(said.output, "clean") {
		t.Errorf("the own report by the task hook: %v", said)
	}
	own, others := filepath.Join(folder, nodeName+"_100"), filepath.Join(folder, nodeName+"_"+strconv.Itoa(bystanderID))
	if text, err := asUser("/bin/cat", own); err != nil || !strings.Contains(text, "clean") {
		t.Errorf("the own report: %v %s", err, text)
	}
	for _, command := range [][]string{{"/bin/cat", others}, {"/bin/ls", folder}} {
		if text, err := asUser(command...); err == nil || !strings.Contains(text, "Permission denied") {
			t.Errorf("%q: %v %s", command, err, text)
		}
	}
	if text, err := os.ReadFile(others); err != nil || len(text) == 0 {
		t.Errorf("the other's report: %v", err)
	}
}

// asUser runs a command as the user of the job under test.
func asUser(args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Dir = []string{"LC_ALL=C"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	text, err := cmd.CombinedOutput()
	return string(text), err
}
