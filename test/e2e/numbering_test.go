package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"bookend/internal/answer"
	"bookend/internal/gpu"
	"bookend/internal/numbering"
	"bookend/test/cluster"
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
		"types in another order than their lines": {"gpu:b:2,gpu:a:2", []string{"Name=gpu Type=a File=DEV/nvidia[0-1]", "Name=gpu Type=b File=DEV/nvidia[2-3]"},
			"0 1 2 3", []string{"gpu:a:1", "gpu:b:1", "gpu:a:2"}, []string{"0", "2", "0 1"}},
		"one is left out": {"gpu:3", []string{"Name=gpu File=DEV/nvidia[0,2-3]"}, "0 2 3", []string{"gpu:1", "gpu:2", "gpu:3"}, []string{"0", "0 2", "0 2 3"}},
		"lines shuffled, with shards": {"gpu:4,shard:8", []string{"Name=gpu File=DEV/nvidia[3,0-1]", "Name=shard Count=8", "Name=gpu File=DEV/nvidia2"},
			"0 1 2 3", []string{"gpu:1", "gpu:2", "gpu:3"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := given(t, site.Options{Mode: "enforce", GPUs: 4, Gres: tt.gres, GresConf: tt.gresConf, Track: cluster.CgroupV1, Constrain: true})
			for i, ask := range tt.asks {
				job := s.runs(s.user, strings.NewReplacer("DEV", s.on.Dev("n1"), "FILES", tt.files).Replace(tries), "--gres="+ask)
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
	s.t.Helper()
	var want, have []gpu.ID
	for _, f := range files {
		minor, err := strconv.Atoi(f)
		if err != nil {
			s.t.Fatal(err)
		}
		id, err := s.on.Device("n1", minor)
		if err != nil {
			s.t.Fatal(err)
		}
		want = append(want, id)
	}
	run := s.recordOf(job)
	for _, c := range run.Cards {
		have = append(have, gpu.ID(c.UUID))
	}
	slices.Sort(want)
	slices.Sort(have)
	if len(want) == 0 || !slices.Equal(have, want) {
		s.t.Errorf("job %s had %q, its record says %q", job, want, have)
	}
	if run.Numbering.Source != numbering.BySlurmd {
		s.t.Errorf("job %s: %+v", job, run.Numbering)
	}
}

func (s *story) recordOf(job cluster.JobID) answer.Run {
	s.t.Helper()
	out, err := s.on.Bookend("n1", "show", "--node", "n1", "--json", string(job))
	var show answer.Show
	if err == nil {
		err = json.Unmarshal([]byte(out), &show)
	}
	if err != nil || len(show.Runs) != 1 {
		s.t.Fatalf("bookend show: %v\n%s", err, out)
	}
	return show.Runs[0]
}

// What is on a GPU that Slurm does not give out is no job's fault.
func TestGPUThatSlurmDoesNotHave(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", GPUs: 2, Track: cluster.LinuxProc, Gres: "gpu:1", GresConf: []string{"Name=gpu File=DEV/nvidia1"}})
	s.logsIn(s.stranger, "n1", "alloc --mib 2000 --orphan")
	job := s.runs(s.user, "echo done", oneGPU)

	s.hasCards(job, []string{"1"})
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.nodeIsUp("n1")
	s.userReads(job, "| bookend: GPU 0 of n1 clean: 143156 MiB free, nobody on it", "done", "", "| bookend: GPU 0 of n1 left clean by your job")
}

// While slurmd counts by a file that is no longer there nothing is judged; a job that began before is judged on its own GPU.
func TestNumbersChangeUnderSlurmd(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Track: cluster.LinuxProc})
	before := s.starts(s.user, "{cuda} alloc --mib 2000 --sleep 0\n"+awaits, oneGPU)
	file := filepath.Join(filepath.Dir(s.on.ConfFile()), "gres.conf")
	text := fmt.Sprintf("NodeName=n1 Name=gpu File=%[1]s/nvidia1\nNodeName=n1 Name=gpu File=%[1]s/nvidia0\n", s.on.Dev("n1"))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	after := s.runs(s.user, "echo done", oneGPU)
	s.touches(s.user, "done")
	s.ends(before)

	s.hasCards(before, []string{"0"})
	if n := s.recordOf(after).Numbering; n.Source != numbering.Ambiguous || !strings.Contains(n.Why, "has changed since slurmd started") {
		t.Errorf("after the change: %+v", n)
	}
	s.showSays("n1", after, "start:", "BKD-AMBIGUOUS", "end:", "BKD-AMBIGUOUS")
	s.nodeIsUp("n1")
}
