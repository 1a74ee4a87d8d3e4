package hook

import (
	"fmt"
	"time"

	"bookend/internal/node"
	"bookend/internal/probe"
	"bookend/internal/publish"
	"bookend/internal/recorder"
	"bookend/internal/slurm"
)

// repairFlag starts a program that may reset a GPU of a node, whose name follows.
const repairFlag = "--repair"

// leaveRepair leaves a process that resets a GPU if the node is drained for what a reset can cure: Slurm ends a health
// check after a minute, and a reset with its proof takes longer. That process decides everything again.
func leaveRepair(a *node.Access) {
	if !repairs(a) {
		return
	}
	memory, _ := a.Store.Drain()
	_, is := memory.Repairable(node.ReadEpoch(a.Config.Paths))
	if is || !memory.Resetting.IsZero() { // one that died has perhaps stopped services
		recorder.Leave(a, repairFlag)
	}
}

func repairs(a *node.Access) bool { return a.Config.Repair.Enabled && a.Config.Mode == "enforce" }

// repair is the process that leaveRepair leaves. Meanwhile it counts as the node's health check.
func repair(env Env, name string) int {
	env.Confine()
	a := node.ForRecorder(env, name)
	a.Phase, a.Times.Probe = slurm.HealthCheck, 20e9 // ns: the driver may have to attach the GPU first, twice
	if opened, _ := a.OpenState(); !opened || !repairs(a) {
		return 1
	}
	release, err := a.Store.Turns.Check(time.Minute) // the health check itself is to end first
	if err != nil {
		return 1
	}
	o, err := probe.Repair(a, publish.AskSlurm(a), func(what any) {
		publish.Note(a, "info", fmt.Sprintf("repair: %v", what), false)
	})
	if o.Failed != "" {
		err = publish.Unrepaired(a, o.Card)
	}
	release()
	if err != nil {
		publish.Note(a, "warning", fmt.Sprintf("repair: %v", err), true)
	}
	switch name := fmt.Sprintf("repair: GPU %d (%s)", o.Card.Index, o.Card.Device.ID); {
	case o.Refused != "":
		publish.Note(a, "info", name+" is not reset: "+o.Refused, true)
	case o.Failed != "":
		publish.Note(a, "warning", name+": BKD-RESET: "+o.Failed, false)
	case o.Card.Device.ID != "":
		publish.Note(a, "warning", name+" was reset and is proven well; the node's drain is over", false)
	}
	return 0
}
