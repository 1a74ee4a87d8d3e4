package leftover

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/record"
	"bookend/internal/slurm"
)

// The variables that tell of a process where it began. MPS finds the sockets of its daemon by the last.
const (
	jobVariable     = "SLURM_JOB_ID"
	nodeVariable    = "SLURMD_NODENAME"
	ClusterVariable = "SLURM_CLUSTER_NAME"
	contextVariable = "SLURM_SCRIPT_CONTEXT"
	pipeVariable    = "CUDA_MPS_PIPE_DIRECTORY"
)

// Variables are the names of those that matter in a process's environment.
func Variables() []string {
	return []string{jobVariable, nodeVariable, ClusterVariable, contextVariable, pipeVariable}
}

// Survivor is a process that may have outlived a job of its user. Threat: it chose its name, arguments and environment.
type Survivor struct {
	PID       int           `json:"pid"`
	Parent    int           `json:"parent"`
	Start     time.Duration `json:"start_ns"` // CLOCK_BOOTTIME, rounded down to a tick
	Name      string        `json:"name"`
	Terminal  bool          `json:"terminal,omitempty"` // has a controlling terminal
	Apart     bool          `json:"apart,omitempty"`    // is in a PID namespace of its own
	Cgroups   string        `json:"cgroups"`            // the text of its cgroup file
	Arguments string        `json:"arguments"`          // each ends with NUL
	// Environ has the variables that were asked for, as far as they are in its environment.
	Environ map[string]string `json:"environ"`
}

// Span is an ended job and its time on the node (CLOCK_BOOTTIME).
type Span struct {
	Cluster  string
	Job      slurm.Owner
	From, To time.Duration
}

// origin is what a process has to do with an ended job.
type origin int

const (
	unrelated origin = iota
	byUser           // of the job or of something else of its user
	byJob
)

// Report is what is said of processes of one origin. Doubt is why that is not certain, empty if it is.
type Report struct{ Text, Doubt string }

// Reports returns what is said of the user's processes: of each origin, those that are not named elsewhere.
func (s Span) Reports(all []Survivor, isNamed func(pid int) bool) (reports []Report) {
	alone := !slices.ContainsFunc(all, s.ofOther)
	for _, tt := range []struct {
		of          origin
		text, doubt string
	}{
		{byJob, "this job left %s running", ""},
		{byUser, fmt.Sprintf("job %d or something else of its user left %%s running", s.Job.ID),
			"what left it is unknown"},
	} {
		left := roots(slices.DeleteFunc(slices.Clone(all), func(p Survivor) bool {
			return s.origin(p, alone) != tt.of || isNamed(p.PID)
		}))
		if len(left) > 0 {
			reports = append(reports, Report{fmt.Sprintf(tt.text, names(left)) + "; end: " + commands(left), tt.doubt})
		}
	}
	return reports
}

// ofOther reports a process of another of the user's jobs, which may go on.
func (s Span) ofOther(p Survivor) bool {
	owner := slurm.OwnerOfCgroup(p.Cgroups)
	if owner.Found() || owner.Conflict != "" {
		return !owner.Same(s.Job)
	}
	return p.Environ[jobVariable] != "" && !s.claims(p)
}

// claims reports whether the environment says that it is the job's, on this node. Slurm gives each task all three, and
// a shell of salloc no node. Threat: a user forges it, and so blames only a job of their own: the process has
// that user's uid.
func (s Span) claims(p Survivor) bool {
	return p.Environ[jobVariable] == fmt.Sprint(s.Job.ID) && p.Environ[nodeVariable] == s.Job.Node &&
		p.Environ[ClusterVariable] == s.Cluster
}

// origin decides where a process comes from. alone means that no other job of the user is known to be on the node. What
// is not clear is unrelated: a login, a service, a container of a daemon that users share, a process with a terminal,
// and one that a hook of Slurm's started.
func (s Span) origin(p Survivor, alone bool) origin {
	owner := slurm.OwnerOfCgroup(p.Cgroups)
	service, container := slurm.UnitOfCgroup(p.Cgroups)
	login, manager := loginOf(p.Cgroups)
	switch {
	case p.Start <= s.From || p.Start+record.Tick > s.To:
		return unrelated
	case owner.Found() || owner.Conflict != "": // Slurm ends what stays in a job's cgroup, or says that it cannot
		return unrelated
	case container != "", p.Apart, login, service != "", p.Terminal,
		strings.HasSuffix(p.Environ[contextVariable], "_slurmd"), p.Environ[jobVariable] != "" && !s.claims(p):
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

func loginOf(cgroups string) (login, manager bool) {
	for path := range slurm.CgroupPaths(cgroups) {
		login = login || strings.HasPrefix(path, "/user.slice")
		manager = manager || strings.Contains(path, "/user@")
	}
	return login && !manager, manager
}

// kindOf returns what a process is by its name, which selects advice alone: empty for no container and no MPS daemon.
func kindOf(p Survivor) string {
	switch {
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
func roots(left []Survivor) []Survivor {
	return slices.DeleteFunc(slices.Clone(left), func(p Survivor) bool {
		return slices.ContainsFunc(left, func(above Survivor) bool {
			return above.PID == p.Parent && commandOf(above) != ""
		})
	})
}

const mostNames = 3

func names(left []Survivor) string {
	text := "process"
	if len(left) > 1 {
		text = fmt.Sprintf("%d processes", len(left))
	}
	for i, p := range left[:min(len(left), mostNames)] {
		text += [...]string{" ", ", "}[min(i, 1)] + fmt.Sprintf("%d (%s)", p.PID, plainName(p.Name))
	}
	if len(left) > mostNames {
		text += ", ..."
	}
	return text
}

// plainName replaces what a user may have put into a name to forge a line, a command or another part of the text.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(plain+"+/", r) {
			return r
		}
		return '_'
	}, name)
}

// commands returns what ends the processes, by their kinds: for the first, as many as a line of a report has room for.
// One that is cut short could end another process.
func commands(left []Survivor) string {
	all, kill := "", "kill"
	for _, p := range left {
		command := commandOf(p)
		switch next := command + "; "; {
		case command == "" && len(kill) < 40:
			kill += fmt.Sprintf(" %d", p.PID)
		case command != "" && len(all)+len(next) <= 150 && !strings.Contains(all, next):
			all += next
		}
	}
	if kill == "kill" {
		return strings.TrimSuffix(all, "; ")
	}
	return all + kill
}

// isWord reports whether a text means itself to a shell, is no option of a command, and leaves room for the command.
func isWord(text string) bool {
	return text != "" && len(text) <= 80 && text[0] != '-' && plainName(text) == text
}

// commandOf returns the command of the tool that started a process, empty if kill ends it.
func commandOf(p Survivor) string {
	arguments := strings.Split(p.Arguments, "\x00")
	switch kindOf(p) {
	case "podman":
		at := slices.Index(arguments, "-c") + 1
		if id := arguments[min(at, len(arguments)-1)]; at > 0 && len(id) == 64 && isWord(id) {
			return "podman stop " + id[:12]
		}
	case "mps":
		const control = "nvidia-cuda-mps-control"
		switch pipe := p.Environ[pipeVariable]; {
		case pipe == "":
			return "echo quit | " + control
		case isWord(pipe):
			return "echo quit | " + pipeVariable + "=" + pipe + " " + control
		}
	case "apptainer":
		_, name, _ := strings.Cut(arguments[0], " [")
		if name = strings.TrimSuffix(name, "]"); isWord(name) {
			return "apptainer instance stop " + name
		}
	}
	return ""
}
