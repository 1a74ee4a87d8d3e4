// Package config holds Bookend's configuration as values. Parse reads text; finding and trusting the file
// is the caller's work. configs/bookend.yaml lists every key with its default and is the manual.
package config

import (
	"time"

	"bookend/internal/code"
)

// DefaultFile is where the configuration lies unless BOOKEND_CONFIG names another file.
const DefaultFile = "/etc/bookend/bookend.yaml"

// Mode says whether findings may drain.
type Mode string

// The modes.
const (
	Observe Mode = "observe" // report, never drain: every site's first week
	Enforce Mode = "enforce"
)

// Action is what policy does with a finding.
type Action string

// The actions, weakest first.
const (
	Ignore Action = "ignore"
	Note   Action = "note"
	Warn   Action = "warn"
	Drain  Action = "drain"
)

// Config is the whole configuration. The zero value is not usable; Default is.
type Config struct {
	Version    int        `yaml:"version"`
	Mode       Mode       `yaml:"mode"`
	OnUnknown  Action     `yaml:"on_unknown"` // warn or drain: what Bookend's own faults lead to
	Paths      Paths      `yaml:"paths"`
	Backend    string     `yaml:"backend"` // the vendor backend's program
	NVIDIA     NVIDIA     `yaml:"nvidia"`
	Slurm      Slurm      `yaml:"slurm"`
	Deadlines  Deadlines  `yaml:"deadlines"`
	Settle     Settle     `yaml:"settle"`
	Thresholds Thresholds `yaml:"thresholds"`
	Look       Look       `yaml:"look"`
	Probe      Probe      `yaml:"probe"`
	CleanUp    CleanUp    `yaml:"clean_up"`
	Drain      DrainRules `yaml:"drain"`
	Policy     Policy     `yaml:"policy"`
	JobLog     JobLog     `yaml:"job_log"`
	Log        Log        `yaml:"log"`
	Metrics    Metrics    `yaml:"metrics"`
}

// Paths are the roots of everything Bookend touches.
type Paths struct {
	Proc string `yaml:"proc"` // /proc
	Sys  string `yaml:"sys"`  // /sys
	Dev  string `yaml:"dev"`  // /dev
	Run  string `yaml:"run"`  // /run/bookend: tmpfs, the only place hooks write themselves
	Var  string `yaml:"var"`  // /var/lib/bookend: closed records, written by children
	Log  string `yaml:"log"`  // /var/log/bookend
}

// NVIDIA are the keys for NVIDIA's driver.
type NVIDIA struct {
	NVMLLibrary string `yaml:"nvml_library"` // an absolute path; empty: libnvidia-ml.so.1 where the loader finds it
	CUDALibrary string `yaml:"cuda_library"` // an absolute path; empty: libcuda.so.1 where the loader finds it
	DriverProc  string `yaml:"driver_proc"`  // /proc/driver/nvidia
	// Accounting: the prolog switches the driver's accounting on where it is off. Nothing switches it off again.
	Accounting bool `yaml:"accounting"`
	// GPUOrder says who tells what Slurm's GPU index means: Slurm (auto), or the admin (map).
	GPUOrder GPUOrder `yaml:"gpu_order"`
	// GPUMap, for order map: Slurm's index to UUID or bus id.
	GPUMap map[int]string `yaml:"gpu_map"`
}

// GPUOrder names what Slurm's GPU index counts.
type GPUOrder string

// The orders.
const (
	OrderAuto  GPUOrder = "auto"  // slurmd -G
	OrderPCI   GPUOrder = "pci"   // the same: files of earlier versions have it
	OrderMinor GPUOrder = "minor" // likewise
	OrderMap   GPUOrder = "map"
)

// Slurm are the facts about the site that Slurm does not tell its hooks.
type Slurm struct {
	// SharedPartitions hand one GPU to several jobs (shards, MPS, oversubscription).
	SharedPartitions []string `yaml:"shared_partitions"`
	// Shards says whether GPUs may be given out in parts that look like whole GPUs to a hook.
	Shards          Shards `yaml:"shards"`
	GresConf        string `yaml:"gres_conf"`          // for shards auto; empty: where slurmd of this node looks
	RunInJobBackend bool   `yaml:"run_in_job_backend"` // may hooks under PrologFlags=RunInJob start the backend
	Scontrol        string `yaml:"scontrol"`           // for drain.reason_by: of slurmd's own version
	Slurmd          string `yaml:"slurmd"`             // for slurmd -G; empty: the running slurmd's own program
}

// Shards says whether a GPU may be given out in parts.
type Shards string

