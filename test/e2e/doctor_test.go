package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bookend/internal/doctor"
	"bookend/test/cluster"
	"bookend/test/site"
)

// ofTheMachine are the checks whose answer this machine gives, whatever a site is: its mounts.
var ofTheMachine = []string{"drop-filesystem"}

// doctorSays is what bookend doctor finds not well on a node, by check.
func (s *story) doctorSays(node string) map[string]doctor.Result {
	s.t.Helper()
	cmd := exec.Command(s.on.Program("bookend"), "doctor", "--json")
	cmd.Env = []string{"BOOKEND_CONFIG=" + s.on.ConfigFile(node), "SLURM_CONF=" + s.on.ConfFile(), "SLURMD_NODENAME=" + node}
	out, _ := cmd.Output() // its exit code tells of the machine too
	var said struct{ Results []doctor.Result }
	if err := json.Unmarshal(out, &said); err != nil || len(said.Results) < len(doctor.Checks()) {
		s.t.Fatalf("%v: %d results\n%s", err, len(said.Results), out)
	}
	ignored := ofTheMachine
	if root := os.Getenv("BOOKEND_SLURM_ROOT"); root != "" && root != "/" { // Slurm lies in a root folder of its own, where the doctor does not look
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

// The doctor finds nothing on a node of a real Slurm that is set up as the snippet says, and each thing that an admin then
// spoils.
func TestDoctor(t *testing.T) {
	t.Parallel()
	tracks, err := cluster.Tracks()
	if err != nil {
		t.Fatal(err)
	}
	o := site.Options{Snippet: "bookend-adopt.conf", Deploy: "../../deploy/slurm", Conf: []string{"UnkillableStepTimeout=120"}, Track: cluster.LinuxProc,
		Config: asShipped}
	if slices.Contains(tracks, cluster.CgroupV1) {
		o.Track, o.Constrain = cluster.CgroupV1, true
	}
	s := given(t, o)
	s.tell("a job has run, and all is well", func(s *story) {
		s.runs(s.user, "true", "--gres=gpu:1")
		for check, r := range s.doctorSays("n1") {
			if o.Track == cluster.LinuxProc && (check == "proctrack" || check == "constrain-devices") {
				continue
			}
			t.Errorf("%+v", r)
		}
	})
	etc := filepath.Dir(s.on.ConfFile())
	for name, tt := range map[string]struct {
		file, old, now string
		check          string
		level          doctor.Level
		seen           string
	}{
		"Bookend taken out":      {"slurm.conf", "Include ", "#Include ", "slurm-prolog", doctor.Wrong, "no Prolog="},
		"an include that is not": {"slurm.conf", "Include ", "Include /nowhere", "slurm-conf", doctor.Unknown, "which is not read"},
		"a hook that is not":     {"slurm.conf", "ClusterName", "Prolog=/nowhere/prolog\nClusterName", "slurm-prolog", doctor.Wrong, "does not exist"},
		"hooks by turns":         {"slurm.conf", "#last", "PrologFlags=Alloc,Contain,Serial", "prolog-flags", doctor.Warning, "Serial"},
		"hooks cut short":        {"slurm.conf", "#last", "PrologEpilogTimeout=3", "hook-timeout", doctor.Wrong, "PrologEpilogTimeout=3"},
		"jobs by groups":         {"slurm.conf", "#last", "ProctrackType=proctrack/pgid", "proctrack", doctor.Warning, "pgid"},
		"a card too many":        {"slurm.conf", "gpu:2", "gpu:3", "gpu-count", doctor.Wrong, "slurm.conf gives out 3, the driver has 2"},
		"shards":                 {"slurm.conf", "gpu:2", "gpu:2,shard:8", "", doctor.OK, ""},
		"cards the wrong way":    {"gres.conf", "nvidia0", "nvidia-x", "gpu-devices", doctor.Wrong, "no device: nvidia-x"},
		"no fence":               {"cgroup.conf", "", "ConstrainDevices=no\n", "constrain-devices", doctor.Warning, "ConstrainDevices is not yes"},
	} {
		s.tell(name, func(s *story) {
			file := filepath.Join(etc, tt.file)
			was, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.WriteFile(file, was, 0o644) }()
			text := string(was) + "\n#last\n"
			if tt.old != "" && !strings.Contains(text, tt.old) {
				s.t.Fatalf("%s has no %q:\n%s", tt.file, tt.old, text)
			}
			if text = strings.Replace(text, tt.old, tt.now, 1); tt.old == "" {
				text = string(was) + tt.now
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			bad := s.doctorSays("n1")
			if r := bad[tt.check]; tt.check != "" && (r.Level != tt.level || !strings.Contains(r.Seen, tt.seen) || r.Fix == "") {
				s.t.Errorf("said %+v of all\n%+v", r, bad)
			}
			if tt.check == "" && o.Track == cluster.CgroupV1 && len(bad) > 0 {
				s.t.Errorf("%+v", bad)
			}
		})
	}
}
