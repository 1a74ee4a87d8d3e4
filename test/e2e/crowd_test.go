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
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// crowd is how many jobs begin and end at the same moment on one node, each with a card of its own.
const crowd = 64

// crowded are a crowd's times. With the shipped ones, on two cores that others used as well, the longest prolog took
// 5.0 s and the longest epilog 13.9 s; but a hook that runs out of time says that it does not know, and this story
// wants answers.
const crowded = `
deadlines:
  prolog: {total: 120s, driver: 90s, processes: 60s, probe: 30s, records: 20s}
  epilog: {total: 240s, driver: 60s, processes: 60s, probe: 60s, job_log: 20s, records: 30s}
settle:
  prolog: {max: 1500ms, stable: 500ms}
  epilog: {max: 25s, stable: 1s}
`

// The scripts of the crowd say which card they have and wait at a gate that opens for all at once. Of the stranger's,
// two leave a process and two memory without one.
const (
	waitsAtGate = "\necho GPU $CUDA_VISIBLE_DEVICES; echo ready\nexec 9<{gate}; flock --shared 9"
	leavesSome  = "case $SLURM_ARRAY_TASK_ID in [01]) {cuda} alloc --mib 2000 --orphan --name train;;\n" +
		"*) sock=$PWD/sock$SLURM_ARRAY_TASK_ID; {cuda} holdfd $sock --orphan --name holder\n" +
		"{cuda} alloc --mib 2000 --export $sock --sleep 0;; esac"
)

// Sixty-four jobs begin together and end together on one node: each has its record, with both ends, its own card and
// what it left itself; each reads its own report; only what was left can drain.
func TestCrowd(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", GPUs: crowd, Config: crowded + "drain: {reason_by: healthcheck}\n",
		Conf: []string{"AuthInfo=SOCKET,cred_expire=180", "BatchStartTimeout=120", "MessageTimeout=60"}}) // a busy machine's
	gate, open := s.gate()
	s.adminSays("n1", "all at once")
	fill := func(script string) string { return strings.ReplaceAll(script, "{gate}", gate) }
	most := s.submits(s.user, fill(waitsAtGate), oneGPU, fmt.Sprintf("--array=0-%d", crowd-5))
	some := s.submits(s.stranger, fill(leavesSome+waitsAtGate), oneGPU, "--array=0-3")
	s.adminUpdates("n1", "State=RESUME")
	for _, j := range append(s.all(most, "RUNNING"), s.all(some, "RUNNING")...) {
		s.until("job "+string(j.ID)+" is ready", func() bool {
			text, err := os.ReadFile(j.StdOut)
			return err == nil && strings.Contains(string(text), "GPU ")
		})
	}
	open()
	leavers := s.all(some)
	jobs := append(s.all(most), leavers...)

	records := s.records("n1")
	cards := map[int]bool{}
	for _, j := range jobs {
		cards[s.judgesMember(j, records)] = true
	}
	if len(jobs) != crowd || len(cards) != crowd {
		t.Errorf("%d jobs on %d GPUs, want %d", len(jobs), len(cards), crowd)
	}
	s.drainedOnlyFor(leavers)
}

// gate is a file whose lock holds whoever wants it shared, until open.
func (s *story) gate() (path string, open func()) {
	path = filepath.Join(s.on.Dir, "gate")
	f := must.Have(os.Create(path))(s.t)
	must.Do(s.t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	return path, func() { f.Close() }
}

// crowdsPatience bounds what many jobs may take on a machine that does other things too.
const crowdsPatience = 5 * time.Minute

// all are an array's tasks once each is in a state, or has ended.
func (s *story) all(array cluster.JobID, states ...string) []cluster.Job {
	must.Have(s.on.Wait(array, crowdsPatience, states...))(s.t)
	return must.Have(s.on.Jobs(array))(s.t)
}

// judgesMember compares what is on record of a job, and what its user reads, with what the job was and did. It returns
// its card.
func (s *story) judgesMember(j cluster.Job, records map[slurm.JobID]ledger.Run) (card int) {
	id, _ := strconv.Atoi(string(j.ID))
	r, known := records[slurm.JobID(id)]
	if !known || r.Start == nil || len(r.Ends) != 1 || len(r.Devices) != 1 || j.State != "COMPLETED" {
		s.t.Errorf("job %s is %s, its record: %+v", j.ID, j.State, r)
		return -1
	}
	card, own := r.Devices[0].Index, r.Devices[0].Device.ID
	text, err := os.ReadFile(j.StdOut)
	if want := s.on.World("n1").UUID(card); err != nil || string(own) != want {
		s.t.Errorf("job %s is on record with GPU %d, %s, want %s: %v", j.ID, card, own, want, err)
	}
	s.inOrder("what job "+string(j.ID)+" prints", string(text), fmt.Sprintf("GPU %d\n", card), "ready", "\n| bookend: ")
	left, found := s.leaves(j), map[code.Code]int{}
	for _, f := range append(r.Start.Findings, r.Ends[0].Findings...) {
		switch {
		// that another hook had a shared file in its hands costs the card's next start an old test
		case f.Code == code.StateLock:
		case f.GPU == own && (f.Owner == nil || f.Owner.Job == r.Job.ID):
			found[f.Code]++
		default:
			s.t.Errorf("job %s on GPU %s is blamed for %+v", j.ID, own, f)
		}
	}
	ok := strings.Contains(string(text), " in use ") || strings.Contains(string(text), "not be checked")
	switch {
	case left == "":
		clean := fmt.Sprintf("| bookend: n1 GPU %d clean: 139.8 of 139.8 GiB free\n", card)
		ok = len(found) == 0 && strings.HasSuffix(string(text), clean)
	case found[left] == 0: // looks came too seldom for a verdict
		ok = ok && found[code.Moving] > 0
	}
	delete(found, left)
	delete(found, code.Moving)
	if len(found) > 0 || !ok {
		s.t.Errorf("job %s left %q, also found %v\n%s", j.ID, left, found, text)
	}
	return card
}

// leaves is what a member of the crowd leaves: the code that says so, empty for nothing.
func (s *story) leaves(j cluster.Job) code.Code {
	switch task := j.Fields["ArrayTaskId"]; {
	case !strings.HasPrefix(j.Fields["UserId"], s.stranger+"("):
		return ""
	case task == "0" || task == "1":
		return code.Orphan
	}
	return code.Residue
}

// drainedOnlyFor checks that every hook ran and ended well but those of these jobs, and that the node is up if they did
// too.
func (s *story) drainedOnlyFor(jobs []cluster.Job) {
	ran, failed := map[string]int{}, 0
	for _, h := range s.hookRuns("n1") {
		ran[h.Hook]++
		if !h.Failed() {
			continue
		}
		failed++
		if h.Hook != "epilog" || h.Exit != 10 || !slices.ContainsFunc(jobs,
			func(j cluster.Job) bool { return j.ID == h.Job }) {
			s.t.Errorf("failed: %+v; want epilogs of jobs that left a process, with 10", h)
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
