// Package rig is what trials of the shipped hooks without a Slurm share: programs that are built from the tree at hand,
// what slurmd tells a hook, and a backend that knows no vendor.
package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bookend/test/mountns"
)

// Backend is the program of rig/backend.
const Backend = "core-backend"

// folders are those of the programs' sources, below the module's.
var folders = map[string]string{
	"bookend-prolog": "prolog", "bookend-epilog": "epilog", "bookend-healthcheck": "healthcheck", "bookend": "admin",
	"bookend-gpu": "cuda", Backend: "test/rig/backend",
}

// Build makes programs in a folder as the Makefile does. An overlay is go build's, "" for none.
func Build(folder, overlay string, programs ...string) error {
	for _, name := range programs {
		cgo, flags := "0", "-s -w"
		if name == "bookend-gpu" {
			cgo, flags = "1", "-s -w -extldflags=-Wl,-z,lazy"
		}
		args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", filepath.Join(folder, name)}
		if overlay != "" {
			args = append(args, "-overlay", overlay)
		}
		cmd := exec.Command("go", append(args, "bookend/"+folders[name])...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, text)
		}
	}
	return nil
}

// Module is the root of the tree that this program is run in.
func Module() (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources: %w", err)
	}
	return strings.TrimSpace(string(root)), nil
}

// Main runs a package's tests as root, in a mount namespace of their own, with a folder that prepare makes, if it is
// given, and that stays only where a test fails. As another user it says in one line that it skips them.
func Main(m *testing.M, prepare func() (dir string, err error)) {
	if os.Geteuid() != 0 {
		fmt.Println("skipped: these tests need root")
		os.Exit(0)
	}
	dir, err := "", mountns.Enter()
	if err == nil && prepare != nil {
		dir, err = prepare()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if code == 0 && dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}
