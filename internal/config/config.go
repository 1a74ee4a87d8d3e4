// Package config holds Bookend's configuration as values. Parse reads text; its caller must check the file's owner.
package config

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/slurm"
)

const DefaultFile = "/etc/bookend/bookend.yaml" // unless BOOKEND_CONFIG names another

type (
	Mode      string           // whether findings may drain
	Action    = catalog.Action // what policy does with a finding
	Group     = catalog.Group  // a kind of findings that drain by default
	Shards    string           // whether a GPU may be given out in parts
	ProbeAt   string           // the hooks that test
	ReasonBy  string           // which program writes the drain reason
	Show      string           // how much is written to a job's log
	Privacy   string           // how much a report reveals about other users' jobs
	LogLevel  string           // the least severe level that is logged
	LogFormat string           // how a line of the log is written
)

const (
	Observe Mode = "observe" // report, never drain: for a site's first week
	Enforce Mode = "enforce"

	Ignore = catalog.ToIgnore // the weakest action
	Note   = catalog.ToNote
	Warn   = catalog.ToWarn
	Repeat = catalog.ToRepeat
	Drain  = catalog.ToDrain

	ShardsAuto Shards = "auto" // as gres.conf says; unknown if it cannot be read
	ShardsYes  Shards = "yes"
	ShardsNo   Shards = "no"

	ProbeNever  ProbeAt = "never"
	ProbeProlog ProbeAt = "prolog"
	ProbeEpilog ProbeAt = "epilog"
	ProbeBoth   ProbeAt = "both"

	ReasonByHook ReasonBy = "hook"
	ReasonByNone ReasonBy = "none"

	ShowProblems Show = "problems" // what is wrong, at the start and at the end
	ShowSummary  Show = "summary"  // and one line at an end if nothing is wrong
	ShowAll      Show = "all"      // and one line at such a start
	ShowNone     Show = "none"

	PrivacyOwn Privacy = "own"  // other users' jobs are "another job"
	PrivacyAll Privacy = "jobs" // their job ids are named

	Debug   LogLevel = "debug"
	Info    LogLevel = "info"
	Warning LogLevel = "warning"
	Error   LogLevel = "error"

	Text LogFormat = "text" // key=value pairs
	JSON LogFormat = "json"
)

// Config is the whole configuration. The zero value is not usable; Default returns one that is.
type Config struct {
	Version    int        `yaml:"version"`
	Mode       Mode       `yaml:"mode" allow:"observe enforce"`
	OnOwnError Action     `yaml:"on_own_error" allow:"warn drain"`   // what Bookend's own faults lead to
	DrainOn    []Group    `yaml:"drain_on" allow:"leftovers faults"` // other groups only warn
	Paths      Paths      `yaml:"paths"`
	Backend    string     `yaml:"backend" allow:"path"` // the program of the NVIDIA backend
	NVIDIA     NVIDIA     `yaml:"nvidia"`
	AMD        AMD        `yaml:"amd"`
	Slurm      Slurm      `yaml:"slurm"`
	Deadlines  Deadlines  `yaml:"deadlines"`
	Settle     Settle     `yaml:"settle"`
	Thresholds Thresholds `yaml:"thresholds"`
	Probe      Probe      `yaml:"probe"`
	Record     Record     `yaml:"record"`
	CleanUp    CleanUp    `yaml:"clean_up"`
	Drain      DrainRules `yaml:"drain"`
	Strikes    Strikes    `yaml:"strikes"`
	Reset      Reset      `yaml:"reset"`
	Repair     Repair     `yaml:"repair"`
	Policy     Policy     `yaml:"policy"`
	JobLog     JobLog     `yaml:"job_log"`
	Log        Log        `yaml:"log"`
	Metrics    Metrics    `yaml:"metrics"`
	Health     Health     `yaml:"health"`
	// HelpURL and Contact are in every report of a problem: the site's page for its users, and where they get help.
	HelpURL string `yaml:"help_url" allow:"line or empty"`
	Contact string `yaml:"contact" allow:"line or empty"`
	// Spool is a directory of each job's user, on a file system that the hosts share where users work: it begins with
	// %h, the user's home, or contains %u, the user's name. If empty, none is written.
	Spool string `yaml:"spool" allow:"spool or empty"`

	Unused []Problem `yaml:"-"` // keys in the file that only earlier versions used, and keys' former names
}

