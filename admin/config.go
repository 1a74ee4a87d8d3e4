package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"bookend/internal/backend"
	"bookend/internal/config"
	"bookend/internal/stage"
	"bookend/internal/wire"
)

// configure checks a configuration as the hooks would: its text, whether root may trust it, whether they can start the
// backend that it names, and what they take Slurm to give out. One line for each mistake, the verdict last.
func configure(env stage.Env, c call) int {
	if c.args[0] != "check" {
		return c.of.misused(env, fmt.Sprintf("no such command: %q", c.args[0]))
	}
	is, isNot, do := "is", "is not", "the hooks"
	if len(c.args) == 2 {
		file, err := filepath.Abs(c.args[1])
		if err != nil {
			return fail(env, err)
		}
		env.Getenv = naming(file, env.Getenv)
		is, isNot, do = "would be", "would not be", "the hooks would"
	}
	cfg, path, problems, err := stage.ReadConfig(env)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(c.args) == 1 && path == config.DefaultFile:
		fmt.Fprintf(env.Stdout, "%s: missing: shipped defaults in force\n", path)
		return exitTrouble
	case err != nil:
		fmt.Fprintf(env.Stdout, "%v\nconfiguration %s used: %s observe with the shipped defaults\n", err, isNot, do)
		return exitTrouble
	case len(problems) > 0:
		for _, p := range problems {
			fmt.Fprintln(env.Stdout, placed(path, p))
		}
		fmt.Fprintf(env.Stdout, "configuration %s valid: %s observe with the shipped policy\n", isNot, do)
		return exitTrouble
	}
	return startable(env, cfg, path, is, c.node)
}

// naming is an environment in which BOOKEND_CONFIG names a file.
func naming(file string, getenv func(string) string) func(string) string {
	return func(name string) string {
		if name == "BOOKEND_CONFIG" {
			return file
		}
		return getenv(name)
	}
}

// placed writes a mistake as editors and their users expect it: FILE:LINE: what.
func placed(path string, p config.Problem) string {
	line := p.Line
	p.Line = 0
	if line == 0 {
		return path + ": " + p.String()
	}
	return fmt.Sprintf("%s:%d: %s", path, line, p)
}

// startable ends the check of a valid configuration with whether the hooks can work with it.
func startable(env stage.Env, cfg config.Config, path, is, node string) int {
	fmt.Fprintf(env.Stdout, "checked: %s: every key; only root can write it and the folders above it\n", path)
	t := backend.Check(backend.Params{Path: cfg.Backend, Root: true}, wire.Options{NVMLLibrary: cfg.NVIDIA.NVMLLibrary})
	if t != nil {
		fmt.Fprintf(env.Stdout, "%s: %s\nconfiguration %s valid, but the hooks cannot start the backend and would look at no GPU\n",
			t.Code, t.Detail, is)
		return exitTrouble
	}
	fmt.Fprintf(env.Stdout, "checked: %s: there, executable; only root can write it and the folders above it\n", cfg.Backend)
	if l := cfg.NVIDIA.NVMLLibrary; l != "" {
		fmt.Fprintf(env.Stdout, "checked: %s: nobody but root can write it, if it is there\n", l)
	}
	for _, line := range sharingLines(env, cfg, node) {
		fmt.Fprintln(env.Stdout, line)
	}
	fmt.Fprintln(env.Stdout, "not checked: the driver; bookend snapshot asks it")
	fmt.Fprintf(env.Stdout, "configuration %s valid: mode %s, backend %s\n", is, cfg.Mode, cfg.Backend)
	return exitOK
}
