package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"bookend/test/rig"
)

// mark is the variable by which the cluster's daemons and jobs are known, beside SLURM_CONF.
const mark = "BOOKEND_TEST_CLUSTER"

type process = rig.Process

// alive reports whether that very process still runs.
func alive(p process) bool {
	now := rig.ReadProcess(p.PID)
	return now.Start == p.Start && !now.Over()
}

// signal sends a signal to that very process: the handle is opened first and the process looked at again, so
// that a pid used anew meanwhile is not hit. A process that is gone is no error.
func signal(p process, sig os.Signal) error {
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	defer handle.Release()
	if !alive(p) {
		return nil
	}
	if err := handle.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// end sends sig to all and waits until they are gone; it returns those that are not after patience.
func end(all []process, sig os.Signal, patience time.Duration) ([]process, error) {
	var errs []error
	for _, p := range all {
		errs = append(errs, signal(p, sig))
	}
	until(patience, func() bool {
		all = slices.DeleteFunc(slices.Clone(all), func(p process) bool { return !alive(p) })
		return len(all) == 0
	})
	return all, errors.Join(errs...)
}

// until asks again and again, and reports whether it was done before patience ended.
func until(patience time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// descendants returns the processes of all that the given ones started, directly or not, and those themselves.
func descendants(all, roots []process) []process {
	found := slices.Clone(roots)
	for i := 0; i < len(found); i++ {
		for _, p := range all {
			if p.Parent == found[i].PID && !slices.Contains(found, p) {
				found = append(found, p)
			}
		}
	}
	return found
}

// withoutUs are the living processes that are so, but this one and those it descends from, which may well work in the
// cluster's folder.
func withoutUs(are func(process) bool) []process {
	us := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !us[pid]; {
		us[pid] = true
		pid = rig.ReadProcess(pid).Parent
	}
	return rig.Processes(func(p process) bool { return !us[p.PID] && !p.Over() && are(p) })
}
