package slurmcmd

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"bookend/internal/slurm"
)

// Quarantine keeps GPUs of a node from all jobs. Slurm cannot drain a GPU, nor give a job the GPU that it asks for. So
// this fills the node's free GPUs with jobs that do nothing, keeps those that got these GPUs and cancels the others.
type Quarantine struct {
	Slurm     Scontrol
	Node      string
	GPUs      []int         // Slurm's numbers
	Partition string        // empty: the first of the node's that preempts no job
	Account   string        // of the jobs; empty: the caller's default
	For       time.Duration // how long it lasts; 0: until it is released
	Resume    bool          // also ends the node's drain, once the jobs are in the queue
	// Keep records jobs before any of them can start, as hooks must know them, with -1; and each one that holds a GPU,
	// with the GPU's number. Clock returns CLOCK_BOOTTIME.
	Keep  func(gpu int, jobs ...slurm.JobID) error
	Clock func() time.Duration
	// Rebooted means that Slurm does not know yet that the node was: all its GPUs become free once it does.
	Rebooted bool
	was      slurm.Node // at the beginning
}

const (
	jobName = "bookend-quarantine"
	// topPriority is above every job that Slurm rates; it reserves the largest numbers.
	topPriority = "--priority=4294967290"
	// notYet keeps the jobs from starting before they are on record.
	notYet = "--begin=now+5minutes"
	// holdMinutes is how long a job lasts that nothing confirms: if this program dies, it holds a GPU no longer.
	holdMinutes = 2
	between     = 300 * time.Millisecond // between two questions to slurmctld
	atOnce      = 30 * time.Second       // for jobs of top priority to start on free GPUs
	atBoot      = 2 * time.Minute        // for a node to come up
)

// GPUs returns how many GPUs a node has in Slurm.
func (c Scontrol) GPUs(node string) (int, error) {
	text, err := c.run("show", "node", "-d", node)
	return count(gresOf, text), err
}

// Begin returns the jobs that hold these GPUs, until Release cancels them. With an error it may be some of them; of a
// drained node it is all or none, as the drain keeps them from jobs too.
func (q Quarantine) Begin() (held map[slurm.JobID]int, err error) {
	node, err := q.Slurm.run("show", "node", "-d", q.Node)
	if err != nil {
		return nil, fmt.Errorf("read node %q: %w", q.Node, err)
	}
	q.was, _ = parseNode(node, q.Node) // what cannot be told is no drain
	switch n := count(gresOf, node); {
	case slices.Max(q.GPUs) >= n:
		return nil, fmt.Errorf("the node has %d GPUs in Slurm, numbered from 0", n)
	case q.was.Drained() && !q.Resume:
		return nil, errors.New("the node is drained: --resume ends that, once the jobs are in the queue")
	}
	if q.Partition, err = q.partition(node); err != nil {
		return nil, err
	}
	free, late := count(gresOf, node), []int(nil)
	if !q.Rebooted {
		taken, err := q.taken()
		if err != nil {
			return nil, err
		}
		free -= count(usedOf, node)
		isFree := func(gpu int) bool { return !slices.Contains(taken, gpu) }
		late = slices.DeleteFunc(slices.Clone(q.GPUs), isFree)
		q.GPUs = slices.DeleteFunc(slices.Clone(q.GPUs), func(gpu int) bool { return !isFree(gpu) })
	}
	switch {
	case free <= 0, len(q.GPUs) == 0:
		return nil, ErrTaken
	case len(late) > 0 && q.was.Drained():
		return nil, fmt.Errorf("%w; until GPU %v is free the node stays drained", ErrTaken, late)
	}
	held, err = q.try(free)
	if err == nil && len(late) > 0 {
		err = ErrTaken
	}
	return held, err
}

// ErrTaken means that a job has the GPU.
var ErrTaken = errors.New("a job has the GPU (bookend status): wait longer, or drain the node first")

func (q Quarantine) taken() (numbers []int, err error) {
	ids, err := q.Slurm.jobsOn(q.Node)
	for _, id := range ids {
		job, err := q.Slurm.run("show", "job", "-d", id)
		if err == nil {
			numbers = append(numbers, givenOn(job, q.Node)...)
		}
	}
	return numbers, err
}

// jobsOn returns the jobs that may have processes on a node, or GPUs.
func (c Scontrol) jobsOn(node string) ([]string, error) {
	states := "--states=RUNNING,SUSPENDED,COMPLETING,CONFIGURING"
	ids, err := c.sibling("squeue").run("--noheader", "--nodelist="+node, states, "--format=%A")
	if err != nil {
		return nil, fmt.Errorf("list jobs of node %q: %w", node, err)
	}
	return strings.Fields(ids), nil
}

// Release cancels jobs. That one has ended and is forgotten is no error.
func (c Scontrol) Release(jobs ...slurm.JobID) error {
	if len(jobs) == 0 {
		return nil
	}
	_, err := c.sibling("scancel").run(strings.Fields(strings.Trim(fmt.Sprint(jobs), "[]"))...)
	if err != nil && strings.Contains(err.Error(), "Invalid job id") {
		return nil
	}
	return err
}

