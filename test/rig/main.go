// Package rig is what trials of the shipped hooks without a Slurm share: how they run as root, what slurmd tells a hook, and
// a backend that knows no vendor.
package rig

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Backend is the package of the one that knows no vendor; package build makes it as "backend".
const Backend = "bookend/test/rig/backend"

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
	dir, err := "", OwnMounts()
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
