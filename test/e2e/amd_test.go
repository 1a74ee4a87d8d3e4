package e2e

import (
	"testing"

	"bookend/test/fakeamd"
	"bookend/test/site"
)

// A node with GPUs of both vendors, of AMD's one whole and one cut into partitions: Slurm gives out each by its type.
// The GPUs' files are as the kernel's sources have them; Bookend was never tried on real ones. What stays on them is
// reported and never drains: test/faults.
func TestAMD(t *testing.T) {
	t.Parallel()
	instinct := func(bus string, minor int, id string, partitions ...int) fakeamd.Card {
		return fakeamd.Card{Bus: bus, Minor: minor, UniqueID: id, Name: "AMD Instinct MI300X", Total: 192 << 30,
			Partitions: partitions}
	}
	s := given(t, site.Options{Mode: "enforce", GPUs: 1,
		AMD: []fakeamd.Card{instinct("0000:26:00.0", 158, "a1b2c3d4e5f60728", 158, 159),
			instinct("0000:46:00.0", 166, "a1b2c3d4e5f60719")},
		Gres: "gpu:h200:1,gpu:cpx:2,gpu:spx:1", GresConf: []string{"Name=gpu Type=h200 File=DEV/nvidia0",
			"Name=gpu Type=cpx File=DEV/dri/renderD[158,159]", "Name=gpu Type=spx File=DEV/dri/renderD166"}})
	for gres, show := range map[string][]string{
		"gpu:spx:1":  {"renderD166", "start:", "clean", "end:", "clean"},
		"gpu:h200:1": {"start:", "clean", "end:", "clean"},
		"gpu:cpx:2":  {"renderD158", "renderD159", "start:", "end:"},
	} {
		s.showSays("n1", s.runs(s.user, "true", "--gres="+gres), show...)
	}
	s.nodeIsUp("n1")
}