// partition returns one that takes jobs, gives a job no whole node and preempts none, or what is wrong with each. Of
// several it returns the one whose jobs Slurm starts first.
func (q Quarantine) partition(node string) (string, error) {
	_, list, _ := strings.Cut(node, "\n   Partitions=")
	list, _, _ = strings.Cut(list, "\n")
	var why []string
	best, highest := "", -1
	for name := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		if q.Partition != "" && name != q.Partition {
			continue
		}
		text, err := q.Slurm.run("show", "partition", name)
		if err != nil {
			return "", fmt.Errorf("read partition %q: %w", name, err)
		}
		no, tier := unfit(text), 0
		_, after, _ := strings.Cut(text, " PriorityTier=")
		_, _ = fmt.Sscan(after, &tier)
		if no == "" && tier > highest {
			best, highest = name, tier
		}
		why = append(why, name+": "+no)
	}
	if best != "" {
		return best, nil
	}
	return "", fmt.Errorf("no partition of node %q can hold a GPU: %s", q.Node,
		cmp.Or(strings.Join(why, "; "), "it is in none of that name"))
}

func (c Scontrol) Runs(job slurm.JobID, node string) bool {
	text, err := c.run("show", "job", fmt.Sprint(job))
	return err == nil && isRunning(text, node)
}

// Ended reports whether a job that held a GPU of the node has ended: Slurm says so, or has no such job.
func (c Scontrol) Ended(job slurm.JobID, node string) (bool, error) {
	text, err := c.run("show", "job", fmt.Sprint(job))
	if err != nil && strings.Contains(err.Error(), "Invalid job id") {
		return true, nil
	}
	const over = "\n   JobState=(COMPLETED|CANCELLED|FAILED|TIMEOUT|NODE_FAIL|BOOT_FAIL|PREEMPTED|DEADLINE|OUT_OF)"
	return regexp.MustCompile(over).MatchString(text) || !isOurs(text, node), err
}

// isOurs reports whether scontrol's answer is about a job that this submitted for the node. Threat: another job has the
// number since slurmctld lost its state: a user's, whose name may have several lines, or one for another node.
func isOurs(job, node string) bool {
	return strings.Contains(job, " JobName="+jobName+"\n") &&
		strings.Contains(job, "\n   UserId=root(0) ") && strings.Count(job, "\n   UserId=") == 1 &&
		strings.Contains(strings.ReplaceAll(job, "\n", " "), "NodeList="+node+" ")
}

func isRunning(job, node string) bool {
	return strings.Contains(job, "\n   JobState=RUNNING ") && isOurs(job, node)
}

// unfit returns why a job of a partition cannot hold a GPU for good, empty if it can.
func unfit(partition string) string {
	switch {
	case !strings.Contains(partition, " State=UP "):
		return "it is not up"
	case regexp.MustCompile(`=EXCLUSIVE|Exclusive(User|Topo)=YES| Exclusive=(NODE|USER|TOPO)`).MatchString(partition):
		return "its jobs or users get whole nodes"
	case !strings.Contains(partition, " PreemptMode=OFF") && !strings.Contains(partition, "\n   PreemptMode=OFF"):
		return "its jobs can be preempted"
	}
	return ""
}

const (
	gresOf  = `\n +Gres=(\S+)`
	usedOf  = `\n +GresUsed=(\S+)`
	gpuGres = `(?:^|,)gpu(?::[^:(,]+)?:(\d+)`
	// A line for each group of nodes: "Nodes=n1 CPU_IDs=0-3 Mem=50 GRES=gpu:a:2(IDX:0-1),gpu:b:1(IDX:3)".
	givenTo = `\n +Nodes=(\S+) .*GRES=(\S+)`
	indexes = `gpu(?::[^:(,]+)?:\d+\(IDX:([0-9,-]+)\)`
)

// count returns the number of GPUs in a field of scontrol's, such as Gres=gpu:a:2(S:0),gpu:b:2(S:1).
func count(field, node string) (n int) {
	if gres := regexp.MustCompile(field).FindStringSubmatch(node); gres != nil {
		for _, m := range regexp.MustCompile(gpuGres).FindAllStringSubmatch(gres[1], -1) {
			some, _ := strconv.Atoi(m[1]) // digits
			n += some
		}
	}
	return n
}

// givenOn returns the GPUs that a job has on a node, and may have there if nodes share a line.
func givenOn(job, node string) (numbers []int) {
	for _, line := range regexp.MustCompile(givenTo).FindAllStringSubmatch(job, -1) {
		if line[1] != node && !strings.Contains(line[1], "[") {
			continue
		}
		for _, m := range regexp.MustCompile(indexes).FindAllStringSubmatch(line[2], -1) {
			for span := range strings.SplitSeq(m[1], ",") {
				low, high, _ := strings.Cut(span, "-")
				first, _ := strconv.Atoi(low)
				last, _ := strconv.Atoi(cmp.Or(high, low))
				for ; first <= min(last, 1<<10); first++ {
					numbers = append(numbers, first)
				}
			}
		}
	}
	return numbers
}

