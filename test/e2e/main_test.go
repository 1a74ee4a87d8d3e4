// Package e2e tells what Bookend does for the people it is for: users who read their job's output, admins who
// read node states, records and logs. Each test is a story under a real Slurm: unprivileged users' jobs, fake
// GPUs whose memory belongs to real processes, the programs as they ship.
//
// A story is written with the steps of given_test.go (what is there), when_test.go (what happens) and
// then_test.go (what everybody then sees).
package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"bookend/test/build"
	"bookend/test/cluster"
	"bookend/test/rig"
)

// programs is the folder of the programs under test.
var programs string

// track is how Slurm tracks processes where a story does not say; BOOKEND_E2E_TRACK names another than linuxproc.
var track = cluster.LinuxProc

// TestMain has a mount namespace of its own: a hook that falls back to its default paths meets none of this machine's
// files.
func TestMain(m *testing.M) {
	rig.Main(m, func() (dir string, err error) {
		if name := cluster.Track(os.Getenv("BOOKEND_E2E_TRACK")); name != "" {
			if track = name; !slices.Contains(cluster.Tracks(), track) {
				return "", fmt.Errorf("BOOKEND_E2E_TRACK=%s: this host can %q", name, cluster.Tracks())
			}
		}
		if err = cluster.SweepDead(); err == nil {
			programs, err = cluster.Scratch()
		}
		if err == nil {
			err = errors.Join(rig.HideDefaults(programs), build.Programs(programs, "", build.Shipped...))
		}
		return programs, err
	})
}
