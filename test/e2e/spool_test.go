package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// On a host without hooks and records a user's reports come from the spool, and no other user gets them.
func TestSpool(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Nodes: []string{"n1", "n2"}, Conf: []string{soonAgain}})
	dir := filepath.Join(s.home(s.user), ".bookend")
	must.Do(t, must.Have(s.on.Command(s.user, "/bin/mkdir", "-m", "700", dir))(t).Run())
	sections := fmt.Sprintf("job_log: {peaks: true}\nspool: %s\n", filepath.Join(filepath.Dir(s.home(s.user)), "%u/.bookend"))
	for _, node := range s.nodes {
		must.Do(t, s.on.WriteConfig(node, "observe", timed(sections)))
	}
	login := filepath.Join(filepath.Dir(s.on.ConfigFile("n1")), "login.yaml")
	must.Do(t, os.WriteFile(login, []byte("version: 1\npaths: {run: /run/none}\n"+sections), 0o644))
	ask := func(user string, want int, args ...string) string {
		cmd := must.Have(s.on.Command(user, s.on.Program("bookend"), args...))(t)
		cmd.Env = append(cmd.Env, "BOOKEND_CONFIG="+login)
		out, _ := cmd.CombinedOutput()
		must.Not(s.t, cmd.ProcessState.ExitCode() != want, "%q exits %d, want %d:\n%s", args, cmd.ProcessState.ExitCode(), want, out)
		return string(out)
	}
	why := func(user string, want int, args ...string) string {
		return ask(user, want, append([]string{"why"}, args...)...)
	}

	two := s.runs(s.user, "srun --nodes=1 --ntasks=1 --nodelist=n2 /bin/sh -c '"+leavesOrphan+"'", "--nodes=2", oneGPU)
	s.inOrder("the answer", why(s.user, 0, string(two)), fmt.Sprintf("job %s on n2", two), "end:", "(train) is still running",
		fmt.Sprintf("job %s on n1", two), "end:", "clean")
	for _, user := range []string{s.stranger, s.user} {
		must.Not(s.t, !strings.Contains(why(user, 4, "99"), "no report of job 99"), "an answer without a job")
	}
	must.Not(s.t, !strings.Contains(why(s.stranger, 4, string(two)), "no report of job"), "another user's answer")

	failed := s.runs(s.user, "exit 3", oneGPU, "--nodelist=n1")
	s.inOrder("the last that failed", why(s.user, 0), fmt.Sprintf("job %s on n1", failed))
	id := s.runs(s.user, "true", "--array=1-2", "--nodelist=n1", oneGPU)
	s.inOrder("a task", why(s.user, 0, string(id)+"_2"), fmt.Sprintf("job %s_2 on n1", id), "clean")
	must.Not(s.t, strings.Count(why(s.user, 0, string(id)), " on n1\n") != 2, "the answer has not both tasks")

	again := s.starts(s.user, `[ "$SLURM_RESTART_COUNT" ] || { echo ready; sleep 600; }`, oneGPU, "--nodelist=n1")
	must.Do(t, s.on.Scontrol("requeue", string(again)))
	s.ends(again)
	must.Not(s.t, strings.Count(why(s.user, 0, string(again)), " on n1\n") != 2, "the answer has not both runs")

	other := s.runs(s.stranger, "true", oneGPU, "--nodelist=n1")
	s.logSays("n1", other, "bookend-epilog", "spool=missing")
	s.logSays("n1", failed, "bookend-epilog", "spool=written")
	files := must.Have(os.ReadDir(dir))(t)
	must.Not(s.t, len(files) != 7, "%d files: %v", len(files), files)

	s.runs(s.user, "{cuda} alloc --mib 2000 --sleep 6", oneGPU, "--nodelist=n1", "--job-name=my net")
	s.inOrder("a name's peaks", ask(s.user, 0, "peaks", "my net"), "my net", "  ok  ", ">= 2.5 of 140.4 GiB  ", "  1 NVIDIA H200\n",
		"the peak may have been higher: there are too few samples", "NVIDIA H200  140.4 GiB  ran there  1 of 1 runs had exit 0 there")
	s.cancels(s.starts(s.user, "echo ready; sleep 600", oneGPU, "--nodelist=n1", "--job-name=cut")) // its exit status is 0
	s.inOrder("a cancelled job's", ask(s.user, 0, "peaks", "cut"), "cut", "  failed  ", "unknown  the last run did not end well")
	s.inOrder("all peaks", ask(s.user, 0, "peaks"), "my net", string(again)+"  ", "  failed  ", "2 NVIDIA H200\n")
	must.Not(s.t, !strings.Contains(ask(s.stranger, 3, "peaks", "my net"), "no GPU job of yours"), "another user's peaks")

	// A larger GPU's peak, as the spool's own file has it: a job's start compares it with its GPU, once a job.
	own := must.Have(filepath.Glob(dir + "/" + string(failed) + ".n1.json"))(t)[0]
	larger := must.Read(t, own)
	for from, to := range map[string]string{`"job_id":` + string(failed): `"job_id":9999`, `"peak_bytes":[0-9]+`: `"peak_bytes":161061273600`,
		`"total_bytes":[0-9]+`: `"total_bytes":400000000000`, `"name":"[^"]*"`: `"name":"big\u001b[2J"`} {
		larger = regexp.MustCompile(from).ReplaceAllString(larger, to)
	}
	must.Do(t, os.WriteFile(dir+"/9999.n3.json", []byte(larger), 0o644))
	warned := s.runs(s.user, "srun true", oneGPU, "--nodelist=n1", "--job-name=big\x1b[2J", "--array=1-2")
	for _, task := range []string{"_1", "_2"} {
		text := must.Have(s.on.Output(cluster.JobID(string(warned) + task)))(t)
		s.inOrder("the start", text, `| bookend: your last `, ` of "big\x1b[2J" peaked at 150.0 GiB on one GPU; here a GPU has 140.4 GiB: it may not fit.`)
		must.Not(s.t, strings.Count(text, "may not fit") != 1, "%s", text)
	}
	must.Not(s.t, strings.Contains(s.outputOf(failed), "may not fit"), "%s", s.outputOf(failed))
}