type Paths struct {
	Proc string `yaml:"proc" allow:"path"` // /proc
	Sys  string `yaml:"sys" allow:"path"`  // /sys
	Dev  string `yaml:"dev" allow:"path"`  // /dev
	Run  string `yaml:"run" allow:"path"`  // /run/bookend: a tmpfs, the only place that hooks write to themselves
	Var  string `yaml:"var" allow:"path"`  // /var/lib/bookend: closed records, written by children
	Log  string `yaml:"log" allow:"path"`  // /var/log/bookend
}

type NVIDIA struct {
	// The libraries. If empty, the loader finds libnvidia-ml.so.1 and libcuda.so.1.
	NVMLLibrary string `yaml:"nvml_library" allow:"path or empty"`
	CUDALibrary string `yaml:"cuda_library" allow:"path or empty"`
	DriverProc  string `yaml:"driver_proc" allow:"path or empty"` // empty: the backend lists the GPUs
	// GPUMap maps Slurm's index to a UUID or bus id. If it is empty, Slurm's own numbering applies.
	GPUMap map[int]string `yaml:"gpu_map" allow:"name"`
	// MPSUIDs are the users as whom the site itself starts MPS, such as in a prolog.
	MPSUIDs []int `yaml:"mps_uids" allow:"0 to 4294967295"`
}

type AMD struct {
	Backend string `yaml:"backend" allow:"path"` // the program of the AMD backend
	// HIPLibrary is ROCm's library for test allocations by bookend-hip, next to the backend. If empty, there are none.
	HIPLibrary string `yaml:"hip_library" allow:"path or empty"`
}

// amd is AMD's name as a vendor, which package gpu has too.
const amd = "amd"

// Tests reports whether there is a test allocation for a vendor's GPUs.
func (c Config) Tests(vendor string) bool { return vendor != amd || c.AMD.HIPLibrary != "" }

// BackendOf returns the program that looks at a vendor's GPUs, or the one that tests them, and its options.
func (c Config) BackendOf(vendor string, tests bool) (program string, o map[string]string) {
	if vendor == amd {
		o = map[string]string{"proc": c.Paths.Proc, "sys": c.Paths.Sys}
		if !tests {
			return c.AMD.Backend, o
		}
		o["hip_library"] = c.AMD.HIPLibrary
		return path.Join(path.Dir(c.AMD.Backend), "bookend-hip"), o
	}
	o = map[string]string{"nvml_library": c.NVIDIA.NVMLLibrary}
	if tests {
		o["cuda_library"] = c.NVIDIA.CUDALibrary
	}
	maps.DeleteFunc(o, func(_, path string) bool { return path == "" }) // the backend finds it by itself
	return c.Backend, o
}

// Slurm holds the facts about the site that Slurm does not pass to its hooks.
type Slurm struct {
	SharedPartitions []string `yaml:"shared_partitions" allow:"name"`  // they give one GPU to several jobs
	Shards           Shards   `yaml:"shards" allow:"auto yes no"`      // parts of GPUs, which look like whole GPUs
	GresConf         string   `yaml:"gres_conf" allow:"path or empty"` // empty: where this node's slurmd reads it
	RunInJobBackend  bool     `yaml:"run_in_job_backend"`              // ask the backend under PrologFlags=RunInJob
	Scontrol         string   `yaml:"scontrol" allow:"path"`           // for drain.reason_by; of slurmd's own version
	Slurmd           string   `yaml:"slurmd" allow:"path or empty"`    // empty: the running slurmd's own program
}

// Deadlines limit each hook, counted from process start; a step gets the lesser of its limit and what is left.
type Deadlines struct {
	Prolog      HookDeadline  `yaml:"prolog"`
	Epilog      HookDeadline  `yaml:"epilog"`
	HealthCheck CheckDeadline `yaml:"health_check"`
	Task        Duration      `yaml:"task" allow:"100ms to 10s"`
}

