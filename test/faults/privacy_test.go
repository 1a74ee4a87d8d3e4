package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"bookend/internal/ledger"
	"bookend/internal/state"
	"bookend/test/privacy"
	"bookend/test/rig"
)

// nobodyReadsOfOthers checks, when a test is over, every text that its users can read: their files, the reports that
// Bookend made for them, and what the task hooks said.
func (n *node) nobodyReadsOfOthers() {
	known := n.known()
	leaks := privacy.Leaks(n.heard, underTest, known)
	for reader, uid := range map[string]int{underTest: user, bystanderName: bystander} {
		// who else may read it is for its owner to say
		own := func(st *syscall.Stat_t) bool { return int(st.Uid) == uid }
		leaks = append(leaks, privacy.Leaks(shown(uid, n.in("home"), own), reader, known)...)
		anybodys := func(*syscall.Stat_t) bool { return true }
		reports := shown(uid, filepath.Join(n.conf.run, "report"), anybodys)
		leaks = append(leaks, privacy.Shown(reports, nil, reader, known)...)
	}
	for _, leak := range leaks {
		n.Error(leak)
	}
}

// underTest is the user of the job under test.
const underTest = "the-user-under-test"

// known is what root's records tell of them.
func (n *node) known() []privacy.Facts {
	var runs []ledger.Run
	if _, err := os.Stat(filepath.Join(n.conf.run, "state", nodeName)); err == nil { // else looking would make it
		if store, err := state.Open(n.conf.run, nodeName); err == nil {
			runs, _ = store.Runs()
		}
	}
	old, _ := state.History(n.conf.varDir, nodeName)
	return privacy.Know([]privacy.Person{{Name: underTest, UID: user, Home: n.in("home")},
		{Name: bystanderName, UID: bystander, Home: "/home/" + bystanderName}}, append(runs, old...))
}

// shown is what some regular files of a folder show a user: those that the kernel lets them read.
func shown(uid int, folder string, which func(*syscall.Stat_t) bool) string {
	entries, _ := os.ReadDir(folder) // one that is gone, or not to be looked into, shows nobody anything
	args := []string{"-q", "-c", "1000000", "--"}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && which(info.Sys().(*syscall.Stat_t)) {
			args = append(args, filepath.Join(folder, e.Name()))
		}
	}
	if len(args) == 4 {
		return ""
	}
	cmd := exec.Command("/usr/bin/head", args...)
	cmd.SysProcAttr = rig.As(uid)
	text, _ := cmd.Output() // of some it says that they are not to be read
	return string(text)
}

// asked are the questions that anybody can ask of the command line.
const asked = `show 100 --node n1;show 7 --node n1;show 100 --json --node n1;show 7 --json --node n1;show 8 --node n1;` +
	`show 100_1 --node n1;status;status --json;status --node n1 --records;history;history --json;` +
	`history --user 65533 --repeat-offenders;snapshot;snapshot --json;baseline;baseline reset all;report --html -;` +
	`doctor;config check;explain orphan;__complete show `

// Whoever is not root reads of others on no command line that anybody else is there. The same answers to root are full
// of them: the scan, which each test of this suite ends with, would notice.
func TestCommandsTellNothingOfOthers(t *testing.T) {
	t.Parallel()
	n := newNode(t, "observe") // the bystander's process is on the card of the user's job
	theirs := bystanding().With("SLURM_JOB_GPUS", "0", "CUDA_VISIBLE_DEVICES", "0", "GPU_DEVICE_ORDINAL", "0")
	n.clean(prolog, theirs)
	n.inCgroup(n.holder(bystander, nil, "--mib", "2048", "--name", "guest"), strconv.Itoa(bystanderID))
	n.hook(epilog, theirs)
	j := n.begin(newJob())
	n.leftover("--name", "mine")
	n.end(j, failed, ranOut)
	known := n.known()
	noticed := map[string]bool{}
	for line := range strings.SplitSeq(asked, ";") {
		args := strings.Split(line, " ")
		for reader, uid := range map[string]int{underTest: user, bystanderName: bystander} {
			text, _ := n.bookendAs(uid, args...)
			for _, leak := range privacy.Shown(text, args, reader, known) {
				t.Errorf("bookend %s: %s", strings.Join(args, " "), leak)
			}
			if text, _ := n.bookend(args...); len(privacy.Shown(text, args, reader, known)) > 0 {
				noticed[args[0]] = true
			}
		}
	}
	for _, command := range []string{"show", "status", "history", "snapshot", "report"} {
		if !noticed[command] {
			t.Errorf("root reads nothing of anybody by bookend %s", command)
		}
	}
	if text, _ := n.bookendAs(user, "show", "100", "--node", nodeName); !strings.Contains(text,
		"a process that is not yours") {
		t.Errorf("his own job: %s", text)
	}
	if text, _ := n.bookendAs(user, "snapshot"); !strings.Contains(text, "another user's process") ||
		!strings.Contains(text, "(mine)") {
		t.Errorf("just now: %s", text)
	}
}
