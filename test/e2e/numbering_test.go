package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/view"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// Slurm counts types in the order of slurm.conf, not of gres.conf's lines, and does not count a GPU that is left out:
// the GPUs on record are those whose device files Slurm lets the job open. Others it does not fence.
func TestNumbers(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", GPUs: 4, Gres: "gpu:b:2,gpu:a:1,shard:6", GresConf: []string{
		"Name=gpu Type=a File=DEV/nvidia0", "Name=shard Count=6", "Name=gpu Type=b File=DEV/nvidia[2-3]",
	}, Track: cluster.CgroupV1, Constrain: true})
	opens := "for n in 0 2 3; do (: <" + s.on.Dev("n1") + "/nvidia$n) 2>/dev/null && echo got $n; done; true"
	for _, ask := range []struct{ gres, files string }{
		{"gpu:a:1", "0"}, {"gpu:b:1", "2"}, {"gpu:3", "0 2 3"}, {"gpu:a:1,gpu:b:1", "0 2"},
	} {
		job := s.runs(s.user, opens, "--gres="+ask.gres)
		s.jobIs(job, "COMPLETED")
		var want, have []gpu.ID
		for _, number := range strings.Fields(ask.files) {
			want = append(want, must.Have(s.on.Device("n1", must.Have(strconv.Atoi(number))(t)))(t))
		}
		run := s.shown(job, 1)[0]
		for _, g := range run.GPUs {
			have = append(have, g.ID)
		}
		if len(have) < len(want) { // Slurm told the hooks of one type alone
			have = append(have, run.Record.Numbering.Perhaps...)
		}
		slices.Sort(want)
		slices.Sort(have)
		must.Not(t, !slices.Equal(have, want) || run.Record.Numbering.Source != record.BySlurmd,
			"%s: its record says %q, by %+v, want %q", ask.gres, have, run.Record.Numbering, want)
		got := strings.Split("got "+strings.ReplaceAll(ask.files, " ", "\ngot "), "\n")
		if opened := slices.DeleteFunc(strings.Split(s.outputOf(job), "\n"), func(line string) bool {
			return !strings.HasPrefix(line, "got ")
		}); !slices.Equal(opened, got) {
			t.Errorf("%s: Slurm let the job at %q, want %q", ask.gres, opened, got)
		}
	}
	s.nodeIsUp("n1")
}

// Exporters learn which job has which GPU of the driver's, whatever number Slurm has for it; a job that ends leaves an
// empty file, and the health check finds what no hook has cleared.
func TestJobMap(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Gres: "gpu:b:1,gpu:a:1", GresConf: []string{
		"Name=gpu Type=a File=DEV/nvidia0", "Name=gpu Type=b File=DEV/nvidia1",
	}})
	dcgm, gpustat := filepath.Join(s.on.Dir, "dcgm"), filepath.Join(s.on.Dir, "gpustat")
	must.Do(t, s.on.WriteConfig("n1", "enforce",
		fmt.Sprintf("  job_map: {dcgm: %s, gpustat: %s, metric: true}\n", dcgm, gpustat)+patiently))
	first, second := must.Have(s.on.Device("n1", 0))(t), must.Have(s.on.Device("n1", 1))(t)
	says := func(when string, a, b cluster.JobID) {
		t.Helper()
		prom := must.Read(t, s.on.Metrics("n1")) // once all hooks have written
		of := func(job cluster.JobID) string {
			if job == "" {
				return ""
			}
			return string(job) + " " + must.Have(user.Lookup(s.user))(t).Uid
		}
		for path, want := range map[string]string{
			dcgm + "/0": string(a), dcgm + "/1": string(b), gpustat + "/0": of(a), gpustat + "/1": of(b),
			gpustat + "/" + string(first): of(a), gpustat + "/" + string(second): of(b),
		} {
			got, err := os.ReadFile(path)
			must.Not(t, string(got) != want || err != nil && want != "", "%s: %s has %q, %v, want %q", when, path, got, err, want)
		}
		for number, on := range []struct {
			id  gpu.ID
			job cluster.JobID
		}{{second, b}, {first, a}} { // in Slurm's order
			line := fmt.Sprintf("bookend_gpu_job_info{gpu=\"%d\",uuid=\"%s\",jobid=\"%s\"} 1\n", number, on.id, on.job)
			must.Be(t, when+": "+line, strings.Contains(prom, line), on.job != "")
		}
	}
	b := s.starts(s.user, "echo ready; sleep 600", "--gres=gpu:b:1")
	says("one job", "", b)
	a := s.starts(s.user, "echo ready; sleep 600", "--gres=gpu:a:1")
	says("two jobs", a, b)
	s.cancels(b)
	says("one has ended", a, "")
	s.cancels(a)
	says("both have ended", "", "")
	must.Do(t, os.WriteFile(dcgm+"/1", []byte("999"), 0o644))
	s.checks("n1")
	says("after a health check", "", "")
}

// shown is what "bookend show --json" has of a job that ran so often.
func (s *story) shown(job cluster.JobID, runs int) []view.Shown {
	out, err := s.on.Bookend("n1", "show", "--node", "n1", "--json", string(job))
	var show view.Show
	if err == nil {
		err = json.Unmarshal([]byte(out), &show)
	}
	if err != nil || len(show.Runs) != runs {
		s.t.Fatalf("bookend show: %v\n%s", err, out)
	}
	return show.Runs
}