// CheckDeadline is the time limit of the health check and of its steps. Slurm ends the health check after 60 s.
type CheckDeadline struct {
	Total   Duration `yaml:"total" allow:"1s to 55s"`        // leaves its children time to end
	Driver  Duration `yaml:"driver" allow:"500ms to 55s"`    // one watch of the GPUs
	Scan    Duration `yaml:"processes" allow:"100ms to 55s"` // reading /proc
	Slurm   Duration `yaml:"slurm" allow:"100ms to 55s"`     // calls to Slurm, if any
	Outputs Duration `yaml:"records" allow:"100ms to 55s"`   // state, log, records to disk
}

// Hook returns these limits in the form of a root hook's: calls to Slurm take the place of the job's log.
func (d CheckDeadline) Hook() HookDeadline {
	return HookDeadline{Total: d.Total, Driver: d.Driver, Scan: d.Scan, Append: d.Slurm, Outputs: d.Outputs}
}

// HookDeadline is the time limit of one root hook and of its steps.
type HookDeadline struct {
	Total   Duration `yaml:"total" allow:"1s to 10m"`
	Driver  Duration `yaml:"driver" allow:"500ms to 10m"`    // the backend, with settling
	Scan    Duration `yaml:"processes" allow:"100ms to 10m"` // reading /proc; in a prolog part of Driver
	Probe   Duration `yaml:"probe" allow:"100ms to 10m"`     // the test allocation; in a prolog likewise
	Append  Duration `yaml:"job_log" allow:"0s to 10m"`      // the job's log; a prolog appends nothing
	Outputs Duration `yaml:"records" allow:"100ms to 10m"`   // state, log
}

type Duration time.Duration // "3.5s" in the file

// Settle is how long to sample a GPU that is not clean.
type Settle struct {
	Prolog SettleTimes `yaml:"prolog"`
	Epilog SettleTimes `yaml:"epilog"`
}

type SettleTimes struct {
	Max  Duration `yaml:"max"`
	Flat Duration `yaml:"stable" allow:"200ms to 10m"`
}

type Size uint64

// Thresholds are the amounts from which memory that should be free counts.
type Thresholds struct {
	Report Size `yaml:"report" allow:"1MiB to 1048576GiB"` // as a finding
	Drain  Size `yaml:"drain"`                             // as a finding that may drain
}

// Bytes are both, for record.NewLimits.
func (t Thresholds) Bytes() (report, drain uint64) { return uint64(t.Report), uint64(t.Drain) }

// Probe says when GPUs are tested by allocating the largest possible block.
type Probe struct {
	At ProbeAt `yaml:"at" allow:"never prolog epilog both"`
	// An end tests a GPU again after so much time, or so many jobs; 0 means at every end (health.TestRecord.Worn).
	Every     Duration `yaml:"every" allow:"0s to 24h"`
	AfterJobs int      `yaml:"after_jobs" allow:"1 to 100000"`
	// Pattern is how often an end that tests also writes and reads a GPU's memory; 0: only after a sign of a fault.
	Pattern Duration `yaml:"pattern" allow:"0s to 720h"`
	// Gap is the free memory beyond the largest block that is worth reporting: healthy GPUs had up to 3 MiB (measured).
	Gap Size `yaml:"gap" allow:"4MiB to 1024GiB"`
}

type Record struct {
	Every Duration `yaml:"every" allow:"0s to 60s"` // between two samples; 0: nothing is recorded
}

// CleanUp says whether the epilog ends processes that a cgroup proves to be the ended job's.
type CleanUp struct {
	Enabled bool     `yaml:"enabled"`
	Grace   Duration `yaml:"grace" allow:"100ms to 10s"` // between SIGTERM and SIGKILL
	// SharedMemory: the epilog removes what the job, and surely nothing else, has left in /dev/shm.
	SharedMemory bool `yaml:"shm"`
}

