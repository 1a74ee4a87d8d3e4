package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"bookend/internal/config"
	"bookend/internal/doctor"
	"bookend/internal/inventory"
	"bookend/internal/operation"
	"bookend/internal/stage"
)

func doctorCommand(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "check the installation and show how to fix it",
		Long: `Checks owners and modes, slurm.conf, the driver and its GPUs, and the rest of the node.
It changes nothing. It prints what is wrong, why it matters and how to fix it, and how
many checks are ok. bookend config check lists every mistake of a configuration.`,
		Args: none, RunE: func(*cobra.Command, []string) error { return a.examine(all) },
	}
	cmd.Flags().BoolVar(&all, "all", false, "show the checks that are ok, too")
	a.inJSON(cmd)
	return cmd
}

// examine says of everything that makes an installation wrong or slow whether it is as it must be. What may hang is
// looked at in children.
func (a *app) examine(all bool) error {
	if a.env.EUID != 0 {
		return denied("needs root: only root may look at all of it: run as root")
	}
	node := site(a.env)
	results := doctor.Examine(node, doctor.Patience)
	if !a.json {
		doctor.Print(a.env.Stdout, node.NodeName, results, all)
	} else if err := doctor.PrintJSON(a.raw, results); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if doctor.Fails(results) {
		return answered(exitTrouble)
	}
	return nil
}

// site is this node as its configuration describes it. No key says where the hooks are: slurm.conf does. They are
// looked for beside the backend, then where they are installed.
func site(env operation.Env) doctor.Site {
	cfg, path, problems, err := stage.ReadConfig(env)
	s := doctor.Site{
		Clock:  env.Clock,
		Config: cfg, ConfigPath: path,
		Programs: slices.Compact([]string{filepath.Dir(cfg.Backend), filepath.Dir(config.Default().Backend)}),
		NVML:     inventory.Installed("libnvidia-ml.so.1"), CUDA: inventory.Installed("libcuda.so.1"),
		Version: env.Version, Root: "/", SlurmConf: env.Getenv("SLURM_CONF"),
		NodeName: cmp.Or(env.Getenv("SLURMD_NODENAME"), nodeOf(env, cfg.Paths, "")),
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && path == config.DefaultFile: // as the rule says
	case err != nil:
		s.Mistake = "not used: " + err.Error()
	case len(problems) > 0:
		s.Mistake = fmt.Sprintf("not valid: %s (1 of %d)", problems[0], len(problems))
	}
	if s.Self, err = os.Executable(); err != nil {
		s.Self = os.Args[0]
	}
	return s
}
