package config

import (
	"time"

	"bookend/internal/code"
)

const mib = 1 << 20

// Default returns the configuration as shipped. Each call builds its own maps.
func Default() Config {
	return Config{
		Version:   1,
		Mode:      Observe,
		OnUnknown: Warn,
		Paths: Paths{
			Proc: "/proc", Sys: "/sys", Dev: "/dev",
			Run: "/run/bookend", Var: "/var/lib/bookend", Log: "/var/log/bookend",
		},
		Backend: "/usr/libexec/bookend/bookend-gpu",
		NVIDIA: NVIDIA{
			DriverProc: "/proc/driver/nvidia",
			GPUOrder:   OrderAuto,
		},
		Slurm: Slurm{Shards: ShardsAuto, Scontrol: "/usr/bin/scontrol"},
		Deadlines: Deadlines{
			// slurmd logs a prolog as slow from 5 s on and tells the user from 8 s on.
			Prolog: HookDeadline{Total: seconds(5), Driver: seconds(4), Scan: seconds(1), Probe: seconds(2), Outputs: seconds(0.5)},
			// The whole node takes no new job while an epilog runs.
			Epilog: HookDeadline{Total: seconds(15), Driver: seconds(7), Scan: seconds(3), Probe: seconds(3), Append: seconds(1), Outputs: seconds(0.5)},
			// Slurm ends a health check after 60 s.
			HealthCheck: CheckDeadline{Total: seconds(45), Driver: seconds(15), Scan: seconds(3), Slurm: seconds(10), Outputs: seconds(2)},
			Task:        seconds(1),
		},
		Settle: Settle{
			Prolog: SettleTimes{Max: seconds(3), Flat: seconds(2)},
			// Orphaned PyTorch workers go away by themselves after 3 s (measured): flat must be longer.
			Epilog: SettleTimes{Max: seconds(6), Flat: seconds(3.5)},
		},
		// A listed process uses 8-9 MiB more than its listed figure (measured, driver 580).
		Thresholds: Thresholds{Report: 32 * mib, Drain: 512 * mib, PerClient: 9 * mib},
		Look:       Look{Holders: true, Neighbours: true, Health: true, KernelLog: true},
		// A healthy idle card's largest block was measured to be 2 MiB below the free memory, and never more than 3.
		Probe:   Probe{At: ProbeEpilog, Gap: 64 * mib, MaxAge: Duration(24 * time.Hour)},
		CleanUp: CleanUp{Grace: seconds(2)},
		Drain:   DrainRules{ReasonBy: ReasonByHealthcheck, MaxRestarts: 2, Resume: Resume{After: 3}},
		Policy:  shippedPolicy(),
		JobLog:  JobLog{Privacy: PrivacyOwn, Start: Always, Steps: Unclean, End: Always, Why: Unclean, Read: true},
		Log:     Log{Level: Info, Format: Text, File: true, Syslog: true},
		Metrics: Metrics{Textfile: "/var/lib/bookend/bookend.prom"},
	}
}

func seconds(s float64) Duration { return Duration(s * float64(time.Second)) }

func shippedPolicy() Policy {
	p := Policy{Prolog: make(map[code.Code]Action), Epilog: make(map[code.Code]Action), HealthCheck: make(map[code.Code]Action)}
	for _, row := range shipped {
		p.Prolog[row.code], p.Epilog[row.code], p.HealthCheck[row.code] = row.prolog, row.epilog, row.check()
	}
	return p
}

// shippedRow is what a finding leads to, by phase.
type shippedRow struct {
	code           code.Code
	prolog, epilog Action
}

// check is what a finding of the health check leads to: the same as at a job's end, but for what a job's end drains for.
func (r shippedRow) check() Action {
	if r.epilog == Drain {
		return Warn
	}
	return r.epilog
}

// A drain at the start takes the node from a job that has just got it, so there only a card that cannot be
// used at all drains; at the end also what would spoil the next job.
var shipped = []shippedRow{
	{code.Orphan, Warn, Drain},
	{code.Residue, Warn, Drain},
	{code.Phantom, Warn, Drain},
	{code.Dirty, Warn, Note},
	{code.Foreign, Warn, Warn},
	{code.Stray, Warn, Drain},
	{code.Moving, Warn, Warn},
	{code.Lost, Drain, Drain},
	{code.Missing, Warn, Warn},
	{code.Unread, Warn, Warn},
	{code.Trespass, Warn, Warn},
	{code.Unjudged, Note, Note},
	{code.Ended, Note, Note},
	{code.Gap, Warn, Warn},
	{code.Blocked, Warn, Warn},
	{code.Broken, Warn, Warn},
	{code.Recovery, Warn, Drain},
	{code.RemapFailed, Warn, Drain},
	{code.RemapPending, Warn, Warn},
	{code.Pages, Warn, Warn},
	{code.ECC, Warn, Warn},
	{code.Fabric, Warn, Warn},
	{code.BAR1, Note, Warn},
	{code.Xid, Note, Warn},
	{code.XidFatal, Warn, Drain},
	{code.Throttle, Note, Note},
	{code.Persistence, Note, Note},

	{code.NoDriver, Warn, Warn},
	{code.Mismatch, Warn, Warn},
	{code.DriverKO, Warn, Warn},
	{code.Old, Note, Note},
	{code.Hang, Warn, Warn},
	{code.Stuck, Warn, Warn},
	{code.Slow, Warn, Warn},

	{code.BackendMissing, Warn, Warn},
	{code.BackendRefused, Warn, Warn},
	{code.BackendCrash, Warn, Warn},
	{code.BackendGarbage, Warn, Warn},
	{code.BackendVersion, Warn, Warn},
	{code.BackendFlood, Warn, Warn},

	{code.Untraced, Note, Note},
	{code.Ambiguous, Warn, Warn},
	{code.NoRecord, Note, Note},
	{code.Again, Note, Note},
	{code.RunInJob, Note, Note},
	{code.BadEnv, Warn, Warn},
	{code.BadConfig, Warn, Warn},
	{code.StateDamage, Warn, Warn},
	{code.StateWrite, Warn, Warn},
	{code.StateLock, Note, Note},
	{code.LogFailed, Warn, Warn},
	{code.Output, Note, Note},
	{code.ReasonFailed, Warn, Warn},
	{code.Panicked, Warn, Warn},
	{code.Deadline, Warn, Warn},
}