// KillWait is for a process to end after SIGKILL: teardown of 141 GiB took 0.15 s, in many pieces 0.4 s (measured).
func (CleanUp) KillWait() time.Duration { return time.Second }

type DrainRules struct {
	ReasonBy    ReasonBy `yaml:"reason_by" allow:"healthcheck hook none"`
	MaxRestarts int      `yaml:"max_restarts" allow:"0 to 1000"` // after so many, a prolog drain does not stop the job
	Resume      Resume   `yaml:"resume"`
}

// Resume says whether the health check resumes a node that Bookend drained.
type Resume struct {
	Enabled bool `yaml:"enabled"`
	After   int  `yaml:"after" allow:"1 to 1000"` // health checks in a row that find the cause gone
}

// Times is After, or 0 if a node is never resumed.
func (r Resume) Times() int {
	if r.Enabled {
		return r.After
	}
	return 0
}

// Strikes says how many faults within which time make a GPU a repeat offender. The history on disk has 90 days.
type Strikes struct {
	Faults int      `yaml:"faults" allow:"2 to 1000"`
	Within Duration `yaml:"within" allow:"1h to 2160h"`
}

// Policy maps codes to actions that differ from the catalogue's; a partition's own map comes first.
type Policy struct {
	Prolog map[catalog.Code]Action `yaml:"prolog" allow:"ignore note warn repeat drain"`
	Epilog map[catalog.Code]Action `yaml:"epilog" allow:"ignore note warn repeat drain"`
	// HealthCheck contains Drain for catalog.External alone: Slurm only logs its exit code. Epilog has other drains.
	HealthCheck map[catalog.Code]Action    `yaml:"health_check" allow:"ignore note warn drain"`
	Partitions  map[string]PartitionPolicy `yaml:"partitions"`
}

type PartitionPolicy struct {
	Mode   Mode                    `yaml:"mode,omitempty" allow:"observe enforce"`
	Prolog map[catalog.Code]Action `yaml:"prolog,omitempty" allow:"ignore note warn repeat drain"`
	Epilog map[catalog.Code]Action `yaml:"epilog,omitempty" allow:"ignore note warn repeat drain"`
}

// Action returns what a hook does with a finding: as the partition says, else the file, else the catalogue.
func (c Config) Action(phase slurm.Context, partition string, of catalog.Code) Action {
	entry, known := catalog.Lookup(of)
	own := c.Policy.Partitions[partition]
	first, then, shipped := own.Epilog, c.Policy.Epilog, entry.End
	switch phase {
	case slurm.Prolog:
		first, then, shipped = own.Prolog, c.Policy.Prolog, entry.Start
	case slurm.HealthCheck:
		first, then, shipped = nil, c.Policy.HealthCheck, entry.Check()
	}
	if action := cmp.Or(first[of], then[of]); action != "" {
		return action
	}
	if !known || (shipped == Drain || shipped == Repeat) && !slices.Contains(c.DrainOn, entry.Group()) {
		return Warn
	}
	return shipped
}

// JobLog says what users see. A single word in its place is its Show.
type JobLog struct {
	Show    Show    `yaml:"show" allow:"problems summary all none"`
	Privacy Privacy `yaml:"privacy" allow:"own jobs"`
	Read    bool    `yaml:"read"`  // the end of the job's output, as the user, for frameworks' out-of-memory messages
	Peaks   bool    `yaml:"peaks"` // at a batch job's start: if its user's last runs used more than its GPU has
}

type Log struct {
	Level  LogLevel  `yaml:"level" allow:"debug info warning error"`
	Format LogFormat `yaml:"format" allow:"text json"`
	File   bool      `yaml:"file"`   // paths.log/bookend.log
	Syslog bool      `yaml:"syslog"` // /dev/log, if present
}

type Metrics struct {
	// Textfile is for the textfile collector of Prometheus' node_exporter: an absolute path that ends in
	// TextfileSuffix, in a directory that, like those above it, only root can write. If empty, none is written.
	Textfile string `yaml:"textfile" allow:"textfile or empty"`
	JobMap   JobMap `yaml:"job_map"`
}

