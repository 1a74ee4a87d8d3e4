package e2e

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/slurmconf"
	"bookend/internal/view"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// tries opens the GPUs of gres.conf: what Slurm gave the job is what it is let at. Others it does not fence.
const tries = `for n in FILES; do (: <DEV/nvidia$n) 2>/dev/null && echo got $n; done; true`

// TestNumbers compares the GPUs of a job's record with the device files that Slurm lets the job open.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		gres     string
		gresConf []string
		files    string   // the numbers of the device files in gres.conf
		asks     []string // what one job after another asks for
		got      []string
	}{
		"types in another order than their lines": {"gpu:b:2,gpu:a:2",
			[]string{"Name=gpu Type=a File=DEV/nvidia[0-1]", "Name=gpu Type=b File=DEV/nvidia[2-3]"},
			"0 1 2 3", []string{"gpu:a:1", "gpu:b:1", "gpu:a:2"}, []string{"0", "2", "0 1"}},
		"one is left out": {"gpu:3", []string{"Name=gpu File=DEV/nvidia[0,2-3]"}, "0 2 3",
			[]string{"gpu:1", "gpu:2", "gpu:3"}, []string{"0", "0 2", "0 2 3"}},
		"lines shuffled, with shards": {"gpu:4,shard:8", []string{"Name=gpu File=DEV/nvidia[3,0-1]",
			"Name=shard Count=8", "Name=gpu File=DEV/nvidia2"},
			"0 1 2 3", []string{"gpu:1", "gpu:2", "gpu:3"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := given(t, site.Options{Mode: "enforce", GPUs: 4, Gres: tt.gres, GresConf: tt.gresConf,
				Track: cluster.CgroupV1, Constrain: true})
			for i, ask := range tt.asks {
				job := s.runs(s.user, strings.NewReplacer("DEV", s.on.Dev("n1"), "FILES", tt.files).Replace(tries),
					"--gres="+ask)
				s.jobIs(job, "COMPLETED")
				got := s.gotFiles(job)
				if tt.got != nil && strings.Join(got, " ") != tt.got[i] {
					t.Errorf("%s: Slurm let the job at %q, want %q", ask, got, tt.got[i])
				}
				s.hasCards(job, got)
			}
			s.nodeIsUp("n1")
		})
	}
}

// gotFiles are the numbers of the device files that a job could open.
func (s *story) gotFiles(job cluster.JobID) (numbers []string) {
	for line := range strings.Lines(s.outputOf(job)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "got "); ok {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// hasCards checks that a job's record names the GPUs behind these device files, by slurmd's word.
func (s *story) hasCards(job cluster.JobID, files []string) {
	var want, have []gpu.ID
	for _, f := range files {
		minor := must.Have(strconv.Atoi(f))(s.t)
		id := must.Have(s.on.Device("n1", minor))(s.t)
		want = append(want, id)
	}
	run := s.recordOf(job)
	for _, g := range run.GPUs {
		have = append(have, g.ID)
	}
	slices.Sort(want)
	slices.Sort(have)
	if len(want) == 0 || !slices.Equal(have, want) {
		s.t.Errorf("job %s had %q, its record says %q", job, want, have)
	}
	if run.Record.Numbering.Source != slurmconf.BySlurmd {
		s.t.Errorf("job %s: %+v", job, run.Record.Numbering)
	}
}

// recordOf is what "bookend show --json" has of a job's only run.
func (s *story) recordOf(job cluster.JobID) view.Shown {
	out, err := s.on.Bookend("n1", "show", "--node", "n1", "--json", string(job))
	var show view.Show
	if err == nil {
		err = json.Unmarshal([]byte(out), &show)
	}
	if err != nil || len(show.Runs) != 1 {
		s.t.Fatalf("bookend show: %v\n%s", err, out)
	}
	return show.Runs[0]
}
