package e2e

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/site"
)

// tale is the story of one job, from its script to what everybody then reads. In all wanted texts {job} is its id,
// {pid} the process of its CUDA program, {user} its owner.
type tale struct {
	title  string
	script string
	args   []string // default: one GPU
	state  string   // default: COMPLETED
	code   string   // exit code, if it matters
	hooks  []string // default: both ran and ended well
	drains bool     // the node, for its orphan; default: the node is up

	reads  []string // all that its user reads
	has    []string // pieces of that, in order
	show   []string // pieces of "bookend show"
	status []string // pieces of "bookend status"
	prolog []string // pieces of the prolog's line in Bookend's log
	epilog []string // and of the epilog's
	silent bool     // Bookend has nothing on record of it
}

// jobsOn are the stories that one job tells, by the site that it runs on.
var jobsOn = map[string]struct {
	on    site.Options
	tales []tale
}{
	"by default": {site.Options{}, []tale{
		{title: "a whole node", script: "echo done", args: []string{"--exclusive"},
			reads: []string{"done", "",
				"| bookend: n1 GPUs 0,1 clean: at least 139.8 GiB free on each GPU"}, epilog: []string{`gpus="0,1"`}},
		{title: "a job that gives everything back reads one line at each end",
			script: "{cuda} alloc --mib 2000 --sleep 0\necho done",
			reads:  []string{"done", "", leftClean},
			show:   []string{"job {job} on n1, user {user}", "partition main", "GPU 0", "start:", "clean", "end:", "clean"},
			status: []string{"n1  observe  ", "free", "JOB  GPU  USER", "{job} "},
			prolog: []string{"msg=clean", "exit=0", "gpus=0"}, epilog: []string{"msg=clean", "exit=0",
				"job_log=appended"}},
		{title: "a job without GPUs leaves no trace", script: "echo done", args: []string{noGPU},
			reads: []string{"done"}, silent: true},
		{title: "a failed job keeps its exit code", script: "{cuda} alloc --mib 100 --sleep 0; exit 3",
			state: "FAILED", code: "3:0",
			has: []string{"| bookend: Your job failed (exit code 3); no message about memory in its output"}},
		{title: "errors in a file of their own leave the report in the output", script: "echo out; echo err >&2",
			args: []string{oneGPU, "--error=e-%j.txt"}, reads: []string{"out", "", leftClean}},
		{title: "an orphan is reported and the node stays up", script: leavesOrphan,
			reads: lines("| bookend: process {pid} (train) still uses a GPU at the end of your script", "", orphan),
			show: []string{"end:", "would drain for BKD-ORPHAN (observe mode)", "BKD-ORPHAN",
				"PID {pid} (train)", "{job} (uid ",
				"evidence: exclusive"}, status: []string{"PROBLEM", "LEFTOVER", "would drain for BKD-ORPHAN", "Next: bookend show {job}"},
			epilog: []string{"level=warning", "BKD-ORPHAN", "exit=0", `held="observe mode"`}},
	}},
	"without task hooks": {site.Options{NoTask: true}, []tale{
		reportsTogether,
		{title: "and of the file that sbatch names by itself", script: "echo done",
			reads: []string{"done", "", leftClean}},
		{title: "no file", script: "true", args: []string{oneGPU, "--output=/dev/null"},
			show:   []string{"start:", "clean", "end:", "clean"},
			epilog: []string{"job_log=not-regular"}},
	}},
	"a partition that enforces": {site.Options{
		Conf:   []string{"PartitionName=strict Nodes=n1 MaxTime=60 DefMemPerCPU=50 State=UP"},
		Config: "policy: {partitions: {strict: {mode: enforce}}}\n",
	}, []tale{{title: "drains", script: leavesOrphan, args: []string{oneGPU, "--partition=strict"}, drains: true,
		hooks: []string{"prolog 0", "epilog 10"}, show: []string{"partition strict", "DRAIN for BKD-ORPHAN (exit 10)"}}}},
}

const noGPU = "--gres=none"

// orphan is what a job that leaves a process reads, up to what it means.
const orphan = maybeLeft + "\n| bookend:   Process {pid} (train) is still running\n" + fix

// TestJobs tells them.
func TestJobs(t *testing.T) {
	t.Parallel()
	for name, tt := range jobsOn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := given(t, tt.on)
			s.tells(tt.tales...)
		})
	}
}

// reportsTogether is a job that no task hook tells anything.
var reportsTogether = tale{title: "both reports come at the end of a file that Slurm names", script: "echo done",
	args: []string{oneGPU, "--output=my %u-%j.txt"}, reads: []string{"done", "", leftClean}, epilog: []string{"job_log=appended"}}

// bracketed is a job whose two ends are seen and told.
var bracketed = tale{title: "a clean job is seen", script: "{cuda} alloc --mib 2000 --sleep 0\necho done",
	reads: []string{"done", "", leftClean}, show: []string{"start:", "clean", "end:", "clean"}}

// drains is a job that leaves a process where that drains.
var drains = tale{title: "an orphan drains", script: leavesOrphan, drains: true,
	hooks: []string{"prolog 0", "epilog 10"},
	show:  []string{"DRAIN for BKD-ORPHAN (exit 10)"}, epilog: []string{"BKD-ORPHAN", "action=drain", "exit=10"}}

func (s *story) tells(all ...tale) {
	for _, a := range all {
		s.tell(a.title, func(s *story) { s.happens(a) })
	}
}

// happens runs the job and checks what became of it.
func (s *story) happens(a tale) cluster.JobID {
	if a.args == nil {
		a.args = []string{oneGPU}
	}
	if a.hooks == nil {
		a.hooks = []string{"prolog 0", "epilog 0"}
	}
	job := s.runs(s.user, a.script, a.args...)
	fill := func(want []string) []string { return s.filled(job, want) }
	s.jobIs(job, cmp.Or(a.state, "COMPLETED"))
	if j, err := s.on.Job(job); a.code != "" && (err != nil || j.ExitCode != a.code) {
		s.t.Errorf("exit code %s, %v; want %s", j.ExitCode, err, a.code)
	}
	if s.hooksRan("n1", a.hooks...); a.drains {
		s.nodeIsDrained("n1", s.ofOrphan(job))
	} else {
		s.nodeIsUp("n1")
	}
	if a.reads != nil {
		s.userReads(job, fill(a.reads)...)
	}
	if a.has != nil {
		s.inOrder("the output", s.outputOf(job), fill(a.has)...)
	}
	if a.silent {
		s.nothingIsRecorded("n1", job)
		return job
	}
	s.showSays("n1", job, fill(a.show)...)
	s.statusSays("n1", fill(a.status)...)
	s.logSays("n1", job, "bookend-prolog", fill(a.prolog)...)
	s.logSays("n1", job, "bookend-epilog", fill(a.epilog)...)
	return job
}

func (s *story) filled(job cluster.JobID, want []string) []string {
	text := strings.NewReplacer("{job}", string(job), "{user}", s.user).Replace(strings.Join(want, "\x00"))
	if strings.Contains(text, "{pid}") {
		text = strings.ReplaceAll(text, "{pid}", fmt.Sprint(s.pid(job)))
	}
	if want == nil {
		return nil
	}
	return strings.Split(text, "\x00")
}
