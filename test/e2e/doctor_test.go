package e2e

import (
	"encoding/json"
	"slices"
	"testing"

	"bookend/internal/doctor"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// The doctor finds nothing on a node of a real Slurm that is set up as bookend setup says and has run a job. What an
// admin can spoil package doctor tests.
func TestDoctor(t *testing.T) {
	t.Parallel()
	o := site.Options{Setup: true, Config: asShipped, Track: cluster.LinuxProc,
		Conf: []string{"UnkillableStepTimeout=120", "PrologFlags=Contain"}}
	ignored := []string{"drop-filesystem", "remove-ipc"} // this machine's mounts and logind
	if slices.Contains(cluster.Tracks(), cluster.CgroupV1) {
		o.Track, o.Constrain = cluster.CgroupV1, true
	} else {
		ignored = append(ignored, "cgroups", "devices")
	}
	s := given(t, o)
	s.runs(s.user, "true", oneGPU)
	cmd := must.Have(s.on.Command("", s.on.Program("bookend"), "doctor", "--json"))(t)
	cmd.Env = append(cmd.Env, "BOOKEND_CONFIG="+s.on.ConfigFile("n1"), "SLURMD_NODENAME=n1")
	out, _ := cmd.Output() // its exit code tells of the machine too
	var said struct{ Results []doctor.Result }
	if err := json.Unmarshal(out, &said); err != nil || len(said.Results) < len(doctor.Checks()) {
		t.Fatalf("%v: %d results\n%s", err, len(said.Results), out)
	}
	for _, r := range said.Results {
		if r.Level != doctor.OK && !slices.Contains(ignored, r.Check) {
			t.Errorf("%+v", r)
		}
	}
}
