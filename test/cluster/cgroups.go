package cluster

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupHost is what this host mounts of cgroups.
type cgroupHost struct {
	v1     []string // mount points of v1 hierarchies
	v2     string   // mount point of the v2 hierarchy
	hybrid bool     // slurmd's cgroup/v2 plugin refuses this host without the shim
}

// Tracks lists the ways to track that this host can run: LinuxProc, then those whose hierarchy is writable.
func Tracks() ([]Track, error) {
	host, err := findCgroups()
	if err != nil {
		return nil, err
	}
	var tracks []Track
	for _, t := range []Track{LinuxProc, CgroupV1, CgroupV2} {
		if host.can(t) {
			tracks = append(tracks, t)
		}
	}
	return tracks, nil
}

// findCgroups reads what is mounted. Slurm's v1 plugin looks below /sys/fs/cgroup only.
func findCgroups() (cgroupHost, error) {
	var host cgroupHost
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return host, err
	}
	for _, line := range strings.Split(string(table), "\n") {
		f := strings.Fields(line)
		switch {
		case len(f) < 3 || !strings.HasPrefix(f[1], "/sys/fs/cgroup"):
		case f[2] == "cgroup":
			host.v1 = append(host.v1, f[1])
		case f[2] == "cgroup2" && host.v2 == "":
			host.v2 = f[1]
		}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return host, err
	}
	host.hybrid = !strings.HasPrefix(string(own), "0::")
	return host, nil
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

// lockNames waits until no other cluster of this host uses cgroups under these names. Closing a returned file,
// or the end of this process, frees a name.
func lockNames(t Track, nodes []Node, patience time.Duration) (locks []*os.File, err error) {
	if err := makeFolder(base, 0o755); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		lock, err := os.OpenFile(filepath.Join(base, fmt.Sprintf("node-%s-%s.lock", n.Name, filepath.Base(string(t)))), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return locks, err
		}
		locks = append(locks, lock)
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
				return locks, fmt.Errorf("another cluster has cgroups of a node %q: %w", n.Name, err)
			}
		}
	}
	return locks, nil
}

// prepareCgroups makes room for the nodes' cgroups, whose names the caller has locked: empty remains are removed, and with
// those who are in them what a test's cluster lost. Others that are in use belong to another Slurm.
func (h cgroupHost) prepareCgroups(t Track, nodes []Node) error {
	for _, dir := range h.folders(t, nodes) {
		if err := endLost(dir); err != nil {
			return err
		}
		if err := removeCgroup(dir); err != nil {
			return fmt.Errorf("another Slurm uses %q; choose other node names: %w", dir, err)
		}
	}
	if t != CgroupV2 {
		return nil
	}
	if err := os.Mkdir(h.slice(), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// removeCgroup removes a cgroup and those below it, deepest first. A missing one is no error, a populated
// one is.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	// rmdir only: a cgroup's files cannot be unlinked, and os.RemoveAll would try.
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup %q: %w", dir, err)
	}
	return nil
}

// endLost empties a cgroup in which a cluster of tests left its steps or hooks, even where that cluster's folder was removed
// without a Sweep. slurmstepd writes its title over its environment, but keeps its log open.
func endLost(dir string) error {
	var members []process
	lost := false
	for _, pid := range cgroupMembers(dir) {
		p, ok := readProcess(pid)
		if !ok || p.ended {
			continue
		}
		members = append(members, p)
		lost = lost || p.uid == 0 && (p.ofTests() || p.worksIn(base))
	}
	if !lost {
		return nil
	}
	left, err := end(members, syscall.SIGKILL, 5*time.Second)
	if len(left) > 0 {
		return errors.Join(err, fmt.Errorf("processes %v of a lost cluster do not end", pids(left)))
	}
	return errors.Join(err, retryBusy(func() error { return removeCgroup(dir) }))
}

// cgroupMembers lists the processes in a cgroup and below it.
func cgroupMembers(dir string) []int {
	var pids []int
	// A cgroup may vanish while it is walked: what cannot be read has no members.
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "cgroup.procs" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// Escape takes a process out of all its cgroups, as if what started it lay outside of any job: a user's own service manager,
// cron, a container daemon, a login that Slurm does not adopt. Nobody but root can.
func Escape(pid int) error {
	host, err := findCgroups()
	if err != nil {
		return err
	}
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
func buildShim(folder string) (string, error) {
	source, library := filepath.Join(folder, "v2only.c"), filepath.Join(folder, "v2only.so")
	if err := os.WriteFile(source, shimSource, 0o644); err != nil {
		return "", err
	}
	// Fortified headers would define the functions that the library replaces.
	cc := exec.Command("cc", "-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE", "-o", library, source, "-ldl")
	if out, err := cc.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the cgroup shim: %w\n%s", err, out)
	}
	return library, nil
}
