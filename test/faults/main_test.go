// Package faults runs the built hooks as slurmd runs them, without a Slurm, through everything that can go
// wrong around them: each fault has its finding, its message and its documented exit code, leaves nothing half
// written, ends within the hook's deadline and harms no other job's record.
package faults

import (
	"flag"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"bookend/test/build"
	"bookend/test/cluster"
	"bookend/test/faultinject"
	"bookend/test/rig"
)

// programs is the folder of the built programs: root's all the way up, as root's hooks demand.
var programs string

// atOnce is how many stories are played at the same time, at least.
const atOnce = 5

func TestMain(m *testing.M) {
	faultinject.Serve()
	if flag.Parse(); runtime.GOMAXPROCS(0) < atOnce { // what the stories do most is wait
		_ = flag.Set("test.parallel", strconv.Itoa(atOnce))
	}
	rig.Main(m, prepare)
}

// prepare shadows the default folders, so that a hook that falls back to them meets none of this machine's files, and
// builds the programs.
func prepare() (dir string, err error) {
	if err := cluster.SweepDead(); err != nil {
		return "", err
	}
	if dir, err = cluster.Scratch(); err != nil {
		return "", err
	}
	if err := rig.HideDefaults(dir); err != nil {
		return "", err
	}
	programs = filepath.Join(dir, "libexec")
	return dir, build.Programs(programs, "", append(build.Shipped, rig.Backend)...)
}

func program(name string) string { return filepath.Join(programs, name) }