// JobMap says which exporters of GPU metrics learn which job has which GPU. Directories, created, are as Textfile's.
type JobMap struct {
	DCGM    string `yaml:"dcgm" allow:"path or empty"`    // of dcgm-exporter --hpc-job-mapping-dir
	Gpustat string `yaml:"gpustat" allow:"path or empty"` // of jobstats' exporter
	Metric  bool   `yaml:"metric"`                        // bookend_gpu_job_info in Textfile
}

const TextfileSuffix = ".prom"
const SlurmdPIDFile = "/var/run/slurmd.pid"
const NVIDIAPrograms = "/usr/bin" // where the driver installs nvidia-smi and nvidia-bug-report.sh

const mib = 1 << 20

func Default() Config {
	return Config{
		Version:    1,
		Mode:       Observe,
		OnOwnError: Warn,
		DrainOn:    []Group{catalog.Leftovers, catalog.Faults},
		Paths: Paths{
			Proc: "/proc", Sys: "/sys", Dev: "/dev",
			Run: "/run/bookend", Var: "/var/lib/bookend", Log: "/var/log/bookend",
		},
		Backend:   "/usr/libexec/bookend/bookend-gpu",
		NVIDIA:    NVIDIA{DriverProc: "/proc/driver/nvidia"},
		AMD:       AMD{Backend: "/usr/libexec/bookend/bookend-amd"},
		Slurm:     Slurm{Shards: ShardsAuto, Scontrol: "/usr/bin/scontrol"},
		Deadlines: deadlines(),
		Settle: Settle{
			Prolog: SettleTimes{Max: seconds(3), Flat: seconds(2)},
			// Orphaned PyTorch workers end by themselves after 3 s (measured): Flat must be longer.
			Epilog: SettleTimes{Max: seconds(6), Flat: seconds(3.5)},
		},
		Thresholds: Thresholds{Report: 32 * mib, Drain: 512 * mib},
		// A healthy idle GPU's largest block was measured to be 2 MiB below the free memory, and never more than 3.
		Probe:   Probe{At: ProbeEpilog, Every: seconds(600), AfterJobs: 100, Gap: 64 * mib},
		Record:  Record{Every: seconds(1)}, // a sample of a GPU was measured to take 0.3 ms of CPU time
		CleanUp: CleanUp{Grace: seconds(2)},
		Drain:   DrainRules{ReasonBy: ReasonByHook, MaxRestarts: 2, Resume: Resume{After: 3}},
		Strikes: Strikes{Faults: 3, Within: seconds(30 * 24 * 3600)},
		Reset:   Reset{NVIDIASMI: NVIDIAPrograms + "/nvidia-smi", Systemctl: "/usr/bin/systemctl"},
		JobLog:  JobLog{Show: ShowSummary, Privacy: PrivacyOwn, Read: true},
		Log:     Log{Level: Info, Format: Text, File: true, Syslog: true},
		Metrics: Metrics{Textfile: "/var/lib/bookend/bookend.prom"},
		Health:  Health{External{Limit: seconds(10)}},
	}
}

func deadlines() Deadlines {
	return Deadlines{
		// slurmd logs a prolog as slow from 5 s on and tells the user from 8 s on.
		Prolog: HookDeadline{
			Total: seconds(5), Driver: seconds(4), Scan: seconds(1), Probe: seconds(2), Outputs: seconds(0.5),
		},
		// The whole node takes no new job while an epilog runs.
		Epilog: HookDeadline{
			Total: seconds(15), Driver: seconds(7), Scan: seconds(3), Probe: seconds(3),
			Append: seconds(1), Outputs: seconds(0.5),
		},
		// Slurm ends a health check after 60 s.
		HealthCheck: CheckDeadline{
			Total: seconds(45), Driver: seconds(15), Scan: seconds(3), Slurm: seconds(10), Outputs: seconds(2),
		},
		Task: seconds(1),
	}
}

func seconds(s float64) Duration { return Duration(s * float64(time.Second)) }
