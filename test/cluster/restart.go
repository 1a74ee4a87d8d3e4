package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"bookend/test/rig"
)

// RestartController ends slurmctld and starts it again, with the state that it has saved. Jobs go on.
func (c *Cluster) RestartController() error {
	return rig.Attempt(func() {
		c.ends("slurmctld")
		c.startDaemon("slurmctld", c.daemonEnv(), "slurmctld", "-i")
	})
}

// RestartNode ends a node's slurmd and starts it again. Jobs go on.
func (c *Cluster) RestartNode(name string) error {
	return rig.Attempt(func() {
		c.ends("slurmd-" + name)
		c.startDaemon("slurmd-"+name, c.slurmdEnv(), "slurmd", "-N", name)
	})
}

// Reboot ends slurmd and the jobs of the cluster's only node, and starts slurmd again, which tells slurmctld of a reboot.
// Before that it calls up.
func (c *Cluster) Reboot(name string, up func()) error {
	return rig.Attempt(func() {
		c.ends("slurmd-" + name)
		steps := withoutUs(c.isStep)
		rig.Try(kill(descendants(withoutUs(anybody), steps)))
		up()
		c.startDaemon("slurmd-"+name, c.slurmdEnv(), "slurmd", "-N", name, "-b")
	})
}

// isStep reports whether a process is a slurmstepd of this cluster, by the log that it has open: its title is where its
// environment was.
func (c *Cluster) isStep(p process) bool {
	if p.UID != 0 || !strings.HasPrefix(filepath.Base(p.Exe()), "slurmstepd") {
		return false
	}
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID))
	return slices.ContainsFunc(open, func(fd string) bool {
		path, _ := os.Readlink(fd)
		return strings.HasPrefix(path, c.paths.dir+"/")
	})
}

func (c *Cluster) ends(daemon string) {
	left, err := end(daemonsOf(c.paths.dir, record{Daemons: []string{daemon}}), syscall.SIGTERM, patience)
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("%s does not end", daemon))
	}
	rig.Try(err)
}
