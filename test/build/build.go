// Package build makes Bookend's programs from the tree as it is, for tests that try them: none meets yesterday's, and a fresh
// clone needs no "make build".
package build

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Shipped are the programs that a package installs.
var Shipped = []string{"bookend-prolog", "bookend-epilog", "bookend-healthcheck", "bookend", "bookend-gpu", "bookend-amd",
	"bookend-hip"}

// sources are the packages of programs whose names are not theirs.
var sources = map[string]string{
	"bookend-prolog": "bookend/prolog", "bookend-epilog": "bookend/epilog", "bookend-healthcheck": "bookend/healthcheck",
	"bookend": "bookend/admin", "bookend-gpu": "bookend/cuda", "bookend-amd": "bookend/rocm",
	"bookend-hip": "bookend/rocm/hip",
}

// Programs makes programs in a folder as the Makefile does; one that is not shipped is named by its package. An overlay is
// go build's, "" for none.
func Programs(folder, overlay string, programs ...string) error {
	for _, name := range programs {
		source, shipped := sources[name]
		if !shipped {
			source = name
		}
		cgo, flags := "CGO_ENABLED=0", "-s -w -X main.version=test"
		if name == "bookend-gpu" || name == "bookend-hip" {
			cgo, flags = "CGO_ENABLED=1", flags+" -extldflags=-Wl,-z,lazy"
		}
		args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", filepath.Join(folder, filepath.Base(name))}
		if overlay != "" {
			args = append(args, "-overlay", overlay)
		}
		cmd := exec.Command("go", append(args, source)...)
		cmd.Env = append(os.Environ(), cgo, "CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, text)
		}
	}
	return nil
}

// Main runs a package's tests with a program that they try, of which they get the path.
func Main(m *testing.M, name string, program *string) {
	dir, err := os.MkdirTemp("", name)
	if err == nil {
		err = Programs(dir, "", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	*program = filepath.Join(dir, name)
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
