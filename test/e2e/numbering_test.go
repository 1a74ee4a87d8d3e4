package e2e

import (
	"encoding/json"
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
