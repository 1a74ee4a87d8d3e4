package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"bookend/internal/config"
	"bookend/internal/doctor"
	"bookend/internal/inventory"
	"bookend/internal/stage"
)

// examine says of everything that makes an installation wrong or slow whether it is as it must be. What may hang is
// looked at in children.
func examine(env stage.Env, c call) int {
	if env.EUID != 0 {
		return fail(env, errors.New("only root may look at all of it: run as root"))
	}
	results := doctor.Examine(site(env), doctor.Patience)
	if !c.json {
		doctor.Print(env.Stdout, results)
	} else if err := doctor.PrintJSON(env.Stdout, results); err != nil {
		return fail(env, fmt.Errorf("write results: %w", err))
	}
	if doctor.Fails(results) {
		return exitTrouble
	}
	return exitOK
}

// site is this node as its configuration describes it. No key says where the hooks are: slurm.conf does. They are looked
// for beside the backend, then where they are installed.
func site(env stage.Env) doctor.Site {
	cfg, path, problems, err := stage.ReadConfig(env)
	s := doctor.Site{
		Config: cfg, ConfigPath: path, Named: env.Getenv("BOOKEND_CONFIG") != "", Mistakes: len(problems),
		Programs: slices.Compact([]string{filepath.Dir(cfg.Backend), filepath.Dir(config.Default().Backend)}),
		NVML:     inventory.Installed("libnvidia-ml.so.1"), CUDA: inventory.Installed("libcuda.so.1"),
		Version: env.Version, Root: "/", SlurmConf: env.Getenv("SLURM_CONF"), NodeName: cmp.Or(env.Getenv("SLURMD_NODENAME"), nodeOf(cfg.Paths, "")),
	}
	if err != nil {
		s.Unread = err.Error()
	}
	if len(problems) > 0 {
		s.Mistake = problems[0].String()
	}
	if s.Self, err = os.Executable(); err != nil {
		s.Self = os.Args[0]
	}
	return s
}
