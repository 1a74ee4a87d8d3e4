package slurmcmd

import (
	"fmt"
	"strings"
)

// Vacant returns why a job may use a node's GPUs, empty if none can: the node is drained and idle, or all of its GPUs
// are given to this job of root's, which is alone on it.
func (c Scontrol) Vacant(node, job string) string {
	now, err := c.Node(node)
	is := strings.Join(now.Flags, "+")
	if now.Silent { // a job may still be on it
		is += ", and does not answer"
	}
	switch {
	case err != nil:
		return err.Error()
	case now.Vacant():
		return ""
	case job == "":
		return fmt.Sprintf("jobs may use its GPUs: it is %s", is)
	}
	ids, err := c.jobsOn(node)
	if err != nil {
		return err.Error()
	}
	own, errOwn := c.run("show", "job", "-d", job)
	all, errAll := c.run("show", "node", "-d", node)
	switch n := count(gresOf, all); {
	case errOwn != nil || errAll != nil || len(ids) != 1 || ids[0] != job:
		return fmt.Sprintf("job %.20s is not alone on it, or Slurm does not tell", job)
	case !strings.Contains(own, "\n   UserId=root(0) ") || n == 0 || len(givenOn(own, node)) != n:
		return fmt.Sprintf("job %.20s is not root's, or has not all %d GPUs", job, n)
	}
	return ""
}

// Alone returns the arguments of sbatch for root's job that runs a shell's command alone on a node, with all its GPUs.
func (c Scontrol) Alone(node, name, output, command string) ([]string, error) {
	text, err := c.run("show", "node", "-d", node)
	if err != nil {
		return nil, fmt.Errorf("read node %q: %w", node, err)
	}
	if now, err := parseNode(text, node); err != nil || now.Drained() {
		return nil, fmt.Errorf("node %q takes no jobs: run this on it once its jobs have ended", node)
	}
	_, list, _ := strings.Cut(text, "\n   Partitions=")
	list, _, _ = strings.Cut(list, "\n")
	first, _, _ := strings.Cut(strings.TrimSpace(list), ",")
	return []string{"--exclusive", "--nodes=1", "--nodelist=" + node, "--partition=" + first,
		fmt.Sprint("--gres=gpu:", count(gresOf, text)), "--no-requeue", "--job-name=" + name, "--chdir=/",
		"--export=NONE", "--time=3:00:00", "--output=" + output, "--wrap=" + command}, nil
}

// Submit runs sbatch.
func (c Scontrol) Submit(args []string) (text string, err error) {
	text, err = c.sibling("sbatch").run(args...)
	return strings.TrimSpace(text), err
}
