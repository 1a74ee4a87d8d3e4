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

// resettable gives the site an nvidia-smi that frees the memory of GPU 0 at a reset, and returns what it was told so far.
func (s *story) resettable(more string) (told func() string) {
	dir, world := s.home(""), s.on.World("n1")
	smi, log := filepath.Join(dir, "nvidia-smi"), filepath.Join(dir, "smi-told")
	s.driverSays("gpu0.extra_mib", "0")
	must.Do(s.t, os.WriteFile(smi, fmt.Appendf(nil, `#!/bin/sh
case $* in
nvlink*) printf 'GPU 0: NVIDIA H200 (UUID: x)\n\t Link 0: 26.562 GB/s\n';;
*) echo "$*" >>%[1]s;;
esac
case $* in *gpu-reset)
sed -i 's/^gpu0.extra_mib = .*/gpu0.extra_mib = 0/' %[2]s/world.conf
echo "GPU $2 was successfully reset.";;
esac
`, log, world.Dir()), 0o755))
	s.adminConfigures("n1", "enforce", more+"reset: {nvidia_smi: "+smi+"}\n")
	return func() string {
		text, _ := os.ReadFile(log)
		return string(text)
	}
}

// leaks has a job end with 20 GiB in use on GPU 0 and no process: the node is drained for it.
func (s *story) leaks() {
	job := s.starts(s.user, awaits, oneGPU)
	s.driverSays("gpu0.extra_mib", "20480")
	s.touches(s.user, "done")
	s.ends(job)
	s.nodeIsDrained("n1", fmt.Sprintf("BKD-RESIDUE gpu=0 20480MiB job=%s epilog; see: bookend show %[1]s", job))
	s.untilNode("n1", "has no job", func(n cluster.NodeState) bool { return n.Has("IDLE") && !n.Has("COMPLETING") })
	must.Do(s.t, os.Remove(filepath.Join(s.home(s.user), "done")))
}

// prints runs a command on the node, and checks what it prints, whatever its exit status.
func (s *story) prints(want string, args ...string) {
	out, err := s.on.Bookend("n1", append(args, "--node", "n1")...)
	must.Not(s.t, !strings.Contains(out, want), "bookend %q, want %q: %v\n%s", args, want, err, out)
}

// An admin resets a GPU where no job can get it: Bookend's own drain then ends. The second time it is refused, and a drain of
// the admin's stays.
func TestReset(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	told := s.resettable("")
	s.runs(s.user, "true", oneGPU)
	s.prints("a job may get GPU 0 (node IDLE)", "reset", "0")
	s.leaks()
	s.prints("it can be reset; the plan:", "reset", "0", "--dry-run")
	must.Be(t, "nvidia-smi was told", told(), "")
	s.prints("reset, and everything is as it has to be", "reset", "0")
	s.comesBack("n1")
	s.runs(s.user, "true", oneGPU)
	s.hooksRan("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 11", "prolog 0", "epilog 0")
	once := told()
	must.Not(t, strings.Count(once, "--gpu-reset") != 1, "nvidia-smi was told %q", once)

	s.leaks()
	s.prints("what comes back within 24 hours no reset cures", "reset", "0")
	must.Be(t, "nvidia-smi was told", told(), once)
	s.driverSays("gpu0.extra_mib", "0")
	s.adminResumes("n1")

	s.adminUpdates("n1", "State=DRAIN", "Reason=broken")
	s.untilNode("n1", "is drained", func(n cluster.NodeState) bool { return n.Has("IDLE") && n.Has("DRAIN") })
	s.prints("if the reason of the node's drain (\"broken\") is over: scontrol update nodename=n1 state=undrain", "reset", "1")
	s.nodeIsDrained("n1", "broken")
	s.adminResumes("n1")
}

// The health check that slurmd runs repairs a GPU on which a job has left memory and no process, and the node is back. After
// an error of the hardware it does not.
func TestRepair(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Conf: []string{"HealthCheckInterval=2", "HealthCheckNodeState=ANY,CYCLE"}})
	told := s.resettable("repair: {enabled: true}\n")
	s.runs(s.user, "true", oneGPU)
	job := s.starts(s.user, awaits, oneGPU)
	s.driverSays("gpu0.extra_mib", "20480")
	s.touches(s.user, "done")
	s.ends(job)
	s.checkSays("level=warning", "was reset and is proven well; the node's drain is over")
	s.comesBack("n1")
	must.Not(t, strings.Count(told(), "--gpu-reset") != 1, "nvidia-smi was told %q", told())
	s.runs(s.user, "true", oneGPU)
	s.hooksRan("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 11", "prolog 0", "epilog 0")
}

func TestNoRepairOfHardware(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	told := s.resettable("repair: {enabled: true}\n")
	s.runs(s.user, "true", oneGPU)
	s.leaks()
	s.logsXid(48, "pid=1, DBE (Double Bit Error)")
	s.until("the repair is refused", func() bool {
		s.checks("n1")
		return strings.Contains(strings.Join(s.logLines(), "\n"), "is not reset: BKD-XIDFATAL is on record")
	})
	n := must.Have(s.on.Node("n1"))(t)
	must.Not(t, !n.Has("DRAIN") || !strings.HasPrefix(n.Reason, "BKD-RESIDUE gpu=0"), "the node is %v, %q", n.Flags, n.Reason)
	must.Be(t, "nvidia-smi was told", told(), "")
	s.driverSays("gpu0.extra_mib", "0")
	s.adminResumes("n1")
}
