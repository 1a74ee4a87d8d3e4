package fakegpu

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"bookend/test/gpu/scenarios"
)

//go:embed build.sh c/*.c c/*.h
var sources embed.FS

// The files build.sh makes.
const (
	nvmlName    = "libnvidia-ml.so.1"
	cudaName    = "libcuda.so.1"
	programName = "fakecuda" // its source is the real program's
	keeperName  = "fakekeeper"
)

var binaries = sync.OnceValues(func() (map[string][]byte, error) { return build() })

// build compiles everything in a folder of its own and returns the files' bytes: nothing stays behind, and a
// test binary with many worlds compiles once.
func build(absent ...string) (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "fakegpu-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program, err := fs.Sub(scenarios.Program, "c")
	if err = errors.Join(err, os.CopyFS(filepath.Join(dir, "src"), sources)); err == nil {
		err = os.CopyFS(filepath.Join(dir, "src/job"), program)
	}
	if err != nil {
		return nil, fmt.Errorf("unpack sources: %w", err)
	}
	out := filepath.Join(dir, "out")
	args := append([]string{filepath.Join(dir, "src/build.sh"), out}, absent...)
	if text, err := exec.Command("sh", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the fake libraries: %w\n%s", err, text)
	}
	files := map[string][]byte{}
	entries, err := os.ReadDir(out)
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(out, e.Name())); err != nil {
			return nil, err
		}
	}
	return files, err
}
