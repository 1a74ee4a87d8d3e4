package hook

import (
	"fmt"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/maintenance"
	"bookend/internal/node"
	"bookend/internal/publish"
	"bookend/internal/record"
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
	o, err := maintenance.Repair(a, publish.AskSlurm(a), func(what any) {
		publish.Note(a, "info", fmt.Sprintf("repair: %v", what), false)
	})
	if o.Failed != "" {
		f := record.Finding{Code: catalog.Reset, GPU: o.GPU.Device.ID, Index: &o.GPU.Index}
		_, err = maintenance.RenewReason(a, publish.AskSlurm(a), f)
	}
	release()
	text, often := became(o, err)
	switch {
	case text == "":
	case err == nil && o.Refused != "":
		publish.Note(a, "info", "repair: "+text, often)
	default:
		publish.Note(a, "warning", "repair: "+text, often)
	}
	return 0
}

// became says what became of a repair, empty if there was nothing to do. often is set if each check may say it again.
func became(o maintenance.Repaired, err error) (text string, often bool) {
	name := fmt.Sprintf("GPU %d (%s)", o.GPU.Index, o.GPU.Device.ID)
	switch {
	case err != nil:
		return strings.TrimPrefix(o.Failed+"; "+err.Error(), "; "), true
	case o.Refused != "":
		return name + " is not reset: " + o.Refused, true
	case o.Failed != "":
		return name + ": BKD-RESET: " + o.Failed, false
	case o.GPU.Device.ID != "":
		return name + " was reset and is proven well; the node's drain is over", false
	}
	return "", false
}
