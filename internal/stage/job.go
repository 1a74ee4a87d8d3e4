package stage

import (
	"fmt"
	"path/filepath"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// configure loads the configuration; a bad one becomes a finding and the shipped, observing default.
func (h *hook) configure() {
	cfg, problem := LoadConfig(h.env)
	if problem != "" {
		if h.phase != slurm.HealthCheck { // which may be on a node that is none of its business
			fmt.Fprintf(h.env.Stderr, "bookend: %s\n", problem)
		}
		h.add(finding.Finding{Code: code.BadConfig, Observed: problem, Expected: "a valid configuration that only root can write"})
	}
	h.cfg, h.times, h.settle = cfg, cfg.Deadlines.Epilog, cfg.Settle.Epilog
	switch h.phase {
	case slurm.Prolog:
		h.times, h.settle = cfg.Deadlines.Prolog, cfg.Settle.Prolog
	case slurm.HealthCheck:
		h.times = cfg.Deadlines.HealthCheck.Hook()
	}
	h.limit(time.Duration(h.times.Total))
}

// identifyJob reads the job from the environment; without a job nothing can be said about anybody's GPUs.
func (h *hook) identifyJob() bool {
	job, err := slurm.FromEnv(h.env.Getenv)
	if err != nil {
		fmt.Fprintf(h.env.Stderr, "bookend: %v\n", err)
		h.add(finding.Finding{Code: code.BadEnv, Observed: err.Error(), Expected: "the environment Slurm gives its hooks"})
		return false
	}
	h.job = job
	if job.GPUProblem != "" {
		h.add(finding.Finding{Code: code.Ambiguous, Unknown: job.GPUProblem})
	}
	own, err := ownCgroup(h.cfg.Paths.Proc)
	if err != nil {
		h.add(finding.Finding{Code: code.BadEnv, Unknown: err.Error()})
	}
	if h.inJob = slurm.InJob(own); h.inJob {
		h.job.Exit = slurm.ExitStatus{Why: "hooks under RunInJob are always told 0"}
		observed := "this hook runs inside the job (PrologFlags=RunInJob)"
		if h.blinded() {
			observed += ": no card is looked at (slurm.run_in_job_backend)"
		}
		h.add(finding.Finding{Code: code.RunInJob, Observed: observed, Expected: "hooks run by slurmd itself"})
	}
	return true
}

// blinded reports that the driver is not to be asked: from inside a job, unless the admin allows it there. That is how the
// site has Slurm run its hooks, and no fault of the node's: the one finding is BKD-RUNINJOB.
func (h *hook) blinded() bool { return h.inJob && !h.cfg.Slurm.RunInJobBackend }

func (h *hook) openState() {
	store, err := state.Open(h.cfg.Paths.Run, h.job.Node)
	if err != nil {
		h.try(err)
		return
	}
	h.store = store
}

func ownCgroup(proc string) (string, error) {
	return readOwn(filepath.Join(proc, "self/cgroup"))
}