// try fills n free GPUs, and returns the jobs that got these; ErrTaken if another was faster. It cancels the others.
func (q Quarantine) try(n int) (held map[slurm.JobID]int, err error) {
	jobs, err := q.submit(n)
	held = map[slurm.JobID]int{}
	defer func() {
		others := slices.DeleteFunc(slices.Clone(jobs), func(j slurm.JobID) bool { _, is := held[j]; return is })
		err = errors.Join(err, q.Slurm.Release(others...))
	}()
	if err == nil {
		err = q.Keep(-1, jobs...)
	}
	for _, j := range jobs {
		if err == nil {
			_, err = q.Slurm.run("update", fmt.Sprint("JobId=", j), "StartTime=now")
		}
	}
	resumes := err == nil && q.was.Drained()
	if resumes {
		signal.Ignore(interrupts...) // killed before a GPU's job is on record, this would leave the GPU to other jobs
		defer signal.Reset(interrupts...)
		err = q.Slurm.Resume(q.Node, func(now slurm.Node) bool { return now.Drained() && now.Reason == q.was.Reason })
	}
	if err != nil {
		return held, fmt.Errorf("queue jobs: %w", err)
	}
	err = q.await(jobs, held)
	if len(held) < len(q.GPUs) && resumes { // jobs would get the others
		reason := cmp.Or(q.was.Reason, "bookend quarantine failed")
		err = errors.Join(err, q.Slurm.EnsureDrained(q.Node, reason, func(slurm.Node) bool { return true }))
	}
	return held, err
}

var interrupts = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// submit queues n jobs of one GPU, to start later.
func (q Quarantine) submit(n int) (jobs []slurm.JobID, err error) {
	args := []string{"--parsable", topPriority, notYet, "--no-requeue", "--job-name=" + jobName,
		"--nodelist=" + q.Node, "--partition=" + q.Partition, "--nodes=1", "--ntasks=1", "--cpus-per-task=1",
		"--mem=16M", "--gres=gpu:1", "--chdir=/", "--output=/dev/null", "--export=NONE",
		fmt.Sprint("--time=", holdMinutes), "--wrap=exec sleep infinity"}
	if q.Account != "" {
		args = append(args, "--account="+q.Account)
	}
	for range n {
		text, err := q.Slurm.sibling("sbatch").run(args...)
		if err != nil {
			return jobs, err
		}
		id, _, _ := strings.Cut(strings.TrimSpace(text), ";") // and the cluster's name
		number, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return jobs, fmt.Errorf("sbatch tells of no job: %.100q", text)
		}
		jobs = append(jobs, slurm.JobID(number))
	}
	return jobs, nil
}

// await waits until the jobs run, and confirms those that got these GPUs.
func (q Quarantine) await(jobs []slurm.JobID, held map[slurm.JobID]int) error {
	limited := map[bool]time.Duration{false: atOnce, true: atBoot}[q.Rebooted]
	for until, pause := q.Clock()+limited, between; ; time.Sleep(pause) {
		running := len(held)
		pause += pause / 8 // a node that does not come up must not keep slurmctld busy
		var waits string
		for _, j := range jobs {
			if _, is := held[j]; is {
				continue
			}
			text, err := q.Slurm.run("show", "job", "-d", fmt.Sprint(j))
			if err != nil {
				return fmt.Errorf("read job %d: %w", j, err)
			}
			if _, reason, _ := strings.Cut(text, " Reason="); !isRunning(text, q.Node) {
				waits, _, _ = strings.Cut(reason, " ")
				continue
			}
			running++
			if on := givenOn(text, q.Node); len(on) == 1 && slices.Contains(q.GPUs, on[0]) {
				if err := q.keep(j, on[0]); err != nil {
					return err
				}
				held[j] = on[0]
			}
			if len(held) == len(q.GPUs) {
				return nil
			}
		}
		switch {
		case running == len(jobs):
			return ErrTaken
		case q.Clock() >= until:
			return fmt.Errorf("only %d of %d jobs started in %v: %.100q", running, len(jobs), limited, waits)
		}
	}
}

// keep confirms a job that until now holds its GPU for minutes.
func (q Quarantine) keep(j slurm.JobID, gpu int) error {
	limit := "TimeLimit=UNLIMITED"
	if q.For > 0 {
		limit = fmt.Sprint("TimeLimit=", int((q.For+time.Minute-1)/time.Minute))
	}
	err := q.Keep(gpu, j)
	if err == nil {
		_, err = q.Slurm.run("update", fmt.Sprint("JobId=", j), limit)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keep job %d: %w", j, err), q.Keep(-1, j))
	}
	return nil
}
