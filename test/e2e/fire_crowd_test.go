package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/test/cluster"
	"bookend/test/site"
)

// crowd is how many jobs begin and end at the same moment on one node, each with a card of its own.
const crowd = 64

// crowded are a crowd's times. With the shipped ones, on two cores that others used as well, the longest prolog took 5.0 s
// and the longest epilog 13.9 s; but a hook that runs out of time says that it does not know, and this story wants answers.
const crowded = `
deadlines:
  prolog: {total: 120s, driver: 90s, scan: 60s, probe: 30s, outputs: 20s}
  epilog: {total: 240s, driver: 60s, scan: 60s, probe: 60s, append: 20s, outputs: 30s}
settle:
  prolog: {max: 1500ms, flat: 500ms}
  epilog: {max: 25s, flat: 1s}
`

// The scripts of the crowd say which card they have and wait at a gate that opens for all at once. Of the stranger's,
// two leave a process and two memory without one.
const (
	waitsAtGate = "\necho card $CUDA_VISIBLE_DEVICES; echo ready\nexec 9<{gate}; flock --shared 9"
	leavesSome  = "case $SLURM_ARRAY_TASK_ID in [01]) {cuda} alloc --mib 2000 --orphan --name train;;\n" +
		"*) sock=$PWD/sock$SLURM_ARRAY_TASK_ID; {cuda} holdfd $sock --orphan --name holder\n" +
		"{cuda} alloc --mib 2000 --export $sock --sleep 0;; esac"
)

// Sixty-four jobs begin together and end together on one node: each has its record, with both ends, its own card and what
// it left itself; each reads its own report; only what was left can drain.
func TestCrowd(t *testing.T) {
	t.Parallel()
	o := site.Options{Mode: "enforce", GPUs: crowd, Config: crowded}
	o.Dir = cluster.TempDir(t)
	o.Conf = []string{"AuthInfo=socket=" + filepath.Join(o.Dir, "slurm/munge/munge.socket") + ",cred_expire=180",
		"BatchStartTimeout=120", "MessageTimeout=60"} // a busy machine's
	s := given(t, o)
	gate, open := s.gate()
	s.drainsByHand("all at once")
	fill := func(script string) string { return strings.ReplaceAll(script, "{gate}", gate) }
	most := s.submits(s.user, fill(waitsAtGate), oneGPU, fmt.Sprintf("--array=0-%d", crowd-5))
	some := s.submits(s.stranger, fill(leavesSome+waitsAtGate), oneGPU, "--array=0-3")
	s.resumesByHand()
	s.areReady(most, some)
	open()
	jobs := append(s.allEnded(most), s.allEnded(some)...)

	records := s.records("n1")
	cards := map[int]bool{}
	for _, j := range jobs {
		cards[s.judgesMember(j, records)] = true
	}
	if len(jobs) != crowd || len(cards) != crowd {
		t.Errorf("%d jobs on %d cards, want %d", len(jobs), len(cards), crowd)
	}
	s.drainedOnlyFor(some)
}

// gate is a file whose lock holds whoever wants it shared, until open.
func (s *story) gate() (path string, open func()) {
	s.t.Helper()
	path = filepath.Join(s.on.Dir, "gate")
	f, err := os.Create(path)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		s.t.Fatal(err)
	}
	return path, func() { f.Close() }
}

func (s *story) drainsByHand(reason string) {
	s.t.Helper()
	if err := s.on.Scontrol("update", "NodeName=n1", "State=DRAIN", "Reason="+reason); err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) resumesByHand() {
	s.t.Helper()
	if err := s.on.Scontrol("update", "NodeName=n1", "State=RESUME"); err != nil {
		s.t.Fatal(err)
	}
}

// crowdsPatience bounds what many jobs may take on a machine that does other things too.
const crowdsPatience = 5 * time.Minute

// areReady waits until every task of the arrays runs and has written "ready".
func (s *story) areReady(arrays ...cluster.JobID) {
	s.t.Helper()
	for _, id := range arrays {
		if _, err := s.on.Wait(id, crowdsPatience, "RUNNING"); err != nil {
			s.t.Fatal(err)
		}
		jobs, err := s.on.Jobs(id)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, j := range jobs {
			s.until("job "+string(j.ID)+" is ready", func() bool {
				text, err := os.ReadFile(j.StdOut)
				return err == nil && strings.Contains(string(text), "card ")
			})
		}
	}
}

func (s *story) allEnded(array cluster.JobID) []cluster.Job {
	s.t.Helper()
	if _, err := s.on.Wait(array, crowdsPatience); err != nil {
		s.t.Fatal(err)
	}
	jobs, err := s.on.Jobs(array)
	if err != nil {
		s.t.Fatal(err)
	}
	return jobs
}

