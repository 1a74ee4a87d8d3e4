package holders

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"bookend/internal/finding"
	"bookend/internal/slurm"
)

// stepDaemon is the program that runs a step of a job on a node, as root and as the parent of the step's tasks.
const stepDaemon = "slurmstepd"

const maxTitle = 4 << 10 // bytes of a slurmstepd's title

// forSteps is the part of a budget that is kept for steps, so that no process which hangs while it is read can use it up.
const forSteps = 4

// steps are the slurmstepds of a node and the users of their processes.
type steps struct {
	proc string
	mu   sync.Mutex
	jobs map[int]slurm.JobID      // of the slurmstepds, by PID
	uids map[slurm.JobID][]uint32 // of the processes whose parents they are
	// Each is empty, or why some may be missing.
	whyJobs, whyUIDs string
}

// backEnvironments looks for the jobs that processes have in their environment and that no cgroup names, and notes those
// that have a step on this node. Threat: a process can write any job's id into its environment. It can neither run as
// root nor become the child of another job's step.
func backEnvironments(proc string, budget time.Duration, all []*finding.Process) {
	var hints []*finding.Process
	for _, p := range all {
		hint := p.EnvJobID != 0 || p.EnvUnknown != ""
		if hint && p.Why == "" && !p.Gone && !p.Cgroup.Found() && p.Cgroup.Conflict == "" {
			hints = append(hints, p)
		}
	}
	if len(hints) == 0 {
		return
	}
	c := newCrew(budget)
	defer c.end()
	s := c.findSteps(proc, hints)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range hints {
		switch why := cmp.Or(s.whyJobs, s.whyUIDs); {
		case p.EnvUnknown == "":
			p.EnvJobHere = s.backs(*p)
		case why != "":
			p.Why = p.EnvUnknown + "; which jobs it may name was not read: " + why
		default:
			p.Steps = s.of(*p)
		}
	}
}

// findSteps reads as little as it can of a user's processes, so that a crowd of them cannot use up the time: what each
// of them runs, and its parent only if that could be the step of a job that a hint names.
func (c *crew) findSteps(proc string, hints []*finding.Process) *steps {
	s := &steps{proc: proc, jobs: map[int]slurm.JobID{}, uids: map[slurm.JobID][]uint32{}}
	pids, err := listPIDs(proc)
	pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == 1 }) // a sandbox may keep even root from it
	s.whyJobs = c.each(pids, s.readDaemon)
	if err != nil {
		s.whyJobs = err.Error()
	}
	if s.needsUIDs(hints) {
		s.whyUIDs = c.each(pids, s.readChild)
	}
	return s
}

func (s *steps) needsUIDs(hints []*finding.Process) bool {
	s.mu.Lock() // a worker that was left behind may still read
	defer s.mu.Unlock()
	return slices.ContainsFunc(hints, s.mayBack)
}

// each calls read for each process, and returns why some may not have been read.
func (c *crew) each(pids []int, read func(pid int) error) string {
	var mu sync.Mutex
	var why string
	miss := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		why = err.Error()
	}
	unread, _ := c.await(c.send(workers(), pids, func(_ *reader, pid int) {
		if err := read(pid); err != nil && !gone(err) && !errors.Is(err, errEnded) {
			miss(fmt.Errorf("process %d: %w", pid, err))
		}
	}))
	if unread > 0 {
		miss(fmt.Errorf("%d of %d processes were not read", unread, len(pids)))
	}
	mu.Lock()
	defer mu.Unlock()
	return why
}

// readDaemon reads the job of a slurmstepd. Of any other process it reads one link.
func (s *steps) readDaemon(pid int) error {
	// Threat: PIDs are reused, so the link is read again in the open directory. It is not followed.
	exe, err := os.Readlink(filepath.Join(s.proc, strconv.Itoa(pid), "exe"))
	if gone(err) || err == nil && !isStepDaemon(exe) {
		return nil
	}
	f, err := openFolder(s.proc, pid)
	if err != nil {
		return err
	}
	defer f.close()
	job, err := f.stepOf()
	if job != 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.jobs[pid] = job
	}
	return f.gap(err)
}

// readChild reads the user of a process whose parent is a slurmstepd.
func (s *steps) readChild(pid int) error {
	f, err := openFolder(s.proc, pid)
	if err != nil {
		return err
	}
	defer f.close()
	st, err := f.stat()
	if err != nil {
		return f.gap(err)
	}
	s.mu.Lock()
	job := s.jobs[st.Parent]
	s.mu.Unlock()
	if job == 0 {
		return nil
	}
	uid, _, err := f.status()
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.uids[job] = append(s.uids[job], uid)
	}
	return f.gap(err)
}

// stepOf returns the job of a slurmstepd, 0 for any other process. Threat: a process chooses its name and its title; the
// path of the program that it runs is the kernel's word, and only root's processes count.
func (f folder) stepOf() (slurm.JobID, error) {
	exe, errExe := f.link("exe")
	if errExe == nil && !isStepDaemon(exe) {
		return 0, nil
	}
	if uid, _, err := f.status(); err != nil || uid != 0 {
		return 0, err
	}
	if errExe != nil {
		return 0, errExe
	}
	title, err := f.text("cmdline", maxTitle)
	return parseTitle(title), err
}

func isStepDaemon(exe string) bool { return path.Base(strings.TrimSuffix(exe, deleted)) == stepDaemon }

// parseTitle returns the job in a slurmstepd's title, "slurmstepd: [1234.batch]", or 0.
func parseTitle(title string) slurm.JobID {
	step, _ := strings.CutPrefix(title, stepDaemon+": [")
	end := strings.IndexFunc(step, func(r rune) bool { return r < '0' || r > '9' })
	id, _ := slurm.ParseJobID(step[:max(0, end)])
	return id
}

// of returns the jobs with a step here that runs a process of this user, or of any for a process in a container.
func (s *steps) of(p finding.Process) (jobs []slurm.JobID) {
	for job, uids := range s.uids {
		if p.Apart() || slices.Contains(uids, p.UID) {
			jobs = append(jobs, job)
		}
	}
	slices.Sort(jobs)
	return jobs
}

// mayBack reports whether a job that a process may have in its environment has a step here, of whatever user.
func (s *steps) mayBack(p *finding.Process) bool {
	for _, job := range s.jobs {
		if p.EnvUnknown != "" || job == p.EnvJobID {
			return true
		}
	}
	return false
}

// backs returns why the job in a process's environment may be on this node: it has a step here that runs a process of
// the same user, or of any user for a process in a container, whose own need not be the one who started it.
func (s *steps) backs(p finding.Process) string {
	why := s.whyJobs
	if s.mayBack(&p) {
		why = cmp.Or(why, s.whyUIDs)
	}
	if slices.Contains(s.of(p), p.EnvJobID) {
		return "a slurmstepd of it runs on this node"
	}
	if why != "" {
		return "whether it has a slurmstepd on this node could not be read: " + why
	}
	return ""
}
