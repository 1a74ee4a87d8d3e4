package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"bookend/test/cluster"
)

// bench is the folder in which everything happens: root's all the way up, as root's hooks demand, and in memory.
type bench struct {
	root  string // of the tree
	dir   string
	count int
}

func newBench(root string) (*bench, error) {
	if err := cluster.SweepDead(); err != nil {
		return nil, err
	}
	dir, err := cluster.Scratch()
	if err != nil {
		return nil, err
	}
	return &bench{root: root, dir: dir}, mount(dir)
}

// remove removes the folder; what is mounted on it ends with this process.
func (b *bench) remove() { _ = cluster.Remove(b.dir) }

// folder is a new name below the bench.
func (b *bench) folder(name string) string {
	b.count++
	return filepath.Join(b.dir, name+"-"+strconv.Itoa(b.count))
}

// build builds the hooks as the Makefile does, and the backend; with an overlay, the hooks as they are with that.
func (b *bench) build(name, overlay string) (folder string, err error) {
	folder = b.folder(name)
	for program, pkg := range map[string]string{
		"bookend-prolog": "./prolog", "bookend-epilog": "./epilog", "backend": "./test/crash/backend",
	} {
		args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Join(folder, program)}
		if overlay != "" {
			args = append(args, "-overlay", overlay)
		}
		cmd := exec.Command("go", append(args, pkg)...)
		cmd.Dir, cmd.Env = b.root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w: %s", program, err, out)
		}
	}
	return folder, nil
}
