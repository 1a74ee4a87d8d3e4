package holders

import (
	"errors"
	"fmt"
	"path"
	"slices"
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

// steps are the processes of a node, of which some are slurmstepds and their children.
type steps struct {
	proc string
	mu   sync.Mutex
	all  map[int]member // by PID
	why  string         // why some may be missing
}

type member struct {
	parent int
	uid    uint32
	job    slurm.JobID // of a slurmstepd
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
	s := c.findSteps(proc)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range hints {
		switch {
		case p.EnvUnknown == "":
			p.EnvJobHere = s.backs(*p)
		case s.why != "":
			p.Why = p.EnvUnknown + "; which jobs it may name was not read: " + s.why
		default:
			p.Steps = s.of(*p)
		}
	}
}

func (c *crew) findSteps(proc string) *steps {
	s := &steps{proc: proc, all: map[int]member{}}
	pids, err := listPIDs(proc)
	s.miss(err)
	c.wait(c.send(workers(), pids, func(_ *reader, pid int) {
		if err := s.read(pid); err != nil && !gone(err) && !errors.Is(err, errEnded) {
			s.miss(fmt.Errorf("process %d: %w", pid, err))
		}
	}), "steps of jobs")
	s.miss(c.over.Err())
	return s
}

func (s *steps) miss(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.why = err.Error()
	}
}

func (s *steps) read(pid int) error {
	f, err := openFolder(s.proc, pid)
	if err != nil {
		return err
	}
	defer f.close()
	m, err := f.member()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[pid] = m
	if pid == 1 { // a sandbox may keep even root from it, and it is no slurmstepd
		return nil
	}
	return f.gap(err)
}

func (f folder) member() (m member, err error) {
	st, err := f.stat()
	if err != nil {
		return m, err
	}
	m.parent = st.Parent
	if m.uid, _, err = f.status(); err == nil && m.uid == 0 {
		m.job, err = f.stepOf()
	}
	return m, err
}

// stepOf returns the job of a slurmstepd, 0 for any other process of root's. Threat: a process chooses its name and its
// title; the path of the program that it runs is the kernel's word.
func (f folder) stepOf() (slurm.JobID, error) {
	exe, err := f.link("exe")
	if err != nil || path.Base(strings.TrimSuffix(exe, deleted)) != stepDaemon {
		return 0, err
	}
	title, err := f.text("cmdline", maxTitle)
	return parseTitle(title), err
}

// parseTitle returns the job in a slurmstepd's title, "slurmstepd: [1234.batch]", or 0.
func parseTitle(title string) slurm.JobID {
	step, _ := strings.CutPrefix(title, stepDaemon+": [")
	end := strings.IndexFunc(step, func(r rune) bool { return r < '0' || r > '9' })
	id, _ := slurm.ParseJobID(step[:max(0, end)])
	return id
}

// of returns the jobs with a step here that runs a process of this user, or of any for a process in a container.
func (s *steps) of(p finding.Process) (jobs []slurm.JobID) {
	for _, m := range s.all {
		if job := s.all[m.parent].job; job != 0 && (m.uid == p.UID || p.Apart()) {
			jobs = append(jobs, job)
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs)
}

// backs returns why the job in a process's environment may be on this node: it has a step here that runs a process of
// the same user, or of any user for a process in a container, whose own need not be the one who started it.
func (s *steps) backs(p finding.Process) string {
	if slices.Contains(s.of(p), p.EnvJobID) {
		return "a slurmstepd of it runs on this node"
	}
	if s.why != "" {
		return "whether it has a slurmstepd on this node could not be read: " + s.why
	}
	return ""
}
