package rig

import (
	"slices"
	"time"
)

// AtTheDisk are the processes to which hooks that keep their state in a folder left the disk.
func AtTheDisk(run string) []Process {
	return Processes(func(p Process) bool {
		args := p.Args()
		return !p.Over() && len(args) == 3 && slices.Equal(args[1:], []string{"--disk", run})
	})
}

// Written waits until they have written all, or hang.
func Written(run string) {
	const most = 10 * time.Second
	asleep := 0
	for deadline := time.Now().Add(most); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		all := AtTheDisk(run)
		if len(all) == 0 {
			return
		}
		if asleep++; slices.ContainsFunc(all, func(p Process) bool { return p.State != "D" && p.State != "T" }) {
			asleep = 0
		}
		if asleep > 500 {
			return
		}
	}
}
