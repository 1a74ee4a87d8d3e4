package hook

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// The variables that tell of a process where it began. MPS finds the sockets of its daemon by the last.
const (
	jobVariable     = "SLURM_JOB_ID"
	nodeVariable    = "SLURMD_NODENAME"
	clusterVariable = "SLURM_CLUSTER_NAME"
	contextVariable = "SLURM_SCRIPT_CONTEXT"
	pipeVariable    = "CUDA_MPS_PIPE_DIRECTORY"
)

// ownProcesses begins to list the processes of the job's user. Inside a job nothing is read, and root's are the node's.
func ownProcesses(a *node.Access) (wait func() ([]int, error)) {
	return child.Async(func() ([]int, error) {
		if a.InJob || a.Job.UID == 0 {
			return nil, nil
		}
		return procscan.Owned(a.Config.Paths.Proc, a.Job.UID)
	})
}

// leftRunning returns the case with the processes that the job left, or may have left, outside its cgroup. Those that a
// finding of j names are known. Without a start it is unknown what began in the job's time, and the components of a
// heterogeneous job have one id in their environments.
func leftRunning(a *node.Access, c judge.Case, j judge.Judgement, own func() ([]int, error)) judge.Case {
	start := c.Past.Run.Start
	pids, err := own()
	if start == nil || !c.Past.Turn.Leads() || c.Job.HetJobID != 0 || len(pids) == 0 || err != nil ||
		c.Past.Run.Epoch.OtherBoot(c.Seen.Epoch) || hangsAt(a, pids) {
		return c
	}
	ended := span{
		job:  slurm.Owner{ID: a.Job.ID, SLUID: a.Job.SLUID, Node: a.Job.Node},
		from: cmp.Or(start.Began, start.At), to: a.Deadline.Start, cluster: a.Env.Getenv(clusterVariable),
		exclusive: c.Past.Run.Job.Exclusive && c.Job.Exclusive,
	}
	request := procscan.SurvivorRequest{
		Proc: a.Config.Paths.Proc, UID: a.Job.UID, PIDs: pids,
		Variables: []string{jobVariable, nodeVariable, clusterVariable, contextVariable, pipeVariable},
	}
	all, err := procscan.Survivors.Ask(request, a.Deadline.Left(time.Second, a.Reserve()))
	c.Faults = append(c.Faults, a.AbandonedReader(err, nil)...)
	if err != nil {
		return c
	}
	c.Faults = append(c.Faults, ended.findings(all, j.Found)...)
	return c
}

// hangsAt reports whether a reader of /proc that cannot be killed hangs at one of the processes, or may do so.
func hangsAt(a *node.Access, pids []int) bool {
	at, blocked := state.HungAt(procscan.Survivors.Name, node.StuckReaders(a))
	return blocked || a.Unkept() || slices.ContainsFunc(at, func(i record.Instance) bool {
		return i.PID == 0 || slices.Contains(pids, i.PID)
	})
}

// isNamed reports whether a finding names a process.
func isNamed(pid int, found []record.Finding) bool {
	is := func(h record.Holder) bool { return h.PID == pid }
	return slices.ContainsFunc(found, func(f record.Finding) bool {
		return f.Holder != nil && is(*f.Holder) || slices.ContainsFunc(f.Candidates, is)
	})
}

// span is an ended job and its time on the node (CLOCK_BOOTTIME).
type span struct {
	cluster   string
	job       slurm.Owner
	from, to  time.Duration
	exclusive bool // it had the node to itself
}

// origin is what a process has to do with an ended job.
type origin int

const (
	unrelated origin = iota
	byUser           // of the job or of something else of its user
	boxed            // in a container of a daemon that users share: its uid proves no user
	byJob
)

// findings returns a finding for each origin that some of the user's processes have which no other finding names.
func (s span) findings(all []procscan.Survivor, others []record.Finding) (found []record.Finding) {
	alone := !slices.ContainsFunc(all, func(p procscan.Survivor) bool { return s.ofOther(p) })
	for _, tt := range []struct {
		of          origin
		text, doubt string
	}{
		{byJob, "this job left %s running", ""},
		{byUser, fmt.Sprintf("job %d or something else of its user left %%s running", s.job.ID),
			"what left it is unknown"},
		{boxed, "a container began while this job ran and is still running: %s", "whose container it is is unknown"},
	} {
		left := roots(slices.DeleteFunc(slices.Clone(all), func(p procscan.Survivor) bool {
			return s.origin(p, alone) != tt.of || isNamed(p.PID, others)
		}))
		if len(left) == 0 {
			continue
		}
		text := fmt.Sprintf(tt.text, names(left))
		f := record.Saw(catalog.Survivor, text+"; end: "+commands(left), "no process of the job goes on")
		if tt.doubt != "" {
			f.AddDoubt("%s", tt.doubt)
		}
		found = append(found, f)
	}
	return found
}

// ofOther reports a process of another of the user's jobs, which may go on.
func (s span) ofOther(p procscan.Survivor) bool {
	owner := slurm.OwnerOfCgroup(p.Cgroups)
	if owner.Found() || owner.Conflict != "" {
		return !owner.Same(s.job)
	}
	return p.Environ[jobVariable] != "" && !s.claims(p)
}

