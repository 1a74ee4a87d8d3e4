// Package holders reads /proc: what a process on a GPU is, and which of a job's processes have a GPU open.
//
//	processes.go  the processes the driver lists, for attribution
//	devices.go    a job's processes that have a GPU's device node open, for the task epilog
//	folder.go     reading one /proc/PID
//	parse.go      the texts in it
//
// A read of another process's /proc can sleep on that process's locks, so root hooks run this package in a child.
package holders

import (
	"errors"
	"fmt"

	"bookend/internal/attrib"
)

// errEnded says that a process ended while it was being read: its PID may be another's by now.
var errEnded = errors.New("the process ended while it was being read, twice")

// Processes says what proc (/proc) knows of each PID, in the order given. A PID without a process, or with
// nothing left of it but a zombie, is Gone; one that could not be read carries the reason.
func Processes(proc string, pids []int) []attrib.Process {
	processes := make([]attrib.Process, 0, len(pids))
	for _, pid := range pids {
		processes = append(processes, process(proc, pid))
	}
	return processes
}

func process(proc string, pid int) attrib.Process {
	if pid <= 0 {
		return attrib.Process{PID: pid, Why: fmt.Sprintf("%d is no PID", pid)}
	}
	p, err := look(proc, pid)
	if errors.Is(err, errEnded) {
		p, err = look(proc, pid)
	}
	if err != nil {
		return attrib.Process{PID: pid, Why: err.Error()}
	}
	return p
}

// look reads a process once. It returns errEnded when not everything it read is sure to be of one process.
func look(proc string, pid int) (attrib.Process, error) {
	f, err := openFolder(proc, pid)
	if gone(err) {
		return attrib.Process{PID: pid, Gone: true}, nil
	}
	if err != nil {
		return attrib.Process{}, err
	}
	defer f.close()
	first, err := f.stat()
	if err != nil {
		return attrib.Process{}, whyNot(err)
	}
	p := attrib.Process{PID: pid, Start: first.start, Name: first.name, State: first.state}
	f = f.ask(first.state)
	// A zombie without a living thread holds nothing: whatever is listed under its PID, somebody else holds.
	p.Gone = first.state == ended && f.thread == ""
	if p.UID, err = f.uid(); err != nil {
		return attrib.Process{}, whyNot(err)
	}
	if p.Cgroup, err = f.owner(); err != nil {
		return attrib.Process{}, whyNot(err)
	}
	p.EnvJobID = f.environment()
	last, err := f.stat()
	if err != nil {
		return attrib.Process{}, whyNot(err)
	}
	if last.start != first.start {
		return attrib.Process{}, errEnded
	}
	return p, nil
}

func whyNot(err error) error {
	if gone(err) {
		return errEnded
	}
	return err
}
