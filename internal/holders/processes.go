// Package holders reads /proc: what a process on a GPU is, and which of a job's processes have a GPU open.
//
//	processes.go  the processes the driver lists, for attribution
//	scan.go       all processes that have a device node open or mapped
//	crew.go       looking at many processes side by side
//	devices.go    a job's processes that have a GPU's device node open, for the task epilog
//	folder.go     reading one /proc/PID
//	links.go      reading many links and lines of it
//	parse.go      the texts in it
//	nodes.go      the paths in it
//	unit.go       its cgroups
//
// A read of another process's /proc can sleep on that process's locks, so root hooks run this package in a child.
package holders

import (
	"errors"
	"fmt"

	"bookend/internal/attrib"
	"bookend/internal/slurm"
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
	p, f, err := f.identify(pid)
	if err != nil {
		return attrib.Process{}, err
	}
	p.EnvJobID = f.environment()
	return p, f.stillOf(p)
}

// identify reads what a process is, without what its memory holds: that can hang. The folder it returns asks the
// thread that answers for the process.
func (f folder) identify(pid int) (attrib.Process, folder, error) {
	first, err := f.stat()
	if err != nil {
		return attrib.Process{}, f, whyNot(err)
	}
	p := attrib.Process{PID: pid, Start: first.start, Name: first.name, State: first.state}
	f = f.ask(first.state)
	// A zombie without a living thread holds nothing: whatever is listed under its PID, somebody else holds.
	p.Gone = first.state == ended && f.thread == ""
	status, err := f.text("status", maxStatus)
	if err != nil {
		return attrib.Process{}, f, whyNot(err)
	}
	if p.UID, err = parseUID(status); err != nil {
		return attrib.Process{}, f, err
	}
	p.OtherPIDs = parseOtherPIDs(status)
	cgroup, err := f.cgroup()
	if err != nil {
		return attrib.Process{}, f, whyNot(err)
	}
	if p.Cgroup = slurm.OwnerOfCgroup(cgroup); !p.Cgroup.Found() && p.Cgroup.Conflict == "" {
		p.Service, p.Container = parseUnit(cgroup)
	}
	p.Exe = f.exe()
	return p, f, f.stillOf(p)
}

// stillOf returns errEnded unless the folder is still that of the process.
func (f folder) stillOf(p attrib.Process) error {
	last, err := f.stat()
	if err != nil {
		return whyNot(err)
	}
	if last.start != p.Start {
		return errEnded
	}
	return nil
}

func whyNot(err error) error {
	if gone(err) {
		return errEnded
	}
	return err
}
