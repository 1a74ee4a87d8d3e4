// Package procscan finds processes in /proc: those that have a GPU open, what a process on a GPU is, and those of a
// job.
//
// Reading another process's /proc can block on that process's locks, so root hooks run this package in a child.
package procscan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// errEnded means that a process ended while it was read. Its PID may belong to another process by now.
var errEnded = errors.New("the process ended while it was being read, twice")

func twice[T any](read func() (T, error)) (T, error) {
	what, err := read()
	if errors.Is(err, errEnded) {
		what, err = read()
	}
	return what, err
}

// maxSurvey is how many may hang before others are not read because of it: more than one job has ranks on a node.
const maxSurvey = 64

// Processes describes each PID from proc (/proc), in order, within budget. A mere zombie is Gone. With a dev (/dev), so
// is a process that has no GPU device node below dev open or mapped: a driver that lists its PID means another process.
// The result has the reason if a process could not be read. The memory of the processes in skip is not read, because
// that hangs, perhaps beyond any signal. An empty Instance in skip stands for all processes.
func Processes(proc, dev string, pids []int, budget time.Duration, skip ...record.Instance) []record.Process {
	c := newCrew(budget - budget/forSteps)
	defer c.end()
	processes := (&survey{proc: proc, dev: dev, skip: skip, known: map[int]record.Process{}}).of(c, pids)
	backEnvironments(proc, budget/forSteps, pointers(processes))
	return processes
}

func pointers(all []record.Process) (to []*record.Process) {
	for i := range all {
		to = append(to, &all[i])
	}
	return to
}

// survey reads the given processes. What workers find after the time is up is not used.
type survey struct {
	*crew
	proc, dev string
	skip      []record.Instance
	mu        sync.Mutex
	known     map[int]record.Process
}

func (s *survey) of(c *crew, pids []int) []record.Process {
	s.crew = c
	for _, pid := range pids {
		s.known[pid] = record.Process{PID: pid, Why: "time was up before it was read"}
	}
	c.wait(c.send(maxSurvey, pids, s.look), "processes")
	s.mu.Lock()
	defer s.mu.Unlock()
	processes := make([]record.Process, len(pids))
	for i, pid := range pids {
		processes[i] = s.known[pid]
	}
	return processes
}

func (s *survey) keep(p record.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[p.PID] = p
}

// look reads a process. A panic becomes the reason why this process is unknown, and does not end the survey.
func (s *survey) look(pid int) {
	defer child.Recover(func(p *child.Panic) { s.keep(record.Process{PID: pid, Why: p.Error()}) })
	p := record.Process{PID: pid, Why: "does not answer: its entry in /proc was not read in time", Hangs: true}
	s.keep(p)
	err := fmt.Errorf("%d is no PID", pid)
	if slices.Contains(s.skip, record.Instance{PID: pid}) {
		err = errors.New("not read: an earlier read of its entry in /proc still hangs")
	} else if pid > 0 {
		p, err = twice(func() (record.Process, error) { return s.read(pid) })
	}
	if err != nil {
		p = record.Process{PID: pid, Why: err.Error()}
	}
	s.keep(p)
}

// read reads a process once. It returns errEnded if the parts may be of different processes. What the memory contains
// is read last, since that can hang: if a cgroup has proven the owner, the rest is valid without it.
func (s *survey) read(pid int) (record.Process, error) {
	f, err := openProcDir(s.proc, pid)
	if gone(err) {
		return record.Process{PID: pid, Gone: true}, nil
	}
	if err != nil {
		return record.Process{}, err
	}
	defer f.close()
	p, err := f.identify(pid)
	if err != nil {
		return record.Process{}, err
	}
	if skipsAll(s.skip) || slices.Contains(s.skip, record.Instance{PID: pid, Start: p.Start}) {
		return s.unread(p, "its memory was not read: an earlier read of it still hangs"), f.stillOf(p)
	}
	hung := s.unread(p, "it does not answer: its environment was not read in time")
	hung.Hangs = true
	s.keep(hung)
	p.EnvJobID, p.Notebook = parseEnviron(f.environ())
	if s.dev != "" && !p.Gone && p.State != ending {
		return s.listed(f, p)
	}
	return p, f.stillOf(p)
}

// listed returns a process that a driver lists. One without an open GPU is gone: the driver means an earlier process.
func (s *survey) listed(f procDir, p record.Process) (record.Process, error) {
	hung := p
	hung.DeviceUnknown, hung.Hangs = "it does not answer: what it has mapped was not read in time", true
	s.keep(hung)
	open, err := s.opens(f)
	if err != nil {
		p.DeviceUnknown = err.Error()
	}
	if open || err != nil {
		return p, f.stillOf(p)
	}
	now := f.process() // an ending process has already closed everything
	again, err := now.identify(p.PID)
	switch {
	case err != nil:
		return p, err
	case again.Start != p.Start:
		return p, errEnded
	case again.Gone || again.State == ending:
		return again, nil
	}
	return record.Process{PID: p.PID, Gone: true, Reused: true}, nil
}

