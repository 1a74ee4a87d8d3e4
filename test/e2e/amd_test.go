package e2e

import (
	"fmt"
	"testing"

	"bookend/test/cluster"
	"bookend/test/fakeamd"
	"bookend/test/site"
)

// A node with GPUs of both vendors, of AMD's one whole and one cut into partitions: Slurm gives out each by its type,
// and what stays on AMD's is reported and never drains. The GPUs' files are as the kernel's sources have them; Bookend
// was never tried on real ones. Slurm tracks by parents here: it would end what a job leaves in cgroups.
func TestAMD(t *testing.T) {
	t.Parallel()
	instinct := func(bus string, minor int, id string, partitions ...int) fakeamd.Card {
		return fakeamd.Card{Bus: bus, Minor: minor, UniqueID: id, Name: "AMD Instinct MI300X", Total: 192 << 30,
			Partitions: partitions}
	}
	s := given(t, site.Options{Mode: "enforce", Track: cluster.LinuxProc, GPUs: 1,
		AMD: []fakeamd.Card{instinct("0000:26:00.0", 158, "a1b2c3d4e5f60728", 158, 159),
			instinct("0000:46:00.0", 166, "a1b2c3d4e5f60719")},
		Gres: "gpu:h200:1,gpu:cpx:2,gpu:spx:1", GresConf: []string{"Name=gpu Type=h200 File=DEV/nvidia0",
			"Name=gpu Type=cpx File=DEV/dri/renderD[158,159]", "Name=gpu Type=spx File=DEV/dri/renderD166"}})
	t.Cleanup(s.on.AMD("n1").Keep())
	// A process that has the device node of an AMD GPU open, and 7.8 GiB of it; with setsid it outlives the job.
	computes := func(how string, minor int) string {
		return fmt.Sprintf("%s=%d:8000 %s sleep 300 <%s/dri/renderD%d >/dev/null 2>&1 &\nsleep 1\n", fakeamd.Holds, minor,
			how, s.on.Dev("n1"), minor)
	}
	for _, tt := range []struct {
		gres, script string
		show         []string
	}{
		{"gpu:spx:1", computes("", 166) + "kill $!", []string{"renderD166", "start:", "clean", "end:", "clean"}},
		{"gpu:h200:1", "echo working", []string{"start:", "clean", "end:", "clean"}},
		{"gpu:cpx:2", computes("", 159) + "kill $!", []string{"renderD158", "renderD159", "start:", "end:", "BKD-UNJUDGED"}},
		{"gpu:spx:1", computes("setsid", 166), []string{"BKD-ORPHAN", "7.8 GiB", "never tried on AMD's hardware"}},
		{"gpu:spx:1", "true", []string{"start:", "BKD-DIRTY"}},
	} {
		s.showSays("n1", s.runs(s.user, tt.script, "--gres="+tt.gres), tt.show...)
		s.nodeIsUp("n1")
	}
}
