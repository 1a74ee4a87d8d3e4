package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"bookend/internal/backend"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/kmsg"
	"bookend/internal/report"
	"bookend/internal/stage"
	"bookend/internal/wire"
)

// configure checks a configuration as the hooks would: its text, whether root may trust it, whether they can start the
// backend that it names, load the library that tests cards and read the kernel's log, and what they take Slurm to give
// out. One line for each mistake, the verdict last.
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
	p := backend.Params{Path: cfg.Backend, Root: true}
	if t := backend.Check(p, wire.Options{NVMLLibrary: cfg.NVIDIA.NVMLLibrary}); t != nil {
		return unusable(env, *t, is, "the hooks cannot start the backend and would look at no GPU")
	}
	fmt.Fprintf(env.Stdout, "checked: %s: there, executable; only root can write it and the folders above it\n", cfg.Backend)
	if l := cfg.NVIDIA.NVMLLibrary; l != "" {
		fmt.Fprintf(env.Stdout, "checked: %s: nobody but root can write it, if it is there\n", l)
	}
	if t := backend.Check(p, wire.Options{CUDALibrary: cfg.NVIDIA.CUDALibrary}); t != nil {
		return unusable(env, *t, is, "the hooks would test no card")
	}
	lines := append(cudaLines(cfg.NVIDIA.CUDALibrary), kernelLines(env, cfg)...)
	lines = append(lines, textfileLines(cfg)...)
	for _, line := range append(lines, sharingLines(env, cfg, node)...) {
		fmt.Fprintln(env.Stdout, line)
	}
	fmt.Fprintln(env.Stdout, "not checked: the driver; bookend snapshot asks it")
	fmt.Fprintf(env.Stdout, "configuration %s valid: mode %s, backend %s\n", is, cfg.Mode, cfg.Backend)
	return exitOK
}

func unusable(env stage.Env, t backend.Trouble, is, what string) int {
	fmt.Fprintf(env.Stdout, "%s: %s\nconfiguration %s valid, but %s\n", t.Code, t.Detail, is, what)
	return exitTrouble
}

// cudaLines say of a trusted CUDA library whether it is there, and nothing where none is configured: the loader finds
// its own.
func cudaLines(path string) []string {
	if path == "" {
		return nil
	}
	switch st, err := os.Stat(path); {
	case err != nil:
		return []string{fmt.Sprintf("nvidia.cuda_library: %v: no card will be tested", err)}
	case !st.Mode().IsRegular():
		return []string{fmt.Sprintf("nvidia.cuda_library: %s: not a file: no card will be tested", path)}
	}
	return []string{fmt.Sprintf("checked: %s: there; only root can write it and the folders above it", path)}
}

// textfileLines say where the hooks would find no folder for their metrics. They make that of paths.var, and no other.
func textfileLines(cfg config.Config) []string {
	folder := filepath.Dir(cfg.Metrics.Textfile)
	if cfg.Metrics.Textfile == "" || folder == filepath.Clean(cfg.Paths.Var) {
		return nil
	}
	// Threat: none: nothing is opened, and the configuration that names the folder is root's.
	if st, err := os.Stat(folder); err != nil {
		return []string{fmt.Sprintf("metrics.textfile: %v: no metrics will be written (%s); the hooks do not make that folder", err, code.StateWrite)}
	} else if !st.IsDir() {
		return []string{fmt.Sprintf("metrics.textfile: %s: not a folder: no metrics will be written (%s)", folder, code.StateWrite)}
	}
	return nil
}

// kernelLines say whether the kernel's log can be read, where it is wanted. It is read as hooks read it, to the end.
func kernelLines(env stage.Env, cfg config.Config) []string {
	path := filepath.Join(cfg.Paths.Dev, "kmsg")
	if !cfg.Look.KernelLog {
		return nil
	}
	if env.EUID != 0 {
		return []string{fmt.Sprintf("not checked: %s: run as root", path)}
	}
	if log := kmsg.Read(cfg.Paths.Dev, nil); log.Unknown != "" {
		return []string{"kernel log: cannot be read: " + string(report.Clean(log.Unknown, detailWidth)) +
			": Xids are not seen, and a start trusts no earlier test"}
	}
	return []string{fmt.Sprintf("checked: %s: the kernel's log can be read", path)}
}
