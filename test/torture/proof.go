package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// proveUser asks the kernel whether each thread of a process is the user's for good, and what it has open.
func proveUser(pid int) (breaches []breach) {
	id := fmt.Sprint(user)
	const none = "0000000000000000"
	want := map[string]string{
		"Uid": strings.Repeat(" "+id, 4)[1:], "Gid": strings.Repeat(" "+id, 4)[1:], "Groups": id, "NoNewPrivs": "1",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if len(tasks) == 0 {
		return nil // killed meanwhile
	}
	for _, path := range tasks {
		status, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(status)) {
			key, value, _ := strings.Cut(line, ":")
			if got := strings.Join(strings.Fields(value), " "); want[key] != "" && got != want[key] {
				breaches = append(breaches, breach{"privileged", false,
					fmt.Sprintf("%s is %q as it opens a path of the user's", key, got)})
			}
		}
	}
	return append(breaches, proveDescriptors(pid)...)
}

// proveDescriptors: a child holds its three pipes, and what Go's poller needs.
func proveDescriptors(pid int) (breaches []breach) {
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	list, _ := os.ReadDir(folder)
	for _, e := range list {
		target, err := os.Readlink(filepath.Join(folder, e.Name()))
		kind, _, _ := strings.Cut(target, ":[")
		switch {
		case err != nil:
		case len(e.Name()) == 1 && e.Name() <= "2" && kind == "pipe":
		case target == "anon_inode:[eventpoll]" || target == "anon_inode:[eventfd]":
		default:
			breaches = append(breaches, breach{"descriptor", false,
				fmt.Sprintf("%s is %s as it opens a path of the user's", e.Name(), target)})
		}
	}
	return breaches
}