// The answers.
const (
	ShardsAuto Shards = "auto" // gres.conf tells; where it cannot be read, unknown
	ShardsYes  Shards = "yes"
	ShardsNo   Shards = "no"
)

// Deadlines bound each hook, from process start; a step gets the lesser of its cap and what is left.
type Deadlines struct {
	Prolog      HookDeadline  `yaml:"prolog"`
	Epilog      HookDeadline  `yaml:"epilog"`
	HealthCheck CheckDeadline `yaml:"health_check"`
	Task        Duration      `yaml:"task"`
}

// CheckDeadline is the health check's time and the caps of its steps. Slurm ends it after 60 s.
type CheckDeadline struct {
	Total   Duration `yaml:"total"`
	Driver  Duration `yaml:"driver"`  // one watch of the cards
	Scan    Duration `yaml:"scan"`    // reading /proc
	Slurm   Duration `yaml:"slurm"`   // asking Slurm, where there is something to ask
	Outputs Duration `yaml:"outputs"` // state, log, records to disk
}

// Hook is the same as the deadline of a root hook, in which asking Slurm takes the place of the job's log: between the
// last look and the outputs.
func (d CheckDeadline) Hook() HookDeadline {
	return HookDeadline{Total: d.Total, Driver: d.Driver, Scan: d.Scan, Append: d.Slurm, Outputs: d.Outputs}
}

// HookDeadline is one root hook's time and the caps of its steps.
type HookDeadline struct {
	Total   Duration `yaml:"total"`
	Driver  Duration `yaml:"driver"`  // backend with settle
	Scan    Duration `yaml:"scan"`    // reading /proc; in the prolog part of Driver's time
	Probe   Duration `yaml:"probe"`   // the test allocation; in the prolog part of Driver's time
	Append  Duration `yaml:"append"`  // the job's log; a prolog appends nothing
	Outputs Duration `yaml:"outputs"` // state, log
}

// Duration is a time.Duration written as text ("3.5s") in the file.
type Duration time.Duration

// Settle says how long to watch a GPU that is not clean.
type Settle struct {
	Prolog SettleTimes `yaml:"prolog"`
	Epilog SettleTimes `yaml:"epilog"`
}

// SettleTimes bound the watching in one hook.
type SettleTimes struct {
	Max  Duration `yaml:"max"`
	Flat Duration `yaml:"flat"`
}

// Size is a number of bytes written as text ("512MiB") in the file.
type Size uint64

// Thresholds are where memory that should be free begins to count.
type Thresholds struct {
	Report    Size `yaml:"report"`     // 32MiB
	Drain     Size `yaml:"drain"`      // 512MiB
	PerClient Size `yaml:"per_client"` // driver memory a listed process holds beyond its listed figure
}

// Look says what root hooks look at beyond the job's own cards.
type Look struct {
	// Holders: search /proc for who has a card open when something on it is unexplained.
	Holders bool `yaml:"holders"`
	// Neighbours: look once at the node's other cards, for processes of jobs that were not given them.
	Neighbours bool `yaml:"neighbours"`
	// Health: read each card's condition and the driver's accounting at a job's end.
	Health bool `yaml:"health"`
	// KernelLog: read the kernel's log at both ends, for Xids and for processes that it ended for want of memory.
	KernelLog bool `yaml:"kernel_log"`
}

// Probe says when cards are tested by allocating the largest block that can be had, and how.
type Probe struct {
	At         ProbeAt            `yaml:"at"`
	Partitions map[string]ProbeAt `yaml:"partitions"` // a partition's own At
	Gap        Size               `yaml:"gap"`        // free memory beyond the largest block that is worth telling
	// MaxAge is how long a start trusts the test at an earlier job's end, while nothing has changed since.
	MaxAge    Duration `yaml:"max_age"`
	Exclusive bool     `yaml:"exclusive"` // test cards in EXCLUSIVE_PROCESS mode too
	MIG       bool     `yaml:"mig"`       // test MIG instances too
}

// ProbeAt names the hooks that test.
type ProbeAt string

// When cards are tested.
const (
	ProbeNever  ProbeAt = "never"
	ProbeProlog ProbeAt = "prolog"
	ProbeEpilog ProbeAt = "epilog"
	ProbeBoth   ProbeAt = "both"
)

// CleanUp says whether the epilog ends processes that a cgroup proved to be the ended job's.
type CleanUp struct {
	Enabled bool     `yaml:"enabled"`
	Grace   Duration `yaml:"grace"` // between TERM and KILL
}

