// Package faults runs the built hooks as slurmd runs them, without a Slurm, through everything that can go
// wrong around them: each fault has its finding, its message and its documented exit code, leaves nothing half
// written, ends within the hook's deadline and harms no other job's record.
package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"bookend/test/cluster"
	"bookend/test/mountns"
)

// programs is the folder of the built programs: root's all the way up, as root's hooks demand.
var programs string

func TestMain(m *testing.M) {
	// What tests mount ends with them, and a hook that falls back to its default paths meets none of this machine's files.
	if err := mountns.Enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := prepare()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	programs = filepath.Join(dir, "libexec")
	code := m.Run()
	if code == 0 {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// prepare shadows the default folders and builds the programs.
func prepare() (dir string, err error) {
	if err := cluster.SweepDead(); err != nil {
		return "", err
	}
	if dir, err = cluster.Scratch(); err != nil {
		return "", err
	}
	if err := mountns.Shadow(dir); err != nil {
		return "", err
	}
	for name, folder := range map[string]string{
		"bookend-prolog": "prolog", "bookend-epilog": "epilog", "bookend-healthcheck": "healthcheck", "bookend": "admin", "core-backend": "test/faults/corebackend",
	} {
		if err := build(filepath.Join(dir, "libexec", name), "bookend/"+folder, "0"); err != nil {
			return "", err
		}
	}
	return dir, build(filepath.Join(dir, "libexec/bookend-gpu"), "bookend/cuda", "1", "-ldflags=-extldflags=-Wl,-z,lazy")
}

// build makes one program as the Makefile does.
func build(out, pkg, cgo string, flags ...string) error {
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-o", out}, flags...)
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return nil
}
