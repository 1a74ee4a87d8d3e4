package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"bookend/internal/ledger"
	"bookend/internal/state"
	"bookend/test/privacy"
	"bookend/test/rig"
)

// nobodyReadsOfOthers checks, when a test is over, every text that its users can read: their files, the reports that
// Bookend made for them, and what the task hooks said. What the command line answers is admin's story of users.
func (n *node) nobodyReadsOfOthers() {
	known := n.known()
	leaks := privacy.Leaks(n.heard, underTest, known)
	for reader, uid := range map[string]int{underTest: user, bystanderName: bystander} {
		// who else may read it is for its owner to say
		own := func(st *syscall.Stat_t) bool { return int(st.Uid) == uid }
		leaks = append(leaks, privacy.Leaks(shown(uid, n.in("home"), own), reader, known)...)
		anybodys := func(*syscall.Stat_t) bool { return true }
		reports := shown(uid, filepath.Join(n.conf.run, "report"), anybodys)
		leaks = append(leaks, privacy.Shown(reports, reader, known)...)
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