// opens reports whether a process has a GPU device node open or mapped. Threads may have descriptors of their own.
func (s *survey) opens(f procDir) (bool, error) {
	var open held
	own, left := placeOf(s.proc, s.dev, f), maxLinks
	going := func() bool { left--; return left >= 0 && !open.any() && s.going() }
	add := func(target []byte) { open.add(target, own) }
	descriptors := func(of procDir) error { return of.descriptors(going, add) }
	for _, read := range []func() error{
		func() error { return descriptors(f) },
		func() error { return f.eachThread(descriptors) },
		func() error { return f.maps(going, func(line []byte) { add(parseMap(line)) }) },
	} {
		err := f.gap(read())
		if open.any() {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	if own.foreign() {
		return false, errors.New("it has a file system of its own, where a GPU may have any name")
	}
	return false, nil
}

// skipsAll reports whether the memory of no process may be read.
func skipsAll(skip []record.Instance) bool { return slices.Contains(skip, record.Instance{}) }

// unread returns p with the reason why its memory was not read. If a driver lists p, whether it means p is unknown too.
func (s *survey) unread(p record.Process, why string) record.Process {
	p.EnvUnknown = why
	if s.dev != "" && !p.Gone && p.State != ending {
		p.DeviceUnknown = why
	}
	return p
}

// identify reads what a process is, without its memory, which can hang. Later reads use the thread picked here.
func (f *procDir) identify(pid int) (p record.Process, err error) {
	first, err := f.process().stat()
	if err != nil {
		return p, whyNot(err)
	}
	asked, answer := f.ask(first)
	*f = asked
	uid, otherPIDs, err := f.status()
	if err != nil {
		return p, whyNot(err)
	}
	cgroup, err := f.text("cgroup", maxCgroup)
	if err != nil {
		return p, whyNot(err)
	}
	p = record.Process{
		PID: pid, Start: startOf(first), Name: first.Name, State: stateOf(first, answer), UID: uid, Exe: f.exe(),
		// A zombie without a living thread holds nothing: another process holds what is listed under its PID.
		Gone: answer.State == ended, OtherPIDs: otherPIDs && !f.mapsAlone(uid),
		Cgroup: slurm.OwnerOfCgroup(cgroup),
	}
	if !p.Cgroup.Found() && p.Cgroup.Conflict == "" {
		p.Service, p.Container = slurm.UnitOfCgroup(cgroup)
	}
	return p, nil
}

// stillOf returns errEnded unless the open directory is still that of the process.
func (f procDir) stillOf(p record.Process) error {
	last, err := f.process().stat()
	if err == nil && p.Why == "" && startOf(last) != p.Start {
		return errEnded
	}
	return whyNot(err)
}

func whyNot(err error) error {
	if gone(err) {
		return errEnded
	}
	return err
}

// Bounds of one search: in a task hook it has one second.
const (
	maxProcesses = 1 << 16
	maxLinks     = 100_000 // about 0.2 s
)

// OfJob is a process of a job, proven by its cgroup, or by user and environment together; a user alone proves no job.
type OfJob struct {
	PID  int    `json:"pid"`
	Name string `json:"name"` // comm, which the process chooses
}

// Named lists the job's processes with a name, in order of PID; with an error, those found.
func Named(proc, name string, uid uint32, in slurm.Owner) ([]OfJob, error) {
	return find(proc, func(st child.Stat, f procDir) bool { return st.Name == name && f.of(uid, in) })
}

// find lists those of the processes that this one's user may look into.
func find(proc string, fits func(child.Stat, procDir) bool) (found []OfJob, err error) {
	pids, err := listPIDs(proc)
	visit(proc, slices.DeleteFunc(pids, foreign(proc, os.Geteuid())), func(pid int, st child.Stat, f procDir) {
		if asked, _ := f.ask(st); fits(st, asked) {
			found = append(found, OfJob{pid, st.Name})
		}
	})
	return found, err
}

// foreign tells, by who owns a directory of /proc, what a user may not look into: one call where the files of a process
// take ten, and a node has a thousand processes of the kernel.
func foreign(proc string, euid int) func(pid int) bool {
	return func(pid int) bool {
		var st unix.Stat_t
		// Threat: another process may get the PID; those that remain are opened and looked into.
		return euid != 0 && (unix.Stat(filepath.Join(proc, strconv.Itoa(pid)), &st) != nil || st.Uid != uint32(euid))
	}
}

// eachProcess calls do for each process but the caller and those that end meanwhile; with an error, not for all.
func eachProcess(proc string, do func(pid int, st child.Stat, f procDir)) error {
	pids, err := listPIDs(proc)
	visit(proc, pids, do)
	return err
}

func visit(proc string, pids []int, do func(pid int, st child.Stat, f procDir)) {
	for _, pid := range pids {
		f, err := openProcDir(proc, pid)
		if err != nil {
			continue // ended
		}
		if st, err := f.stat(); err == nil {
			do(pid, st, f)
		}
		f.close()
	}
}

func (f procDir) of(uid uint32, in slurm.Owner) bool {
	text, err := f.text("cgroup", maxCgroup)
	owner := slurm.OwnerOfCgroup(text)
	switch {
	case err != nil || owner.Conflict != "" || owner.Daemon:
		return false
	case owner.Found():
		return owner.SLUID != "" && owner.SLUID == in.SLUID || owner.ID != 0 && owner.ID == in.ID
	case in.ID == 0:
		return false
	}
	own, _, err := f.status()
	job, _ := parseEnviron(f.environ())
	return err == nil && own == uid && job == in.ID
}

// listPIDs returns the PIDs of all processes but the caller, sorted; with an error only the first maxProcesses.
func listPIDs(proc string) (pids []int, err error) {
	dir, err := os.Open(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxProcesses)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	if len(names) == maxProcesses {
		err = fmt.Errorf("more than %d processes: not every one was looked into", maxProcesses)
	}
	return pids, err
}
