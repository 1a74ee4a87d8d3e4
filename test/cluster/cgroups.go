package cluster

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/rig"
)

// cgroupHost is what this host mounts of cgroups.
type cgroupHost struct {
	v1     []string // mount points of v1 hierarchies
	v2     string   // mount point of the v2 hierarchy
	hybrid bool     // slurmd's cgroup/v2 plugin refuses this host without the shim
}

// Tracks lists the ways to track that this host can run: LinuxProc, then those whose hierarchy is writable.
func Tracks() []Track {
	host := findCgroups()
	return slices.DeleteFunc([]Track{LinuxProc, CgroupV1, CgroupV2}, func(t Track) bool { return !host.can(t) })
}

// findCgroups reads what is mounted. Slurm's v1 plugin looks below /sys/fs/cgroup only.
func findCgroups() (host cgroupHost) {
	for line := range strings.Lines(string(rig.Have(os.ReadFile("/proc/self/mounts")))) {
		f := strings.Fields(line)
		switch {
		case len(f) < 3 || !strings.HasPrefix(f[1], "/sys/fs/cgroup"):
		case f[2] == "cgroup":
			host.v1 = append(host.v1, f[1])
		case f[2] == "cgroup2" && host.v2 == "":
			host.v2 = f[1]
		}
	}
	host.hybrid = !strings.HasPrefix(string(rig.Have(os.ReadFile("/proc/self/cgroup"))), "0::")
	return host
}

func (h cgroupHost) can(t Track) bool {
	switch t {
	case CgroupV1:
		return unix.Access("/sys/fs/cgroup/freezer", unix.W_OK) == nil
	case CgroupV2:
		return h.v2 != "" && unix.Access(h.v2, unix.W_OK) == nil
	}
	return t == LinuxProc
}

// slice is the folder in which Slurm's v2 plugin makes a node's scope; systemd's where it runs.
func (h cgroupHost) slice() string { return filepath.Join(h.v2, "system.slice") }

// folders lists the cgroups in which slurmd of the given nodes puts jobs. They carry the node's name, and
// nothing of the cluster's: of two clusters with equal node names, one waits unless it uses LinuxProc.
func (h cgroupHost) folders(t Track, nodes []Node) []string {
	var dirs []string
	for _, n := range nodes {
		switch t {
		case CgroupV1:
			for _, mount := range h.v1 {
				dirs = append(dirs, filepath.Join(mount, "slurm_"+n.Name))
			}
		case CgroupV2:
			dirs = append(dirs, filepath.Join(h.slice(), n.Name+"_slurmstepd.scope"))
		}
	}
	return dirs
}

// lockNames waits until no other cluster of this host uses cgroups under these names. Closing a lock, or the end of this
// process, frees a name.
func (c *Cluster) lockNames(patience time.Duration) {
	makeFolder(base, 0o755)
	for _, n := range c.options.Nodes {
		name := fmt.Sprintf("node-%s-%s.lock", n.Name, filepath.Base(string(c.options.Track)))
		lock := rig.Have(os.OpenFile(filepath.Join(base, name), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600))
		c.locks = append(c.locks, lock)
		var err error
		until(patience, func() bool {
			err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			return !errors.Is(err, unix.EWOULDBLOCK)
		})
		if err != nil {
			panic(fmt.Errorf("another cluster has cgroups of a node %q: %w", n.Name, err))
		}
	}
}

// prepareCgroups makes room for the nodes' cgroups, whose names the caller has locked: empty remains are removed.
// Those that are in use belong to another Slurm, or to a cluster whose folder is gone without a Sweep.
func (h cgroupHost) prepareCgroups(t Track, nodes []Node) {
	for _, dir := range h.folders(t, nodes) {
		if err := removeCgroup(dir); err != nil {
			panic(fmt.Errorf("another Slurm uses %q; choose other node names: %w", dir, err))
		}
	}
	if t == CgroupV2 {
		rig.Try(os.MkdirAll(h.slice(), 0o755))
	}
}

// removeCgroup removes a cgroup and those below it, deepest first. A missing one is no error, a populated
// one is.
func removeCgroup(dir string) error {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	// rmdir only: a cgroup's files cannot be unlinked, and os.RemoveAll would try.
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup %q: %w", dir, err)
	}
	return nil
}

// cgroupMembers lists the processes in a cgroup and below it. It may vanish while it is walked: what cannot be read has
// no members.
func cgroupMembers(dir string) (pids []int) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "cgroup.procs" {
			return nil
		}
		text, _ := os.ReadFile(path)
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// Escape takes a process out of all its cgroups, as if what started it lay outside of any job: a user's own service
// manager, cron, a container daemon, a login that Slurm does not adopt. Nobody but root can.
func Escape(pid int) error {
	host := findCgroups()
	mounts := host.v1
	if host.v2 != "" {
		mounts = append(mounts, host.v2)
	}
	for _, mount := range mounts {
		err := os.WriteFile(filepath.Join(mount, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("take process %d out of its cgroups: %w", pid, err)
		}
	}
	return nil
}

//go:embed shim/v2only.c
var shimSource []byte

// buildShim compiles the library that hides a hybrid host's v1 lines from slurmd.
func buildShim(folder string) (library string) {
	source, library := filepath.Join(folder, "v2only.c"), filepath.Join(folder, "v2only.so")
	rig.Try(os.WriteFile(source, shimSource, 0o644))
	// Fortified headers would define the functions that the library replaces.
	cc := exec.Command("cc", "-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE", "-o", library, source, "-ldl")
	if out, err := cc.CombinedOutput(); err != nil {
		panic(fmt.Errorf("compile the cgroup shim: %w\n%s", err, out))
	}
	return library
}
