package e2e

import (
	"fmt"
	"testing"

	"bookend/test/cluster"
	"bookend/test/fakeamd"
	"bookend/test/must"
	"bookend/test/site"
)

const gib = 1 << 30

// instinct is a card of AMD's: its files are as the kernel's sources have them. Bookend was never tried on real ones.
func instinct(bus string, minor int, id string) fakeamd.Card {
	return fakeamd.Card{Bus: bus, Minor: minor, UniqueID: id, Name: "AMD Instinct MI300X", Total: 192 * gib}
}

// computes is a script whose process has the device node of an AMD GPU open, and so much of it; with setsid it outlives
// the job.
func (s *story) computes(how string, minor, mib int) string {
	return fmt.Sprintf("%s=%d:%d %s sleep 300 <%s/dri/renderD%d >/dev/null 2>&1 &\nsleep 1\n", fakeamd.Holds, minor, mib,
		how, s.on.Dev("n1"), minor)
}

// All fake nodes of AMD's see all processes that say what they hold: each test has minors of its own. None is tracked
// by cgroups: Slurm ends what a job leaves in them.

// A node with AMD's GPUs alone, of which one is cut into partitions: their processes are judged, not their memory.
func TestAMDAlone(t *testing.T) {
	t.Parallel()
	cut := instinct("0000:26:00.0", 158, "a1b2c3d4e5f60728")
	cut.Partitions = []int{158, 159}
	s := given(t, site.Options{Mode: "enforce", Track: cluster.LinuxProc, AMDAlone: true, Conf: []string{soonAgain},
		AMD: []fakeamd.Card{cut, instinct("0000:46:00.0", 166, "a1b2c3d4e5f60719")}, Gres: "gpu:cpx:2,gpu:spx:1",
		GresConf: []string{"Name=gpu Type=cpx File=DEV/dri/renderD[158,159]",
			"Name=gpu Type=spx File=DEV/dri/renderD166"}})
	w := s.on.AMD("n1")
	t.Cleanup(w.Keep())

	s.tell("clean, on a whole GPU and on partitions", func(s *story) {
		whole := s.runs(s.user, s.computes("", 166, 8000)+"kill $!", "--gres=gpu:spx:1")
		s.showSays("n1", whole, "renderD166", "start:", "clean", "end:", "clean")
		parts := s.runs(s.user, s.computes("", 159, 8000)+"kill $!", "--gres=gpu:cpx:2")
		s.showSays("n1", parts, "renderD158", "renderD159", "start:", "end:", "BKD-UNJUDGED")
		s.nodeIsUp("n1")
	})
	s.tell("a process stays on a partition", func(s *story) {
		id := s.runs(s.user, s.computes("setsid", 158, 8000), "--gres=gpu:cpx:2")
		s.showSays("n1", id, "BKD-ORPHAN", "7.8 GiB", "a part of a GPU (MIG or partition)")
		next := s.runs(s.stranger, "true", "--gres=gpu:cpx:2")
		s.showSays("n1", next, "start:", "BKD-DIRTY")
		s.nodeIsUp("n1")
	})
}

// A node with GPUs of both vendors: Slurm gives out either, and what stays on AMD's is told and never drains.
func TestAMD(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Track: cluster.LinuxProc, GPUs: 1, Conf: []string{soonAgain},
		AMD: []fakeamd.Card{instinct("0000:26:00.0", 128, "a1b2c3d4e5f60718"),
			instinct("0000:46:00.0", 136, "a1b2c3d4e5f60719")},
		Gres: "gpu:h200:1,gpu:mi300x:2", GresConf: []string{"Name=gpu Type=h200 File=DEV/nvidia0",
			"Name=gpu Type=mi300x File=DEV/dri/renderD[128,136]"}})
	w := s.on.AMD("n1")
	t.Cleanup(w.Keep())
	const one, two = "--gres=gpu:mi300x:1", "--gres=gpu:mi300x:2"

	s.tell("clean, and NVIDIA's beside it", func(s *story) {
		first := s.runs(s.user, s.computes("", 128, 8000)+"kill $!", one)
		second := s.runs(s.user, "echo working", "--gres=gpu:h200:1")
		for _, id := range []string{string(first), string(second)} {
			s.showSays("n1", id, "start:", "clean", "end:", "clean")
		}
		s.nodeIsUp("n1")
	})
	s.tell("a process of the job stays", func(s *story) {
		id := s.runs(s.user, s.computes("setsid", 128, 8000), one)
		s.showSays("n1", id, "BKD-ORPHAN", "7.8 GiB", "never tried on AMD's hardware")
		next := s.runs(s.stranger, "true", one)
		s.showSays("n1", next, "start:", "BKD-DIRTY")
		s.nodeIsUp("n1")
	})
	s.tell("a requeued job", func(s *story) {
		id := s.starts(s.user, "if [ ${SLURM_RESTART_COUNT:-0} = 0 ]; then "+s.computes("setsid", 136, 8000)+
			"echo ready; sleep 300; fi", "--requeue", two)
		must.Do(t, s.on.Scontrol("requeue", string(id)))
		s.ends(id)
		s.showSays("n1", id, "renderD128", "renderD136", "start:", "clean", "end:", "clean", "start:", "clean", "end:", "clean")
		s.nodeIsUp("n1")
	})
}
