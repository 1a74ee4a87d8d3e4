// Package e2e tells what Bookend does for the people it is for: users who read their job's output, admins who
// read node states, records and logs. Each test is a story under a real Slurm: unprivileged users' jobs, fake
// GPUs whose memory belongs to real processes, the programs as they ship.
//
// A story is written with the steps of given_test.go (what is there), when_test.go (what happens) and
// then_test.go (what everybody then sees).
package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"bookend/test/build"
	"bookend/test/cluster"
	"bookend/test/mountns"
)

// programs is the folder of the programs under test.
var programs string

// track is how Slurm tracks processes where a story does not say; BOOKEND_E2E_TRACK names another than linuxproc.
var track = cluster.LinuxProc

func TestMain(m *testing.M) {
	// A hook that falls back to its default paths meets none of this machine's files.
	if err := mountns.Enter(); err != nil {
		os.Exit(complain(err))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if err := chooseTrack(os.Getenv("BOOKEND_E2E_TRACK")); err != nil {
		return complain(err)
	}
	if err := cluster.SweepDead(); err != nil {
		return complain(err)
	}
	dir, err := cluster.Scratch()
	if err == nil {
		err = mountns.Shadow(dir)
	}
	if err != nil {
		return complain(err)
	}
	defer cluster.Remove(dir)
	if err := build.Programs(dir, "", build.Shipped...); err != nil {
		return complain(err)
	}
	programs = dir
	return m.Run()
}

func chooseTrack(name string) error {
	tracks, err := cluster.Tracks()
	if err != nil || name == "" {
		return err
	}
	if track = cluster.Track(name); !slices.Contains(tracks, track) {
		return fmt.Errorf("BOOKEND_E2E_TRACK=%s: this host can %q", name, tracks)
	}
	return nil
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "e2e:", err)
	return 1
}