// judgesMember compares what is on record of a job, and what its user reads, with what the job was and did. It returns
// its card.
func (s *story) judgesMember(j cluster.Job, records map[slurm.JobID]ledger.Run) (card int) {
	s.t.Helper()
	id, _ := strconv.Atoi(string(j.ID))
	r, known := records[slurm.JobID(id)]
	if !known || r.Start == nil || len(r.Ends) != 1 || len(r.Devices) != 1 || j.State != "COMPLETED" {
		s.t.Errorf("job %s is %s, its record: %+v", j.ID, j.State, r)
		return -1
	}
	card = r.Devices[0].Index
	text, err := os.ReadFile(j.StdOut)
	if err != nil || !strings.Contains(string(text), fmt.Sprintf("\ncard %d\n", card)) ||
		string(r.Devices[0].Device.ID) != s.on.World("n1").UUID(card) {
		s.t.Errorf("job %s is on record with card %d, %s: %v\n%s", j.ID, card, r.Devices[0].Device.ID, err, text)
	}
	s.inOrder("what job "+string(j.ID)+" prints", string(text), fmt.Sprintf("| bookend: GPU %d of n1 clean:", card), "ready", "\n| bookend: ")
	if len(r.Start.Findings) > 0 {
		s.t.Errorf("job %s at its start: %+v", j.ID, r.Start.Findings)
	}
	s.judgesEnd(j, r, string(text), withoutLocks(r.Ends[0].Findings))
	s.inTime("n1", 120*time.Second, 240*time.Second, j.ID)
	return card
}

// withoutLocks leaves out that another hook had a shared file in its hands: that costs the card's next start an old test.
func withoutLocks(found []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f finding.Finding) bool { return f.Code == code.StateLock })
}

func (s *story) judgesEnd(j cluster.Job, r ledger.Run, text string, found []finding.Finding) {
	s.t.Helper()
	card, left := r.Devices[0], code.Code("")
	if array := j.Fields["ArrayTaskId"]; strings.HasPrefix(j.Fields["UserId"], s.stranger+"(") {
		left = code.Residue
		if array == "0" || array == "1" {
			left = code.Orphan
		}
	}
	if left == "" {
		if len(found) != 0 || !strings.HasSuffix(text, fmt.Sprintf("| bookend: GPU %d of n1 left clean by your job\n", card.Index)) {
			s.t.Errorf("job %s left nothing: %+v\n%s", j.ID, found, text)
		}
		return
	}
	if len(found) == 1 && found[0].Code == code.Moving && strings.Contains(text, "could not be checked after your job") {
		return // looks came too seldom for a verdict
	}
	if len(found) == 2 && found[0].Code == left && found[1].Code == code.Moving {
		found = found[:1] // named, beside memory that would not settle
	}
	seen := []code.Code{left, code.Moving}
	if len(found) != 1 || !slices.Contains(seen, found[0].Code) || found[0].GPU != card.Device.ID || !strings.Contains(text, "was not clean after your job") {
		s.t.Errorf("job %s left %s: %+v\n%s", j.ID, left, found, text)
		return
	}
	f := found[0]
	if f.Owner != nil && f.Owner.Job != r.Job.ID || f.Code == code.Orphan && (f.Owner == nil || f.Holder == nil) {
		s.t.Fatalf("job %s left %s, said to be %+v's", j.ID, left, f.Owner)
	}
	if f.Code == code.Orphan && !strings.Contains(text, fmt.Sprintf("ready pid=%d ", f.Holder.PID)) {
		s.t.Errorf("job %s is told for process %d:\n%s", j.ID, f.Holder.PID, text)
	}
}

// drainedOnlyFor checks that every hook ran and ended well but those of these jobs, and that the node is up if they did
// too.
func (s *story) drainedOnlyFor(array cluster.JobID) {
	s.t.Helper()
	jobs, err := s.on.Jobs(array)
	if err != nil {
		s.t.Fatal(err)
	}
	ran, failed := map[string]int{}, 0
	for _, h := range s.hookRuns("n1") {
		ran[h.Hook]++
		if !h.Failed() {
			continue
		}
		failed++
		if h.Hook != "epilog" || h.Exit != 10 || !slices.ContainsFunc(jobs, func(j cluster.Job) bool { return j.ID == h.Job }) {
			s.t.Errorf("%+v", h)
		}
	}
	if ran["prolog"] != crowd || ran["epilog"] != crowd {
		s.t.Errorf("hooks ran: %v, want %d each", ran, crowd)
	}
	if failed == 0 {
		s.nodeIsUp("n1")
	} else {
		s.nodeIsDrained("n1", "Epilog error")
	}
}
