package rig

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// AtTheDisk are the processes to which hooks that keep their state in a folder left the disk.
func AtTheDisk(run string) []Process {
	words := "\x00--disk\x00" + run + "\x00"
	return Processes(func(p Process) bool {
		lines, _ := filepath.Glob(p.file("task/*/cmdline")) // its first thread may have ended
		return slices.ContainsFunc(lines, func(file string) bool {
			line, _ := os.ReadFile(file)
			return strings.HasSuffix(string(line), words) || len(line) == 0 && p.begins()
		})
	})
}

// begins reports whether it is a program of Bookend's that executes itself: its hook goes on before its words are there.
func (p Process) begins() bool {
	name, _ := os.ReadFile(p.file("comm"))
	return p.State != "Z" && (string(name) == "exe\n" || strings.HasPrefix(string(name), "bookend-"))
}

// Written waits until they have written all, or hang.
func Written(run string) {
	const most = 2 * time.Minute
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
