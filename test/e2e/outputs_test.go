package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bookend/internal/answer"
	"bookend/internal/ledger"
	"bookend/internal/oom"
	"bookend/test/cluster"
	"bookend/test/site"
)

const (
	saysOOM = `echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB." >&2`
	babbles = `yes "epoch 7 loss 0.31 lr 1e-4" | head -c 2097152`
)

// Wherever a job's message about memory goes, it is found, or the record says why not.
func TestWhereMessagesAre(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{})
	s.tell("srun -o inside a batch script", srunWritesFile)
	s.tell("srun with its output redirected", srunRedirected)
	s.tell("one file a task, errors apart", oneFileATask)
	s.tell("errors apart, of a name that only the task hook tells", errorsOfArrayTask)
	s.tell("a message 2 MiB before the end", messageFarBack)
	s.tell("srun alone writes to its own terminal", srunsTerminal)
}

func srunWritesFile(s *story) {
	out := s.at("step.txt")
	job := s.runs(s.user, "srun -o "+out+" /bin/sh -c '"+saysOOM+"; exit 1'", oneGPU)

	s.foundIn(job, ledger.StepOutput, out)
}

func srunRedirected(s *story) {
	out := s.at("redirected.txt")
	job := s.runs(s.user, "srun /bin/sh -c '"+saysOOM+"; exit 1' > "+out+" 2>&1", oneGPU)

	s.foundIn(job, ledger.StepOutput, out)
}

func oneFileATask(s *story) {
	out, errs := s.at("o.%t"), s.at("e.%t")
	job := s.runs(s.user, "srun -n2 -o "+out+" -e "+errs+" /bin/sh -c '[ $SLURM_PROCID = 0 ] && exec sleep 1; "+saysOOM+"; exit 1'", oneGPU, "--ntasks=2")

	s.foundIn(job, ledger.StepOutput, strings.Replace(errs, "%t", "1", 1))
	if !slices.ContainsFunc(s.lastEnd(job).Outputs, func(o answer.Output) bool { return strings.Contains(o.Why, "cannot be told") }) {
		s.t.Errorf("the files of the tasks' output are not missed: %+v", s.lastEnd(job).Outputs)
	}
}

func errorsOfArrayTask(s *story) {
	job := s.runs(s.user, saysOOM+"\nexit 1", oneGPU, "--job-name=fine", "--array=3", "--open-mode=append",
		"--output="+s.at("%x-%A_%a.out"), "--error="+s.at("%x-%j_%a.err"))

	task := cluster.JobID(fmt.Sprintf("%s_3", job))
	s.foundIn(task, ledger.ScriptErrors, s.at(fmt.Sprintf("fine-%s_3.err", job)))
	for _, o := range s.lastEnd(task).Outputs {
		if o.Why != "" || o.Read != o.Size {
			s.t.Errorf("%+v", o)
		}
	}
}

func messageFarBack(s *story) {
	job := s.runs(s.user, saysOOM+"\n"+babbles+"\nexit 1", oneGPU)

	end := s.lastEnd(job)
	if len(end.Messages) != 1 || len(end.Outputs) != 1 || end.Outputs[0].Read < 2<<20 {
		s.t.Errorf("%+v, %+v", end.Messages, end.Outputs)
	}
}

func srunsTerminal(s *story) {
	job, _ := s.runsInForeground(s.user, "srun", oneGPU, "/bin/sh", "-c", "echo job $SLURM_JOB_ID; "+saysOOM)

	end := s.lastEnd(job)
	if len(end.Messages) != 0 || len(end.Outputs) != 1 || !strings.Contains(end.Outputs[0].Why, "srun's own terminal") {
		s.t.Errorf("%+v, %+v", end.Messages, end.Outputs)
	}
}

// foundIn checks that the one message of a job was found in this output.
func (s *story) foundIn(job cluster.JobID, kind ledger.OutputKind, path string) {
	s.t.Helper()
	end := s.lastEnd(job)
	if len(end.Messages) != 1 || end.Messages[0].Kind != oom.Device || end.Messages[0].Output >= len(end.Outputs) {
		s.t.Fatalf("%+v in %+v", end.Messages, end.Outputs)
	}
	if o := end.Outputs[end.Messages[0].Output]; o.Kind != kind || filepath.Base(o.Path) != filepath.Base(path) || o.Read == 0 {
		s.t.Errorf("found in %+v of %+v", o, end.Outputs)
	}
}

// lastEnd is the last end of a job as "bookend show --json" has it.
func (s *story) lastEnd(job cluster.JobID) answer.End {
	s.t.Helper()
	out, err := s.on.Bookend("n1", "show", "--json", "--node", "n1", string(job))
	if err != nil {
		s.t.Fatalf("bookend show: %v\n%s", err, out)
	}
	var show answer.Show
	if err := json.Unmarshal([]byte(out), &show); err != nil {
		s.t.Fatal(err)
	}
	i := slices.IndexFunc(show.Runs, func(r answer.Run) bool { return len(r.Ends) > 0 })
	if i < 0 {
		s.t.Fatalf("no end on record: %s", out)
	}
	return show.Runs[i].Ends[len(show.Runs[i].Ends)-1]
}

// at is a path in the user's folder.
func (s *story) at(name string) string { return filepath.Join(s.home(s.user), name) }
