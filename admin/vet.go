package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/condition"
	"bookend/internal/config"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
)

func vetCommand(a *app) *cobra.Command {
	file, probe := "", false
	cmd := &cobra.Command{
		Use: "vet", Args: none, RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := a.config()
			// Threat: none: the kernel's own file.
			own, _ := os.ReadFile(filepath.Join(cfg.Paths.Proc, "self/cgroup"))
			job := slurm.TaskFromEnv(a.env.Getenv, string(own)).Job()
			if !job.Found() {
				return misused(cmd, "want a job: srun bookend vet")
			}
			return vet(a, cfg, job, file, probe)
		},
	}
	cmd.Flags().StringVar(&file, "exclude-file", "", "add a cordoned node to `FILE`, for srun --exclude=./FILE")
	cmd.Flags().BoolVar(&probe, "probe", false, "ask the driver if there is no report of this job")
	return cmd
}

func vet(a *app, cfg config.Config, job slurm.Owner, file string, probe bool) error {
	node := nodeOf(a.env, cfg.Paths, "")
	// Threat: none: the file is opened as the calling user, and only the job's own user can read it.
	r, err := state.Users{Run: cfg.Paths.Run, Node: node}.Report(uint32(a.env.EUID), job)
	none := err != nil || r.End != "" // an end is that of an earlier run
	avoid, why := r.Avoid, r.Why
	switch {
	case none && probe:
		avoid, why = vetNow(a, cfg, job, node)
	case none:
		avoid, why = record.CannotTell, "there is no report of this job's start here (--probe asks the driver)"
	case avoid == "":
		why = "the report of this job's start is of an earlier release"
	case avoid == record.No && r.Since != "":
		avoid, why = record.CannotTell, r.Since
	}
	if avoid == record.Yes && file != "" {
		if err := safefile.AddLine(file, node); err != nil {
			a.warn(err)
		}
	}
	ends := map[record.Answer]ending{record.No: {exitOK, "Vetted: "}, record.Yes: {exitTrouble, "Cordon: "}}
	end, proven := ends[avoid]
	if !proven {
		end = ending{exitUntold, "Unknown: "}
	}
	a.say("%s", strings.TrimSpace(end.text+node+" "+why))
	return ending{code: end.code}
}

// vetNow asks the driver as the job's user, twice if the first sample speaks against a GPU: memory outlives its process
// for a moment. It judges only GPUs that are the job's for certain.
func vetNow(a *app, cfg config.Config, job slurm.Owner, node string) (avoid record.Answer, why string) {
	all, who := records{env: a.env, cfg: cfg}, record.Owner{Job: job.ID, SLUID: job.SLUID, UID: uint32(a.env.EUID)}
	for again := range 2 {
		time.Sleep(time.Duration(again) * 2 * time.Second)
		now, its := all.askDriver(driverTime, true), a.env.Getenv("SLURM_GPUS_ON_NODE")
		if n := fmt.Sprint(len(now.Snapshot.Readings)); now.Problem != "" || n != its {
			return record.CannotTell, cmp.Or(now.Problem, fmt.Sprintf("the driver shows %s GPUs, not %q", n, its))
		}
		avoid, why = condition.Vet(who, record.NewLimits(cfg.Thresholds.Bytes()), now.Snapshot, now.Health, now.Who)
		if avoid != record.Yes {
			return avoid, why
		}
	}
	shared := slices.Contains(cfg.Slurm.SharedPartitions, a.env.Getenv("SLURM_JOB_PARTITION")) ||
		slurmcmd.NodeSharing(cfg.Slurm.Sharing(), cfg.Slurm.GresConf, a.env.Getenv("SLURM_CONF"), node,
			slurmcmd.SharingTime).Shared != slurm.No
	pids, _ := os.Readlink(filepath.Join(cfg.Paths.Proc, "self/ns/pid"))
	if shared || pids != "pid:[4026531836]" { // PROC_PID_INIT_INO: in another namespace own processes cannot be seen
		return record.CannotTell, why + ", and another job or step may have the GPU too"
	}
	return avoid, why
}
