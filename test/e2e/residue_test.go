package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"bookend/test/cluster"
	"bookend/test/site"
)

// The scripts of jobs that leave memory behind in other ways than by an orphan. "ready" is awaited through a
// named pipe, whose end says that the program is where it should be.
const (
	// exports hands its memory to a helper that touches no CUDA, and ends.
	exports = `{cuda} holdfd $PWD/sock --orphan --name holder
{cuda} alloc --mib 2000 --export $PWD/sock --sleep 0
rm sock`

	// leavesPhantom is a program that is killed while its forked child keeps its descriptors, and its memory.
	leavesPhantom = `mkfifo pipe
{cuda} alloc --mib 2000 --fork-hold --name train >pipe &
read -r line <pipe; rm pipe; echo "$line"
wait`

	// leavesWorkers kills a program whose workers take three seconds to notice, as PyTorch's do.
	leavesWorkers = `mkfifo pipe
{cuda} alloc --mib 2000 --workers 2 --name train >pipe &
read -r line <pipe; rm pipe; echo "$line"
kill -9 $!; wait`
)

func TestMemoryWithoutItsProcess(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{})
	s.tell("memory that no process accounts for is reported and inherited", residueObserved)
	s.tell("memory of a dead process is reported and inherited", phantomObserved)
	s.adminConfigures("n1", "enforce", "")
	s.tell("memory that no process accounts for drains", func(s *story) { drains(s, exports, 11) })
	s.tell("memory of a dead process drains", func(s *story) { drains(s, leavesPhantom, 12) })
}

func residueObserved(s *story) {
	first := s.runs(s.user, exports, oneGPU)
	second := s.runs(s.user, "echo working", oneGPU)

	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 0")
	maybe := fmt.Sprintf("| bookend:   Maybe:  process %d (holder) since TIME has the driver open", s.helper(first))
	s.userReads(first, lines(gotClean, "", notCleanAfter,
		"| bookend:   Found:  2000 MiB in use that no listed process accounts for", maybe, probablyThisJob, moreAt(first))...)
	s.showSays("n1", first, "end:", "would drain for BKD-RESIDUE", "2000 MiB", "maybe:", "orphan exported, has open nvidiactl", "search:")
	s.userReads(second, lines(notCleanBefore,
		"| bookend:   Found:  2000 MiB in use that no listed process accounts for", maybe,
		"| bookend:   Who:    probably your job "+string(first),
		notCausedBy(second, 141156), "working", "", leftAsWas, leftEarlier("2.0 GiB", "probably by your job "+string(first)))...)
	s.showSays("n1", second, "start:", "BKD-DIRTY", "job:      "+string(first), "end:", "clean")
}

// helper is the PID of the first of a job's programs that said it was ready.
func (s *story) helper(id cluster.JobID) int {
	s.t.Helper()
	said := regexp.MustCompile(`(?m)^ready pid=(\d+)`).FindStringSubmatch(s.outputOf(id))
	if said == nil {
		s.t.Fatalf("job %s has no program that was ready", id)
	}
	pid, _ := strconv.Atoi(said[1])
	return pid
}

func phantomObserved(s *story) {
	first := s.runs(s.user, leavesPhantom, oneGPU)
	second := s.runs(s.user, "echo working", oneGPU)
	dead, holder := s.pids(first)[0], s.pids(first)[1]

	keeps := fmt.Sprintf("| bookend:   Holder: process %d (train) since TIME has the card open", holder)
	s.nodeIsUp("n1")
	s.userReads(first, lines(gotClean, stillUses(holder), "", notCleanAfter,
		"| bookend:   Found:  2518 MiB still in use though its process is gone", keeps, probablyThisJob, moreAt(first))...)
	s.showSays("n1", first, "end:", "would drain for BKD-PHANTOM", fmt.Sprintf("PID %d, which no longer exists", dead),
		fmt.Sprintf("holder:   PID %d", holder), "has open nvidia0 nvidiactl nvidia-uvm", "search:")
	s.userReads(second, lines(notCleanBefore,
		"| bookend:   Found:  2518 MiB still in use though its process is gone", keeps,
		"| bookend:   Who:    probably your job "+string(first),
		notCausedBy(second, 140629), "working", "", leftAsWas, leftEarlier("2.5 GiB", "probably by your job "+string(first)))...)
	s.showSays("n1", second, "start:", "BKD-DIRTY", "job:      "+string(first), "end:", "clean")
}

func drains(s *story, script string, exit int) {
	job := s.runs(s.user, script, oneGPU)

	s.jobIs(job, "COMPLETED")
	s.nodeIsDrained("n1", "Epilog error")
	s.hooksRan("n1", "prolog 0", fmt.Sprintf("epilog %d", exit))
}

// patiently is how long is watched as shipped.
const patiently = `
settle:
  epilog: {max: 6s, flat: 3.5s}
`

func TestVanishingWorkers(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Config: patiently})
	job := s.runs(s.user, leavesWorkers, oneGPU)

	s.jobIs(job, "COMPLETED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	workers := s.pids(job)[1:]
	s.userReads(job, gotClean, stillUses(workers[0]), stillUses(workers[1]), "", leftClean)
	s.logSays("n1", job, "bookend-epilog", "msg=clean")
}
