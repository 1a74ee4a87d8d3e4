package procscan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"bookend/internal/child"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// stepDaemon runs the steps of jobs on a node, as root and as the parent of each step's tasks.
const stepDaemon = "slurmstepd"

const maxTitle = 4 << 10 // bytes of a slurmstepd's title

// forSteps: budget/forSteps is reserved for steps, so that no process that hangs while it is read can use it up.
const forSteps = 4

// steps are the slurmstepd processes of a node, and the users of their children.
type steps struct {
	mu               sync.Mutex
	jobs             map[int]slurm.JobID      // of each slurmstepd, by PID
	uids             map[slurm.JobID][]uint32 // of the children of a job's slurmstepds
	whyJobs, whyUIDs string                   // Each is empty, or the reason why some may be missing
}

// backEnvironments checks the processes whose job is named by their environment and by no cgroup, and records which of
// those jobs have a step here. Threat: a process can write any job's id into its environment. It can neither run as
// root nor become the child of another job's step.
func backEnvironments(proc string, budget time.Duration, all []*record.Process) {
	var hints []*record.Process
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

// findSteps reads as little as possible of users' processes, so that a crowd of them cannot use up the time: each one's
// program, and its parent only if that could be the step of a job that a hint names.
func (c *crew) findSteps(proc string, hints []*record.Process) *steps {
	s := &steps{jobs: map[int]slurm.JobID{}, uids: map[slurm.JobID][]uint32{}}
	pids, err := listPIDs(proc)
	pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == 1 }) // a sandbox may deny it even to root
	s.whyJobs = c.each(proc, pids, s.readDaemon)
	if err != nil {
		s.whyJobs = err.Error()
	}
	s.mu.Lock() // an abandoned worker may still read
	needed := slices.ContainsFunc(hints, s.mayBack)
	s.mu.Unlock()
	if needed {
		s.whyUIDs = c.each(proc, pids, s.readChild)
	}
	return s
}

// each calls read for each process, and returns why some may not have been read.
func (c *crew) each(proc string, pids []int, read func(f procDir, pid int) error) string {
	var mu sync.Mutex
	var why string
	miss := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		why = err.Error()
	}
	unread, _ := c.await(c.send(workers(), pids, func(pid int) {
		f, err := openProcDir(proc, pid)
		if err == nil {
			defer f.close()
			err = read(f, pid)
		}
		if err != nil && !gone(err) && !errors.Is(err, errEnded) {
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

// readDaemon records the job of a slurmstepd. Of any other process it reads one link.
func (s *steps) readDaemon(f procDir, pid int) error {
	title, err := f.daemonTitle()
	if job := parseTitle(title); job != 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.jobs[pid] = job
	}
	return f.gap(err)
}

// readChild records the user of a process whose parent is a slurmstepd.
func (s *steps) readChild(f procDir, _ int) error {
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

// daemonTitle returns the title of a slurmstepd, empty for any other process. Threat: a process chooses its name and
// title; the path of its program comes from the kernel, and only root's processes count.
func (f procDir) daemonTitle() (string, error) {
	exe, errExe := f.link("exe")
	name := strings.TrimSuffix(path.Base(strings.TrimSuffix(exe, deleted)), "-wlm") // in Debian's packages
	if gone(errExe) || errExe == nil && name != stepDaemon {
		return "", nil // a thread of the kernel has no program
	}
	if uid, _, err := f.status(); err != nil || uid != 0 {
		return "", err
	}
	if errExe != nil {
		return "", errExe
	}
	return f.text("cmdline", maxTitle)
}

// parseTitle returns the job in a slurmstepd's title, "slurmstepd: [1234.batch]", or 0.
func parseTitle(title string) slurm.JobID {
	step, _ := strings.CutPrefix(title, stepDaemon+": [")
	end := strings.IndexFunc(step, func(r rune) bool { return r < '0' || r > '9' })
	id, _ := slurm.ParseJobID(step[:max(0, end)])
	return id
}

// BatchStep is a job's batch step: its slurmstepd, and the first process of the script. Both are zero if there is none.
type BatchStep struct{ Daemon, Script record.Instance }

// FindBatchStep finds the job's batch step that began after the job. It finds none if there is more than one: another
// cluster's slurmd on this host may have a job of the same id.
func (r JobRequest) FindBatchStep() (step BatchStep) {
	var daemons []record.Instance
	own := map[int][]record.Instance{} // the user's processes, by parent
	err := eachProcess(r.Proc, func(pid int, st child.Stat, f procDir) {
		i := record.Instance{PID: pid, Start: startOf(st)}
		if i.Start+record.Tick <= r.Since {
			return
		}
		if f.runsScriptOf(r.Owner) {
			daemons = append(daemons, i)
		} else if uid, _, err := f.status(); err == nil && uid == r.UID {
			own[st.Parent] = append(own[st.Parent], i)
		}
	})
	// Threat: a user can fork, and name a process, at will. What slurmstepd starts is its child, and the script is the
	// first of these: later ones are task hooks, and orphans of the step.
	byStart := func(a, b record.Instance) int { return cmp.Compare(a.Start, b.Start) }
	if err == nil && len(daemons) == 1 && len(own[daemons[0].PID]) > 0 {
		step = BatchStep{daemons[0], slices.MinFunc(own[daemons[0].PID], byStart)}
	}
	return step
}

// runsScriptOf reports whether a process is the slurmstepd of the job's batch step. A cgroup, if it has one, agrees.
func (f procDir) runsScriptOf(job slurm.Owner) bool {
	title, err := f.daemonTitle()
	if err != nil || !strings.HasPrefix(title, fmt.Sprintf("%s: [%d.%s]", stepDaemon, job.ID, slurm.StepBatch)) {
		return false
	}
	cgroup, err := f.text("cgroup", maxCgroup)
	owner := slurm.OwnerOfCgroup(cgroup)
	return err == nil && owner.Conflict == "" && (!owner.Found() || job.Same(owner))
}

// of returns the jobs with a step on this node that runs a process of p's user, or of any user if p is in a container.
func (s *steps) of(p record.Process) (jobs []slurm.JobID) {
	for job, uids := range s.uids {
		if p.Apart() || slices.Contains(uids, p.UID) {
			jobs = append(jobs, job)
		}
	}
	slices.Sort(jobs)
	return jobs
}

// mayBack reports whether a job that may be in p's environment has a step on this node, of any user.
func (s *steps) mayBack(p *record.Process) bool {
	jobs := slices.Collect(maps.Values(s.jobs))
	return p.EnvUnknown != "" && len(jobs) > 0 || slices.Contains(jobs, p.EnvJobID)
}

// backs returns why the job in p's environment may be on this node: a step of it here runs a process of p's user, or of
// any user if p is in a container (its user may not be the one who started it); or that could not be read.
func (s *steps) backs(p record.Process) string {
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
