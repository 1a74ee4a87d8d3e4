// Package attrib decides whose a process on a GPU is, and how sure that is. It is pure: /proc was read by
// package holders, Slurm's records by package state.
package attrib

import (
	"time"

	"bookend/internal/slurm"
)

// Process is what /proc said of one PID. Strings are raw: the process chose them.
type Process struct {
	PID  int    `json:"pid"`
	Gone bool   `json:"gone,omitempty"` // no such PID, or only its zombie: the driver lists a dead process
	Why  string `json:"why,omitempty"`  // why the rest is unknown, when it is
	// Start is the start time as CLOCK_BOOTTIME, from field 22 of stat, to the kernel's 10 ms tick.
	Start    time.Duration `json:"start_ns,omitempty"`
	UID      uint32        `json:"uid"`
	Name     string        `json:"name,omitempty"`    // comm
	State    string        `json:"state,omitempty"`   // R S D T Z …
	Cgroup   slurm.Owner   `json:"cgroup,omitzero"`   // the job its cgroup names, if any
	EnvJobID slurm.JobID   `json:"env_job,omitempty"` // SLURM_JOB_ID in its initial environment: forgeable
	// Service is the systemd unit of the system manager that its cgroup names ("dcgm.service"), Container the
	// container that it names; never both with a job. A user's own manager names neither.
	Service   string `json:"service,omitempty"`
	Container string `json:"container,omitempty"`
	Exe       string `json:"exe,omitempty"`        // target of its exe link
	OtherPIDs bool   `json:"other_pids,omitempty"` // it sees itself under another PID: another PID namespace
	Hangs     bool   `json:"hangs,omitempty"`      // its entry in /proc was still being read when time was up
}

// Instance names one process: a PID alone may be another's later.
type Instance struct {
	PID   int           `json:"pid"`
	Start time.Duration `json:"start_ns,omitempty"` // CLOCK_BOOTTIME; 0 where it is not known, which stands for any
}

// Level is the evidence behind an attribution, strongest first.
type Level string

// The levels of evidence.
const (
	ByCgroup      Level = "cgroup"      // the process is in the job's cgroup
	BySighting    Level = "sighting"    // an earlier hook saw it there
	ByExclusive   Level = "exclusive"   // it started between the job's two ends, same user, on a GPU given to it alone
	ByEnvironment Level = "environment" // its environment says so: a hint
	None          Level = "none"
)

// Weaker reports whether a level is less sure than another.
func (l Level) Weaker(than Level) bool { return rank[l] < rank[than] }

var rank = map[Level]int{None: 0, ByEnvironment: 1, ByExclusive: 2, BySighting: 3, ByCgroup: 4}
