package faults

import (
	"strconv"
	"strings"
	"testing"
)

// sum adds up a metric's figures of the node's textfile, whatever their labels.
func (n *node) sum(name string) (sum float64, series int) {
	n.Helper()
	for line := range strings.Lines(n.metrics()) {
		if rest, is := strings.CutPrefix(line, name+"{"); is {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndex(rest, "} ")+2:]), 64)
			must(n, err)
			sum += value
			series++
		}
	}
	return sum, series
}

// What a job leaves is counted once, with its end: not at its start, which finds what others left, nor by a second end.
func TestWhatAJobLeftIsCountedOnce(t *testing.T) {
	t.Parallel()
	const left = "bookend_gpu_left_by_jobs_bytes_total"
	n := newNode(t, "observe")
	j := newJob().with("SLURM_JOB_START_TIME", "1790000000") // which run it is is known: its second end judges like the first
	n.clean(prolog, j)
	n.leftover()
	n.hook(epilog, j)
	once, cards := n.sum(left)
	if once < 100<<20 || cards == 0 {
		t.Fatalf("the job left %v bytes on %d cards\n%s", once, cards, n.metrics())
	}
	n.hook(epilog, j)
	n.hook(prolog, newJob().with("SLURM_JOB_ID", "101", "SLURM_JOBID", "101"))
	if again, _ := n.sum(left); again != once {
		t.Errorf("%v bytes after the end, %v after a second end and the next job's start", once, again)
	}
}

// A test allocation is counted by the hook that made it: a start that trusts it counts none.
func TestATestIsCountedOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t, "observe")
	j := newJob()
	n.clean(prolog, j)
	n.clean(epilog, j)
	tests, _ := n.sum("bookend_probe_tests_total")
	_, gaps := n.sum("bookend_gpu_probe_gap_bytes")
	if tests == 0 || gaps == 0 {
		t.Fatalf("%v tests, gaps of %d cards\n%s", tests, gaps, n.metrics())
	}
	n.clean(prolog, j.with("SLURM_JOB_ID", "101", "SLURM_JOBID", "101"))
	if again, _ := n.sum("bookend_probe_tests_total"); again != tests {
		t.Errorf("%v tests after an end, %v after the next start", tests, again)
	}
	if settled, _ := n.sum("bookend_settle_seconds_count"); settled < 3 {
		t.Errorf("cards of 3 clean hooks came to rest %v times", settled)
	}
}
