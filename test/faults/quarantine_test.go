package faults

import (
	"strings"
	"testing"

	"bookend/internal/child"
	"bookend/internal/state"
	"bookend/test/must"
)

// What an admin wants in quarantine is on disk. A health check leaves a process that asks Slurm for its job and has another
// hold the GPU; here that is refused, since Slurm's number is another GPU's. Status and metrics show it until it is released.
func TestQuarantineThatIsGone(t *testing.T) {
	n := parallel(t, "observe")
	n.scontrol(`echo "$*" >>` + n.in("asked") + `; echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1`)
	n.job(100)
	n.shows("no problems", "status", "--records")
	disk := child.Journal[[]state.Quarantine]{Dir: n.conf.varDir, Name: "quarantines-" + nodeName + ".json"}
	must.Do(t, disk.Write([]state.Quarantine{{Job: 5, GPU: 0, UUID: "GPU-c", Reason: "ticket 17"}}))
	n.shows("GPU 0 is to be in quarantine (ticket 17), BUT NO JOB HOLDS IT: the next health check has one hold it", "status", "--records")
	n.check()
	await(n, "Slurm was asked, and the GPU compared", func() bool {
		return must.Have(disk.Read())(t)[0].Problem != ""
	})
	must.Be(t, "asked", n.get(n.in("asked")), "show job 5\n")
	n.shows("BUT NO JOB HOLDS IT: that number was GPU-c and is "+n.world.UUID(0)+" now: bookend release 0", "status", "--records")
	const shown = `bookend_gpu_quarantined{gpu="0",uuid="GPU-c"} 0`
	must.Not(t, !strings.Contains(n.metrics(), shown), "want %s in\n%s", shown, n.metrics())
	n.shows("the quarantine of GPU 0 is ended", "release", "0")
	n.shows("no problems", "status", "--records")
}
