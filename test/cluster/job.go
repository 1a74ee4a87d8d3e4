package cluster

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// JobID is a job's id as Slurm's commands take it: "7", or "7_2" for one task of an array.
type JobID string

// Job is what `scontrol show job` says.
type Job struct {
	ID       JobID
	State    string // JobState; "COMPLETING" until every epilog is done
	Reason   string
	NodeList string
	StdOut   string            // expanded path; "" when the job has no output file (srun)
	ExitCode string            // "exit:signal"
	Fields   map[string]string // everything
}

// The states in which a job stays.
var finalStates = []string{
	"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL",
}

// Submit hands a batch script to sbatch as the user. Text without a "#!" line runs under /bin/sh. The job runs
// in Home(user) unless args say otherwise.
func (c *Cluster) Submit(user, script string, args ...string) (JobID, error) {
	if !strings.HasPrefix(script, "#!") {
		script = "#!/bin/sh\n" + script + "\n"
	}
	out, err := c.runWith(user, script, "sbatch", append([]string{"--parsable"}, args...)...)
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(out), ";")
	if _, err := strconv.ParseUint(id, 10, 32); err != nil {
		return "", fmt.Errorf("submit: sbatch answered %q", out)
	}
	return JobID(id), nil
}

// Srun runs a job in the foreground and returns what it wrote to both outputs, also with an error.
func (c *Cluster) Srun(user string, args ...string) (string, error) {
	return c.run(user, "srun", args...)
}

// Job describes a job; of an array without a task number, its first entry.
func (c *Cluster) Job(id JobID) (Job, error) {
	jobs, err := c.Jobs(id)
	if err != nil {
		return Job{}, err
	}
	return jobs[0], nil
}

// Jobs describes a job, or every task of an array.
func (c *Cluster) Jobs(id JobID) ([]Job, error) {
	text, err := c.run("", "scontrol", "show", "job", string(id))
	if err != nil {
		return nil, err
	}
	var jobs []Job
	for _, f := range parseShow(text) {
		jobs = append(jobs, Job{
			ID: JobID(f["JobId"]), State: f["JobState"], Reason: f["Reason"], NodeList: f["NodeList"],
			StdOut: f["StdOut"], ExitCode: f["ExitCode"], Fields: f,
		})
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("job %s: scontrol said %q", id, text)
	}
	return jobs, nil
}

// Wait waits until the job, or every task of an array, is in one of the states; without states, until it has
// ended, epilogs included. A job that ended in another state is an error at once.
func (c *Cluster) Wait(id JobID, patience time.Duration, states ...string) (Job, error) {
	if len(states) == 0 {
		states = finalStates
	}
	return c.WaitFor(id, patience, func(j Job) (bool, error) {
		if slices.Contains(states, j.State) {
			return true, nil
		}
		if slices.Contains(finalStates, j.State) {
			return false, fmt.Errorf("ended as %s (exit code %s, reason %s), want %v", j.State, j.ExitCode, j.Reason,
				states)
		}
		return false, nil
	})
}

// WaitFor waits until done says yes of the job, or of every task of an array, or fails. It returns the last
// one looked at, also with an error.
func (c *Cluster) WaitFor(id JobID, patience time.Duration, done func(Job) (bool, error)) (last Job, err error) {
	in := until(patience, func() bool {
		var jobs []Job
		jobs, err = c.Jobs(id)
		all := err == nil
		for i := 0; i < len(jobs) && all; i++ {
			last = jobs[i]
			all, err = done(last)
		}
		return all || err != nil
	})
	if !in {
		err = fmt.Errorf("still %s (reason %s) after %v", last.State, last.Reason, patience)
	}
	if err != nil {
		err = fmt.Errorf("wait for job %s: %w", id, err)
	}
	return last, err
}

// Output returns what the job's output file holds.
func (c *Cluster) Output(id JobID) (string, error) {
	j, err := c.Job(id)
	if err != nil {
		return "", err
	}
	if j.StdOut == "" {
		return "", fmt.Errorf("job %s has no output file", id)
	}
	text, err := os.ReadFile(j.StdOut)
	return string(text), err
}

// Cancel ends a job.
func (c *Cluster) Cancel(id JobID) error {
	_, err := c.run("", "scancel", string(id))
	return err
}

// Scontrol runs scontrol as root.
func (c *Cluster) Scontrol(args ...string) error {
	_, err := c.run("", "scontrol", args...)
	return err
}

// whole are the fields of `scontrol show` that have a line of their own and may hold blanks.
var whole = map[string]bool{
	"Command": true, "WorkDir": true, "StdErr": true, "StdIn": true, "StdOut": true, "Comment": true,
	"Reason": true, "OS": true,
}

// parseShow reads the multi-line form of `scontrol show job` or `show node`: one map an entry. The one-line
// form would not do: it leaves patterns in StdOut unexpanded, and blanks in paths make it ambiguous.
func parseShow(text string) []map[string]string {
	var entries []map[string]string
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "JobId=") || strings.HasPrefix(line, "NodeName=") {
			entries = append(entries, map[string]string{})
		}
		if len(entries) > 0 {
			parseLine(strings.TrimSpace(line), entries[len(entries)-1])
		}
	}
	return entries
}

func parseLine(line string, into map[string]string) {
	key, value, ok := strings.Cut(line, "=")
	if ok && whole[key] {
		into[key] = value
		return
	}
	key = ""
	for _, word := range strings.Fields(line) {
		if k, v, ok := strings.Cut(word, "="); ok {
			key = k
			into[key] = v
		} else if key != "" {
			into[key] += " " + word
		}
	}
}
