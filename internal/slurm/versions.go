package slurm

import (
	"fmt"
	"slices"
	"strings"
)

// Version is one of Slurm's: 24.05.8 is {24, 5, 8}.
type Version [3]int

// The versions that Bookend was tried with. Older ones do not tell hooks how a job ended; of newer ones nothing is
// known.
var (
	Oldest = Version{22, 5}
	Newest = Version{26, 5}
)

// Since when Slurm does what Bookend depends on. Hooks are not told the version: they go by what is there, and doctor
// by what slurmd says.
var (
	// TellsStart: hooks are told when a job's run started, which tells runs of one job id apart.
	TellsStart = Version{23, 2}
	// ConfiglessHooks: hooks named without a path are handed out by slurmctld, and `scontrol reconfigure` makes slurmd
	// read all of its configuration again.
	ConfiglessHooks = Version{23, 11}
	// SeveralHooks: all lines of Prolog= and Epilog= count, not one of them. From here on PrologFlags=RunInJob puts
	// hooks into the job's own cgroup.
	SeveralHooks = Version{24, 5}
	// TaskHookFails: a task hook that is missing, as in a container, fails the job's tasks. From here on `slurmd -G`
	// starts the cgroup plugin, which lifts the limits of the cgroup that it is in, and knows CgroupPlugin=disabled.
	// Earlier versions end without a message on that value.
	TaskHookFails = Version{24, 11}
	// HookTimeouts: PrologTimeout= and EpilogTimeout= besides PrologEpilogTimeout=.
	HookTimeouts = Version{25, 5}
	// TellsRun: hooks are told the SLUID of a job's run, and the name of sbatch's default output; %r and %S in it are
	// known, and %N is the node's name, not the host's. slurmctld also sends task hooks.
	TellsRun            = Version{25, 11}
	ConfiglessTaskHooks = Version{25, 11}
)

// Has reports whether a version has what began with another; the last number is not looked at.
func (v Version) Has(since Version) bool { return slices.Compare(v[:2], since[:2]) >= 0 }

// String is a version as Slurm writes it.
func (v Version) String() string { return fmt.Sprintf("%s.%d", v.Series(), v[2]) }

// Series is a version without its last number.
func (v Version) Series() string { return fmt.Sprintf("%d.%02d", v[0], v[1]) }

// ParseVersion reads "slurm 22.05.8" or "slurm-wlm 24.11.5".
func ParseVersion(text string) (v Version, ok bool) {
	fields := strings.Fields(text)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "slurm") {
		return v, false
	}
	number, _, _ := strings.Cut(fields[1], "-")
	n, err := fmt.Sscanf(strings.ReplaceAll(number, ".", " "), "%d %d %d", &v[0], &v[1], &v[2])
	return v, n >= 2 && (err == nil || n == 2)
}