// claims reports whether the environment says that it is the job's, on this node. Slurm gives each task all three, and
// a shell of salloc no node. Threat: a user forges it, and so blames only a job of their own: the process has
// that user's uid.
func (s span) claims(p procscan.Survivor) bool {
	return p.Environ[jobVariable] == fmt.Sprint(s.job.ID) && p.Environ[nodeVariable] == s.job.Node &&
		p.Environ[clusterVariable] == s.cluster
}

// origin decides where a process comes from. alone means that no other job of the user is known to be on the node. What
// is not clear is unrelated: a login, a service, a process with a terminal, and one that a hook of Slurm's started.
func (s span) origin(p procscan.Survivor, alone bool) origin {
	owner := slurm.OwnerOfCgroup(p.Cgroups)
	service, container := slurm.UnitOfCgroup(p.Cgroups)
	login, manager := loginOf(p.Cgroups)
	switch {
	case p.Start <= s.from || p.Start+record.Tick > s.to:
		return unrelated
	case owner.Found() || owner.Conflict != "": // Slurm ends what stays in a job's cgroup, or says that it cannot
		return unrelated
	case container != "":
		if s.exclusive {
			return boxed
		}
		return unrelated
	case p.Apart, login, service != "", p.Terminal, strings.HasSuffix(p.Environ[contextVariable], "_slurmd"),
		p.Environ[jobVariable] != "" && !s.claims(p):
		return unrelated
	case manager:
		if kindOf(p) != "" || strings.Contains(p.Cgroups, "/run-") { // of systemd-run
			return byUser
		}
		return unrelated
	case s.claims(p):
		return byJob
	case alone && p.Parent == 1 && !strings.Contains(p.Cgroups, ".service"): // of ssh or cron, or Slurm's own
		return byUser
	}
	return unrelated
}

// loginOf reports whether a process is of a login, and whether it is of its user's systemd manager, which may have no
// login.
func loginOf(cgroups string) (login, manager bool) {
	for path := range slurm.CgroupPaths(cgroups) {
		login = login || strings.HasPrefix(path, "/user.slice")
		manager = manager || strings.Contains(path, "/user@")
	}
	return login && !manager, manager
}

// kindOf returns what a process is by its name, which selects advice alone: empty for no container and no MPS daemon.
func kindOf(p procscan.Survivor) string {
	_, container := slurm.UnitOfCgroup(p.Cgroups)
	switch {
	case container != "":
		return "container"
	case p.Name == "conmon":
		return "podman"
	case strings.HasPrefix(p.Name, "nvidia-cuda-mps"): // as much of it as a name has room for
		return "mps"
	case strings.HasPrefix(p.Name, "starter"):
		return "apptainer"
	}
	return ""
}

// roots returns the processes without those that end with their parent, which the command of a tool ends.
func roots(left []procscan.Survivor) []procscan.Survivor {
	return slices.DeleteFunc(slices.Clone(left), func(p procscan.Survivor) bool {
		return slices.ContainsFunc(left, func(above procscan.Survivor) bool {
			return above.PID == p.Parent && commandOf(above) != ""
		})
	})
}

const mostNames, mostCommands = 3, 5

// names lists processes by PID and name.
func names(left []procscan.Survivor) string {
	text := "process"
	if len(left) > 1 {
		text = fmt.Sprintf("%d processes", len(left))
	}
	for i, p := range left[:min(len(left), mostNames)] {
		text += [...]string{" ", ", "}[min(i, 1)] + fmt.Sprintf("%d (%s)", p.PID, plain(p.Name))
	}
	if len(left) > mostNames {
		text += ", ..."
	}
	return text
}

// plain replaces what a user may have put into a name to forge a line, a command or another part of the text.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+/", r) {
			return r
		}
		return '_'
	}, name)
}

// commands returns what ends the processes, by their kinds: for the first, as many as a line has room for.
func commands(left []procscan.Survivor) string {
	var all []string
	kill := "kill"
	for _, p := range left {
		command := commandOf(p)
		switch {
		case command == "" && len(kill) < 80:
			kill += fmt.Sprintf(" %d", p.PID)
		case command != "" && len(all) < mostCommands && !slices.Contains(all, command):
			all = append(all, command)
		}
	}
	if kill != "kill" {
		all = append(all, kill)
	}
	return strings.Join(all, "; ")
}

// commandOf returns the command of the tool that started a process, empty if kill ends it.
func commandOf(p procscan.Survivor) string {
	arguments := strings.Split(p.Arguments, "\x00")
	switch kindOf(p) {
	case "container":
		_, container := slurm.UnitOfCgroup(p.Cgroups)
		engine, id, _ := strings.Cut(container, ":")
		if _, known := catalog.HolderKindOf(engine); known && engine != "container" {
			return engine + " stop " + id
		}
		return "stop container " + id + " with the tool that started it"
	case "podman":
		at := slices.Index(arguments, "-c") + 1
		if id := arguments[min(at, len(arguments)-1)]; at > 0 && len(id) == 64 && plain(id) == id {
			return "podman stop " + id[:12]
		}
	case "mps":
		pipe := p.Environ[pipeVariable]
		if pipe != "" && plain(pipe) == pipe {
			pipe = pipeVariable + "=" + pipe + " "
		} else if pipe != "" {
			return ""
		}
		return "echo quit | " + pipe + "nvidia-cuda-mps-control"
	case "apptainer":
		_, name, _ := strings.Cut(arguments[0], " [")
		if name = strings.TrimSuffix(name, "]"); name != "" && plain(name) == name {
			return "apptainer instance stop " + name
		}
	}
	return ""
}
