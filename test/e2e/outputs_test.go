package e2e

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/internal/view"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

const saysOOM = `echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB." >&2`

// Wherever a job's message about memory goes, it is found, or the record says why not.
func TestWhereMessagesAre(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{})
	out, errs := s.at("o.%t"), s.at("e.%t")
	for _, tt := range []struct {
		title, script string
		args          []string
		job           string // how it is asked for
		kind          record.OutputKind
		file          string // {job} is its id
	}{
		{title: "srun -o inside a batch script", script: "srun -o " + s.at("step.txt") + " /bin/sh -c '" + saysOOM +
			"; exit 1'",
			kind: record.StepOutput, file: "step.txt"},
		{title: "srun with its output redirected", script: "srun /bin/sh -c '" + saysOOM + "; exit 1' > " +
			s.at("r.txt") + " 2>&1",
			kind: record.StepOutput, file: "r.txt"},
		{title: "one file a task: the first is found", args: []string{"--ntasks=2"}, kind: record.StepOutput, file: "e.0",
			script: "srun -n2 -o " + out + " -e " + errs + " /bin/sh -c '[ $SLURM_PROCID = 1 ] && exec sleep 1; " +
				saysOOM + "; exit 1'"},
		{title: "errors apart, of a name that only the task hook tells", script: saysOOM + "\nexit 1", job: "{job}_3",
			args: []string{"--job-name=fine", "--array=3", "--open-mode=append", "--output=" + s.at("%x-%A_%a.out"),
				"--error=" + s.at("%x-%j_%a.err")},
			kind: record.ScriptErrors, file: "fine-{job}_3.err"},
	} {
		s.tell(tt.title, func(s *story) {
			id := string(s.runs(s.user, tt.script, append(tt.args, oneGPU)...))
			job := strings.ReplaceAll(cmp.Or(tt.job, "{job}"), "{job}", id)
			s.foundIn(cluster.JobID(job), tt.kind, strings.ReplaceAll(tt.file, "{job}", id))
		})
	}
	s.tell("srun alone writes to its own terminal", srunsTerminal)
}

func srunsTerminal(s *story) {
	job, _ := s.attends(s.user, "", "srun", oneGPU, "/bin/sh", "-c", "echo job $SLURM_JOB_ID; "+saysOOM)

	end := s.lastEnd(job)
	if len(end.Messages) != 0 || len(end.Outputs) != 1 || !strings.Contains(end.Outputs[0].Why, "srun's own terminal") {
		s.t.Errorf("%+v, %+v", end.Messages, end.Outputs)
	}
}

// foundIn checks that the one message of a job was found in this output.
func (s *story) foundIn(job cluster.JobID, kind record.OutputKind, path string) {
	end := s.lastEnd(job)
	if len(end.Messages) != 1 || end.Messages[0].Kind != record.KindDevice || end.Messages[0].Output >= len(end.Outputs) {
		s.t.Fatalf("%+v in %+v", end.Messages, end.Outputs)
	}
	if o := end.Outputs[end.Messages[0].Output]; o.Kind != kind || filepath.Base(o.Path) != filepath.Base(path) ||
		o.Read == 0 {
		s.t.Errorf("found in %+v of %+v", o, end.Outputs)
	}
}

func (s *story) lastEnd(job cluster.JobID) view.HookEnd {
	ends := s.shown(job, 1)[0].Record.Ends
	if len(ends) == 0 {
		s.t.Fatalf("job %s has no end", job)
	}
	return ends[len(ends)-1]
}

// Without task hooks only the job's own processes show what %x, %A and %a became, and only while it runs.
func TestNamesWithoutTaskHooks(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{NoTask: true})
	for _, tt := range []struct {
		title string
		args  []string
		errs  bool // are kept apart
	}{
		{title: "one file", args: []string{"--output=%x-%A.txt"}},
		{title: "errors apart", args: []string{"--output=%x-%A.txt", "--error=%x-%A.err"}, errs: true},
		{title: "an array's task, of the name that sbatch gives", args: []string{"--array=3"}},
	} {
		s.tell(tt.title, func(s *story) { s.findsOutput(tt.errs, append(tt.args, oneGPU, "--job-name=fine")) })
	}
	s.tell("a job that the recorder did not see", func(s *story) {
		must.Do(s.t, s.on.WriteConfig("n1", "observe", timed("record: {every: 0s}\n")))
		s.happens(tale{script: "echo done", args: []string{oneGPU, "--job-name=fine", "--output=%x-short.txt"},
			reads: []string{"done"}, status: []string{"no problems", "reports in no file (BKD-OUTPUT): 1"},
			epilog: []string{"msg=\"findings: BKD-OUTPUT\"", "exit=0", "job_log=unknown-file"}})
		s.inOrder("the metrics", must.Read(s.t, s.on.Metrics("n1")), `bookend_findings_total{code="BKD-OUTPUT",hook="epilog"} 1`)
	})
}

// findsOutput runs a job that ends once the recorder has seen where its output goes.
func (s *story) findsOutput(errs bool, args []string) {
	id := s.submits(s.user, "echo out; "+saysOOM+"\nuntil [ -e seen ]; do sleep 0.1; done\nexit 1", args...)
	var seen slurm.OutputFiles
	s.until("the recorder has seen the output of job "+string(id), func() bool {
		for name, o := range state.Recorded.PeekNode(s.on.Run(), "n1").Outputs {
			if strings.HasPrefix(name, string(id)+"-") {
				seen = o
			}
		}
		return seen.Output.Path != ""
	})
	s.touches(s.user, "seen")
	s.ends(id)
	text := string(must.Have(os.ReadFile(seen.Output.Path))(s.t))
	if s.inOrder("the output", text, "out\n", "| bookend: OUT OF MEMORY", "bookend show "+string(id)); errs {
		s.foundIn(id, record.ScriptErrors, seen.Errors.Path)
	} else {
		s.foundIn(id, record.ScriptOutput, seen.Output.Path)
	}
	s.logSays("n1", id, "bookend-epilog", "job_log=appended")
}

func (s *story) at(name string) string { return filepath.Join(s.home(s.user), name) }
