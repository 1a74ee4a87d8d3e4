package config

import (
	"time"

	"bookend/internal/code"
)

const mib = 1 << 20

// Default returns the configuration as shipped.
func Default() Config {
	return Config{
		Version:    1,
		Mode:       Observe,
		OnOwnError: Warn,
		DrainOn:    []Group{code.Leftovers, code.Faults},
		Paths: Paths{
			Proc: "/proc", Sys: "/sys", Dev: "/dev",
			Run: "/run/bookend", Var: "/var/lib/bookend", Log: "/var/log/bookend",
		},
		Backend: "/usr/libexec/bookend/bookend-gpu",
		NVIDIA:  NVIDIA{DriverProc: "/proc/driver/nvidia"},
		AMD:     AMD{Backend: "/usr/libexec/bookend/bookend-amd"},
		Slurm:   Slurm{Shards: ShardsAuto, Scontrol: "/usr/bin/scontrol"},
		Deadlines: Deadlines{
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
		},
		Settle: Settle{
			Prolog: SettleTimes{Max: seconds(3), Flat: seconds(2)},
			// Orphaned PyTorch workers go away by themselves after 3 s (measured): Flat must be longer.
			Epilog: SettleTimes{Max: seconds(6), Flat: seconds(3.5)},
		},
		Thresholds: Thresholds{Report: 32 * mib, Drain: 512 * mib},
		// A healthy idle card's largest block was measured to be 2 MiB below the free memory, and never more than 3.
		Probe:   Probe{At: ProbeEpilog, Every: seconds(600), AfterJobs: 100, Gap: 64 * mib},
		Record:  Record{Every: seconds(1)}, // a sample of a GPU was measured to take 0.3 ms of a processor
		CleanUp: CleanUp{Grace: seconds(2)},
		Drain:   DrainRules{ReasonBy: ReasonByHook, MaxRestarts: 2, Resume: Resume{After: 3}},
		JobLog:  JobLog{Show: ShowSummary, Privacy: PrivacyOwn, Read: true},
		Log:     Log{Level: Info, Format: Text, File: true, Syslog: true},
		Metrics: Metrics{Textfile: "/var/lib/bookend/bookend.prom"},
	}
}

func seconds(s float64) Duration { return Duration(s * float64(time.Second)) }
