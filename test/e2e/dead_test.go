package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

const bothGPUs = "--gres=gpu:2"

// A GPU that fails while a job has it keeps no more than one of three queued jobs, whatever the driver answers for it.
func TestDeadGPU(t *testing.T) {
	t.Parallel()
	for title, tt := range map[string]struct {
		harm   func(*story)
		reason string
	}{
		"error 999 at its handle":      {answers("nvmlDeviceGetHandleByPciBusId_v2.gpu0", "rc 999"), "BKD-NOANSWER gpu=0 "},
		"a code that no table has":     {answers("nvmlDeviceGetHandleByPciBusId_v2.gpu0", "rc 777"), "BKD-NOANSWER gpu=0 "},
		"error 999 of the library":     {answers("nvmlInit_v2", "rc 999"), "BKD-DRIVER "},
		"gone from the driver's list":  {(*story).firstGPUGoes, "BKD-MISSING gpu=0 "},
		"off the bus, by the log, 999": {(*story).firstGPUFallsOff, "BKD-XIDFATAL gpu=0 "},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := given(t, site.Options{Mode: "enforce"})
			first := s.starts(s.user, "echo ready\n"+awaits, bothGPUs)
			tt.harm(s)
			var queued []cluster.JobID
			for range 3 {
				queued = append(queued, s.submits(s.user, "echo started", bothGPUs))
			}
			s.touches(s.user, "done")
			s.ends(first)
			s.untilNode("n1", "is drained", func(n cluster.NodeState) bool {
				return n.Has("DRAIN") && strings.HasPrefix(n.Reason, tt.reason)
			})
			started := 0
			for _, id := range queued {
				if out, err := s.on.Output(id); err == nil && strings.Contains(out, "started") {
					started++
				}
			}
			for _, id := range queued {
				s.cancels(id)
			}
			must.Not(t, started > 1, "%d of the queued jobs started", started)
			s.nothingHarms()
		})
	}
}

// answers makes a call of the driver fail.
func answers(call, rule string) func(*story) {
	return func(s *story) { s.driverSays("on."+call, rule) }
}

func (s *story) firstGPUGoes() {
	w := s.on.World("n1")
	s.driverSays("on.nvmlDeviceGetHandleByPciBusId_v2.gpu0", "rc 28")
	must.Do(s.t, os.RemoveAll(filepath.Join(w.DriverProc(), "gpus", w.BusID(0))))
}

func (s *story) firstGPUFallsOff() {
	w := s.on.World("n1")
	s.driverSays("on.nvmlDeviceGetHandleByPciBusId_v2.gpu0", "rc 999")
	log := must.Have(os.OpenFile(w.KernelLog(), os.O_WRONLY|os.O_APPEND, 0))(s.t)
	defer log.Close()
	must.Have(fmt.Fprintf(log, "3,9000,9000000000,-;NVRM: Xid (PCI:%s): 79, GPU has fallen off the bus.\n",
		strings.TrimSuffix(w.BusID(0), ".0")))(s.t)
}

// nothingHarms lets the site's end look at its GPUs.
func (s *story) nothingHarms() {
	for _, call := range []string{"nvmlDeviceGetHandleByPciBusId_v2.gpu0", "nvmlInit_v2"} {
		s.driverSays("on."+call, "")
	}
}

// A GPU whose compute mode lets no program in is a finding with the remedy, one that admits a single process a note; in
// neither mode is a test allocation made, and the record says why.
func TestComputeModes(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	for mode, shows := range map[string][]string{
		"2": {"BKD-BLOCKED", "PROHIBITED", "nvidia-smi -c 0"},
		"3": {"test allocation: ", "EXCLUSIVE", "BKD-EXCLUSIVE"},
	} {
		s.driverSays("gpu0.compute_mode", mode)
		id := s.runs(s.user, "exit 3", oneGPU)
		s.nodeIsUp("n1")
		s.showSays("n1", id, shows...)
	}
	s.driverSays("gpu0.compute_mode", "0")
}