// DrainRules bound what a drain may do.
type DrainRules struct {
	ReasonBy    ReasonBy `yaml:"reason_by"`
	MaxRestarts int      `yaml:"max_restarts"` // a job restarted this often is not stopped by a prolog drain again
	Resume      Resume   `yaml:"resume"`
}

// Resume says whether the health check puts a node back to work that Bookend drained.
type Resume struct {
	Enabled bool `yaml:"enabled"`
	After   int  `yaml:"after"` // health checks in a row that find the cause gone
}

// ReasonBy says who writes the drain reason.
type ReasonBy string

// The writers of the reason.
const (
	ReasonByHealthcheck ReasonBy = "healthcheck"
	ReasonByHook        ReasonBy = "hook"
	ReasonByNone        ReasonBy = "none"
)

// Policy maps finding codes to actions, by phase; a partition's own map comes first.
type Policy struct {
	Prolog map[code.Code]Action `yaml:"prolog"`
	Epilog map[code.Code]Action `yaml:"epilog"`
	// HealthCheck never has Drain: Slurm only logs the health check's exit code.
	HealthCheck map[code.Code]Action       `yaml:"health_check"`
	Partitions  map[string]PartitionPolicy `yaml:"partitions"`
}

// PartitionPolicy is one partition's own policy.
type PartitionPolicy struct {
	Mode   Mode                 `yaml:"mode"`
	Prolog map[code.Code]Action `yaml:"prolog"`
	Epilog map[code.Code]Action `yaml:"epilog"`
}

// JobLog says what reaches the user.
type JobLog struct {
	// Privacy: with own, nothing of another user's job or process but its existence reaches a user.
	Privacy Privacy   `yaml:"privacy"`
	Start   Verbosity `yaml:"start"` // TaskProlog in the batch or interactive step
	Steps   Verbosity `yaml:"steps"` // TaskProlog in srun steps
	End     Verbosity `yaml:"end"`   // the epilog's append
	// Why: the table of causes in the end report. Unclean: where the job failed, ran out of memory, or a cause is found.
	Why Verbosity `yaml:"why"`
	// Read: look through the end of the job's output, as the user, for the frameworks' out-of-memory messages.
	Read bool `yaml:"read"`
}

// Privacy says how much of other users' jobs a report names.
type Privacy string

// The levels of privacy.
const (
	PrivacyOwn Privacy = "own"  // other users' jobs are "another job"
	PrivacyAll Privacy = "jobs" // their job ids are named
)

// Verbosity says when a report is printed.
type Verbosity string

// The verbosities.
const (
	Always  Verbosity = "always"
	Unclean Verbosity = "unclean"
	Never   Verbosity = "never"
)

// Log is Bookend's own log.
type Log struct {
	Level  LogLevel  `yaml:"level"`  // debug, info, warning, error
	Format LogFormat `yaml:"format"` // text or json
	File   bool      `yaml:"file"`   // paths.log/bookend.log
	Syslog bool      `yaml:"syslog"` // /dev/log, where present
}

// Metrics are what a monitoring system collects.
type Metrics struct {
	// Textfile is read by the textfile collector of Prometheus' node_exporter: an absolute path that ends in TextfileSuffix,
	// in a folder that only root can write, as are those above it. Empty: none is written.
	Textfile string `yaml:"textfile"`
}

// TextfileSuffix ends the names of the files that node_exporter reads.
const TextfileSuffix = ".prom"

// LogLevel is the least severe level that is logged.
type LogLevel string

// The levels of the log.
const (
	Debug   LogLevel = "debug"
	Info    LogLevel = "info"
	Warning LogLevel = "warning"
	Error   LogLevel = "error"
)

// LogFormat is how a line of the log is written.
type LogFormat string

// The formats of the log.
const (
	Text LogFormat = "text" // key=value pairs
	JSON LogFormat = "json"
)

// SlurmdPIDFile is Slurm's default for SlurmdPidFile.
const SlurmdPIDFile = "/var/run/slurmd.pid"

// SlurmFolders are where slurmd's configuration lies on a node unless SLURM_CONF says otherwise: fetched from
// slurmctld (configless), or as packages and Slurm's own build install it.
func SlurmFolders() []string {
	return []string{"/run/slurm/conf", "/etc/slurm", "/etc/slurm-llnl", "/var/spool/slurmd/conf-cache", "/usr/local/etc"}
}

// SlurmdPrograms are where slurmd lies unless it runs and says so: as packages and Slurm's own build install it.
func SlurmdPrograms() []string {
	return []string{"/usr/sbin/slurmd", "/usr/local/sbin/slurmd", "/opt/slurm/sbin/slurmd", "/usr/bin/slurmd"}
}
