package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"bookend/internal/doctor"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// ofTheMachine are the checks whose answer this machine gives, whatever a site is: its mounts.
var ofTheMachine = []string{"drop-filesystem"}

// doctorSays is what bookend doctor finds not well on a node, by check.
func (s *story) doctorSays(node string) map[string]doctor.Result {
	cmd := exec.Command(s.on.Program("bookend"), "doctor", "--json")
	cmd.Env = []string{"BOOKEND_CONFIG=" + s.on.ConfigFile(node), "SLURM_CONF=" + s.on.ConfFile(), "SLURMD_NODENAME=" +
		node}
	out, _ := cmd.Output() // its exit code tells of the machine too
	var said struct{ Results []doctor.Result }
	if err := json.Unmarshal(out, &said); err != nil || len(said.Results) < len(doctor.Checks()) {
		s.t.Fatalf("%v: %d results\n%s", err, len(said.Results), out)
	}
	ignored := ofTheMachine
	// Slurm lies in a root folder of its own, where the doctor does not look
	if cluster.Root() != "/" {
		ignored = append(slices.Clone(ignored), "slurm-version")
	}
	bad := map[string]doctor.Result{}
	for _, r := range said.Results {
		if r.Level != doctor.OK && !slices.Contains(ignored, r.Check) {
			bad[r.Check] = r
		}
	}
	return bad
}

// The doctor finds nothing on a node of a real Slurm that is set up as bookend setup says. What else an
// admin spoils package doctor has.
func TestDoctor(t *testing.T) {
	t.Parallel()
	tracks := cluster.Tracks()
	o := site.Options{Setup: true,
		Conf: []string{"UnkillableStepTimeout=120", "PrologFlags=Contain"}, Track: cluster.LinuxProc,
		Config: asShipped}
	if slices.Contains(tracks, cluster.CgroupV1) {
		o.Track, o.Constrain = cluster.CgroupV1, true
	}
	s := given(t, o)
	s.tell("a job has run, and all is well", func(s *story) {
		s.runs(s.user, "true", "--gres=gpu:1")
		for check, r := range s.doctorSays("n1") {
			if o.Track == cluster.LinuxProc && check == "cgroups" {
				continue
			}
			t.Errorf("%+v", r)
		}
	})
	s.tell("a GPU too many", func(s *story) {
		file := s.on.ConfFile()
		text := strings.Replace(string(must.Have(os.ReadFile(file))(s.t)), "gpu:2", "gpu:3", 1)
		must.Do(s.t, os.WriteFile(file, []byte(text), 0o644))
		if r := s.doctorSays("n1")["gpu-order"]; r.Level != doctor.Wrong {
			s.t.Errorf("%+v", r)
		}
	})
}
