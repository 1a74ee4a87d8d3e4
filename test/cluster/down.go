package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/rig"
)

// patience bounds the wait for what is killed, or was: on a busy machine it may take its time, and more than that is a
// hang.
const patience = 3 * time.Minute

// record is what Dir/cluster.json keeps, so that a later process can clean up after a killed one.
type record struct {
	Daemons []string `json:"daemons"`
	Cgroups []string `json:"cgroups,omitempty"`
}

func recordFile(dir string) string { return filepath.Join(dir, "cluster.json") }

// Down ends the cluster: its daemons, running hooks and running jobs, its cgroups, and whatever is mounted
// below Dir. Files stay. Processes that left their job are left alone, see EndLeftovers. A second call does
// nothing.
func (c *Cluster) Down() error {
	err := Sweep(c.paths.dir)
	for _, lock := range c.locks {
		lock.Close()
	}
	c.locks = nil
	return err
}

// Sweep does what Down does for a cluster in dir whose process was killed. Without one it does nothing.
func Sweep(dir string) error {
	var r record
	text, err := os.ReadFile(recordFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil {
		err = errors.Join(endDaemons(dir, r), removeCgroups(r), unmountBelow(dir))
	}
	if err != nil {
		return fmt.Errorf("sweep %q: %w", dir, err)
	}
	return os.Remove(recordFile(dir))
}

// endDaemons asks the daemons to end, then kills what is left of them: steps, hooks and their children.
func endDaemons(dir string, r record) error {
	daemons := daemonsOf(dir, r)
	family := descendants(withoutUs(anybody), daemons) // found now: children of a dead slurmd look like anybody's
	slices.Reverse(daemons)                            // slurmd first: it reports to slurmctld, through munged
	// slurmd waits for running hooks; one second is for its files, the hooks of a test may hang by intent.
	_, err := end(daemons, syscall.SIGTERM, time.Second)
	// Again until a look finds nobody: slurmd may have started another hook between a look and its end.
	for deadline := time.Now().Add(patience); ; family = nil {
		rest := append(family, stepsOf(dir, r)...)
		if killErr := kill(rest); killErr != nil || len(rest) == 0 || time.Now().After(deadline) {
			return errors.Join(err, killErr)
		}
	}
}

func kill(all []process) error {
	left, err := end(all, syscall.SIGKILL, patience)
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("processes %+v do not end", left))
	}
	return err
}

// daemonsOf finds the daemons by their pid files. The environment of each must name this cluster: the file
// may be old and the pid another's.
func daemonsOf(dir string, r record) (found []process) {
	for _, name := range r.Daemons {
		text, _ := os.ReadFile(paths{dir}.pidFile(name))
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		if p := rig.ReadProcess(pid); !p.Over() && p.HasEnv(signs(dir)...) {
			found = append(found, p)
		}
	}
	return found
}

// stepsOf finds root's processes of this cluster (slurmstepd, hooks) with all they started, and the members of
// its cgroups.
func stepsOf(dir string, r record) (own []process) {
	own = descendants(withoutUs(anybody), withoutUs(func(p process) bool {
		return p.UID == 0 && !p.Terminal && p.HasEnv(signs(dir)...)
	}))
	for _, cgroup := range r.Cgroups {
		for _, pid := range cgroupMembers(cgroup) {
			if p := rig.ReadProcess(pid); !p.Over() {
				own = append(own, p)
			}
		}
	}
	return own
}

func anybody(process) bool { return true }

// signs are the settings of the environment by which a process belongs to the cluster in dir.
func signs(dir string) []string {
	return []string{mark + "=" + dir, "SLURM_CONF=" + paths{dir}.conf()}
}

// EndLeftovers kills what the cluster's jobs left running: processes that were started with its SLURM_CONF or mark.
// Root's processes are Down's; programs with a terminal are a person's and spared.
func (c *Cluster) EndLeftovers() error { return endLeftovers(c.paths.dir) }

func endLeftovers(dir string) error {
	return kill(withoutUs(func(p process) bool { return p.UID != 0 && !p.Terminal && p.HasEnv(signs(dir)...) }))
}

// removeCgroups removes the nodes' cgroups, which Slurm leaves behind. A dying process, or a thread of it that
// outlives its first, may still be charged to one for a moment: on a loaded machine that took over three seconds.
// The slice they lie in stays: other clusters of this host use it too, and an empty folder harms nobody.
func removeCgroups(r record) error {
	var errs []error
	for _, dir := range r.Cgroups {
		var err error
		until(patience, func() bool {
			err = removeCgroup(dir)
			return !errors.Is(err, unix.EBUSY)
		})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// unmountBelow unmounts what tests mounted below dir, last first.
func unmountBelow(dir string) (err error) {
	for _, m := range slices.Backward(mountsBelow(dir)) {
		if bad := unix.Unmount(m, unix.MNT_DETACH); bad != nil {
			err = errors.Join(err, fmt.Errorf("unmount %q: %w", m, bad))
		}
	}
	return err
}

func mountsBelow(dir string) (found []string) {
	for line := range strings.Lines(string(rig.Have(os.ReadFile("/proc/self/mounts")))) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			found = append(found, f[1])
		}
	}
	return found
}

// mark is the variable that, with SLURM_CONF, identifies the cluster's daemons and jobs.
const mark = "BOOKEND_TEST_CLUSTER"

type process = rig.Process

// alive reports whether that very process still runs.
func alive(p process) bool {
	now := rig.ReadProcess(p.PID)
	return now.Start == p.Start && !now.Over()
}

// signal sends a signal to that very process: the handle is opened first and the process looked at again, so
// that a reused PID is not hit. A process that has ended is no error.
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
// cluster's directory.
func withoutUs(are func(process) bool) []process {
	us := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !us[pid]; {
		us[pid] = true
		pid = rig.ReadProcess(pid).Parent
	}
	return rig.Processes(func(p process) bool { return !us[p.PID] && !p.Over() && are(p) })
}
