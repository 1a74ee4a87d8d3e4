package faults

import (
	"os"
	"path/filepath"

	"bookend/internal/record"
	"bookend/internal/state"
	"bookend/test/privacy"
)

// nobodyReadsOfOthers checks, when a test is over, every text that its users can read: their files, the reports that
// Bookend made for them, and what the task hooks said. What the command line answers is admin's story of users.
func (n *node) nobodyReadsOfOthers() {
	known := n.known()
	leaks := privacy.Leaks(n.heard, underTest, known)
	for _, text := range privacy.Readable(user, n.in("home")) {
		leaks = append(leaks, privacy.Leaks(text, underTest, known)...)
	}
	for reader, uid := range map[string]uint32{underTest: user, bystanderName: bystander} {
		for _, text := range privacy.Readable(uid, filepath.Join(n.conf.run, "report")) {
			leaks = append(leaks, privacy.Shown(text, reader, known)...)
		}
	}
	for _, leak := range leaks {
		n.Error(leak)
	}
}

const underTest = "the-user-under-test"

// known is what root's records tell of them.
func (n *node) known() []privacy.Facts {
	var runs []record.Run
	if _, err := os.Stat(filepath.Join(n.conf.run, "state", nodeName)); err == nil { // else looking would make it
		if store, err := state.Open(n.conf.run, nodeName); err == nil {
			runs, _ = store.Runs()
		}
	}
	old, _ := state.History(n.conf.varDir, nodeName)
	return privacy.Know([]privacy.Person{{Name: underTest, UID: user, Home: n.in("home")},
		{Name: bystanderName, UID: bystander, Home: "/home/" + bystanderName}}, append(runs, old...))
}
