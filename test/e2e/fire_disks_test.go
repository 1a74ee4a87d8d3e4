package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/site"
)

// The driver holds its callers in state D, past SIGKILL. In every mode jobs go on and the node stays; each hook ends in
// time, one child is left, and the first job after the driver's recovery is as any other.
func TestWedgedDriver(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Config: withinTotals})
	s.driverSays("on.nvmlDeviceGetMemoryInfo_v2", "freeze")
	hung := s.runs(s.user, "echo working", oneGPU)
	next := s.runs(s.user, "echo working", oneGPU)
	s.adminConfigures("n1", "observe", withinTotals)
	observed := s.runs(s.user, "echo working", oneGPU)

	for _, job := range []cluster.JobID{hung, next, observed} {
		s.jobIs(job, "COMPLETED")
	}
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 0", "prolog 0", "epilog 0")
	s.inTime("n1", prologDeadline, epilogDeadline, hung, next, observed)
	s.logSays("n1", hung, "bookend-prolog", "BKD-HANG")
	s.logSays("n1", hung, "bookend-epilog", "BKD-STUCK", "looks=0")
	s.logSays("n1", next, "bookend-prolog", "BKD-STUCK", "looks=0")
	if stuck := s.stuckBackends(); len(stuck) != 1 {
		t.Errorf("stuck: %q, want one", stuck)
	}
	s.statusSays("n1", "driver not answering since ")

	s.driverSays("on.nvmlDeviceGetMemoryInfo_v2", "")
	if err := s.on.World("n1").Thaw(); err != nil {
		t.Fatal(err)
	}
	s.until("the stuck backend has ended", func() bool { return len(s.hookProcesses()) == 0 })
	s.adminConfigures("n1", "enforce", withinTotals)
	after := s.runs(s.user, "echo working", oneGPU)
	s.userReads(after, gotClean, "working", "", leftClean)
	s.inTime("n1", prologDeadline, epilogDeadline, after)
}

// The folder of a job's output leads, when its script ends, to a file system that never answers. Without task hooks: the
// epilog has but the name that Slurm tells, where with them it would find the file that was moved away.
func TestHungJobLog(t *testing.T) {
	t.Parallel()
	dir := cluster.TempDir(t)
	nowhere, end := silence(t, dir)
	s := given(t, site.Options{Mode: "enforce", Dir: dir, NoTask: true, Config: withinTotals})
	t.Cleanup(end) // before the site's own
	out := s.folderOf(s.user, "out")
	job := s.starts(s.user, awaits, oneGPU, "--output="+filepath.Join(out, "%j.txt"))
	s.moves(out, out+".away")
	if err := os.Symlink(nowhere, out); err != nil {
		t.Fatal(err)
	}
	s.touches(s.user, "done")
	s.ends(job)
	after := s.runs(s.user, "echo working", oneGPU)

	s.jobIs(job, "COMPLETED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 0")
	s.inTime("n1", prologDeadline, epilogDeadline, job, after)
	s.logSays("n1", job, "bookend-epilog", "BKD-OUTPUT", "job_log=failed", "exit=0")
	s.showSays("n1", job, "start:", ", clean", "end:", ", clean")
	s.userReads(after, "working", "", gotTested, leftClean)
	if text, err := os.ReadFile(filepath.Join(out+".away", string(job)+".txt")); err != nil || string(text) != "ready\n" {
		t.Errorf("the job's own output: %q, %v", text, err)
	}
}

// folderOf makes a folder of the user's, in the home.
func (s *story) folderOf(user, name string) string {
	s.t.Helper()
	home := s.home(user)
	s.logsInTo(user, "mkdir "+name)
	return filepath.Join(home, name)
}

func (s *story) logsInTo(user, command string) {
	s.t.Helper()
	cmd, err := s.on.Command(user, "/bin/sh", "-c", command)
	if err != nil {
		s.t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

func (s *story) moves(from, to string) {
	s.t.Helper()
	if err := os.Rename(from, to); err != nil {
		s.t.Fatal(err)
	}
}

// Every disk that Bookend writes to is full, and the user's too: while a job runs, and for a whole job.
func TestFullDisks(t *testing.T) {
	t.Parallel()
	disks := []string{"run", "var-n1", "log-bookend", "scratch"}
	s := given(t, onSmallDisks(t, site.Options{Mode: "enforce", Config: withinTotals}, disks...))
	s.logsInTo("", "chmod 1777 "+filepath.Join(s.on.Dir, "scratch"))
	onScratch := "--output=" + filepath.Join(s.on.Dir, "scratch/%j.txt")
	first := s.starts(s.user, awaits, oneGPU, onScratch)
	for _, disk := range disks {
		s.fills(disk)
	}
	s.touches(s.user, "done")
	s.ends(first)
	second := s.runs(s.user, "true", oneGPU, onScratch)
	said := s.hooksSaid("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 0")
	s.inOrder("slurmd's log", said, "bookend: ", "no space left on device")
	s.empties("log-bookend") // so that it can tell
	third := s.runs(s.user, "true", oneGPU, onScratch)

	for _, job := range []cluster.JobID{first, second, third} {
		s.jobIs(job, "COMPLETED")
	}
	s.nodeIsUp("n1")
	s.inTime("n1", prologDeadline, epilogDeadline, first, second, third)
	s.logSays("n1", third, "bookend-prolog", "BKD-ST-WRITE", "exit=0")
	s.logSays("n1", third, "bookend-epilog", "BKD-ST-WRITE", "job_log=full", "exit=0")
	s.inOrder("Bookend's log", strings.Join(s.logOf("n1", third, ""), "\n"), "no space left on device")

	for _, disk := range []string{"run", "var-n1", "scratch"} {
		s.empties(disk)
	}
	after := s.runs(s.user, "echo working", oneGPU, onScratch)
	s.inOrder("the job's output", s.outputOf(after), "GPU 0 of n1 clean", "working", leftClean)
	s.showSays("n1", after, "start:", ", clean", "end:", ", clean")
}
