package cluster

import (
	"fmt"
	"syscall"
	"time"

	"bookend/test/rig"
)

// controller is the daemon that keeps the nodes' states.
const controller = "slurmctld"

// StopController ends slurmctld as an admin does; it keeps its state. StartController brings it back.
func (c *Cluster) StopController() error {
	left, err := end(daemonsOf(c.paths.dir, record{Daemons: []string{controller}}), syscall.SIGTERM, c.options.Patience)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("stop %s: still there after %v", controller, c.options.Patience)
	}
	return err
}

// StartController starts slurmctld with the state that it left, and waits until it answers.
func (c *Cluster) StartController() error {
	start := func() { c.startDaemon(controller, c.daemonEnv(), controller, "-i") }
	if err := rig.Attempt(start); err != nil {
		return err
	}
	for deadline := time.Now().Add(c.options.Patience); ; time.Sleep(50 * time.Millisecond) {
		if err := c.Scontrol("ping"); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
