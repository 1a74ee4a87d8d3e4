package cluster

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// NodeState is what `scontrol show node` says of a node's use.
type NodeState struct {
	Name   string
	Flags  []string // "IDLE", "MIXED", "DRAIN", "COMPLETING", …
	Reason string   // without the "[user@time]" that Slurm adds
	Fields map[string]string
}

// Has reports whether the state carries the flag.
func (n NodeState) Has(flag string) bool { return slices.Contains(n.Flags, flag) }

// Node describes a node.
func (c *Cluster) Node(name string) (NodeState, error) {
	text, err := c.run("", "scontrol", "show", "node", name)
	if err != nil {
		return NodeState{}, err
	}
	entries := parseShow(text)
	if len(entries) != 1 {
		return NodeState{}, fmt.Errorf("node %q: scontrol said %q", name, text)
	}
	f := entries[0]
	reason, _, _ := strings.Cut(f["Reason"], " [")
	return NodeState{Name: name, Flags: strings.Split(f["State"], "+"), Reason: reason, Fields: f}, nil
}

// WaitNode waits until done says yes of the node.
func (c *Cluster) WaitNode(name string, patience time.Duration, done func(NodeState) bool) (n NodeState, err error) {
	in := until(patience, func() bool {
		n, err = c.Node(name)
		return err != nil || done(n)
	})
	if !in {
		err = fmt.Errorf("wait for node %s: still %v (reason %q) after %v", name, n.Flags, n.Reason, patience)
	}
	return n, err
}

// Resume ends a node's drain and waits until it is idle.
func (c *Cluster) Resume(name string) error {
	if err := c.Scontrol("update", "NodeName="+name, "State=RESUME"); err != nil {
		return err
	}
	_, err := c.WaitNode(name, c.options.Patience, func(n NodeState) bool { return n.Has("IDLE") && !n.Has("DRAIN") })
	return err
}

// SlurmdLog returns a node's slurmd log.
func (c *Cluster) SlurmdLog(node string) (string, error) {
	text, err := os.ReadFile(c.paths.log("slurmd-" + node))
	return string(text), err
}

// HookRun is one run of a Prolog or Epilog in slurmd's log.
type HookRun struct {
	Hook   string // "prolog" or "epilog"
	Job    JobID  // known of failures only
	Exit   int    // exit code, 0 when a signal ended the hook
	Signal int    // 0 when it exited
	Output string // all it wrote, both outputs
}

// Failed reports whether the node drains for it.
func (h HookRun) Failed() bool { return h.Exit != 0 || h.Signal != 0 }

// HookRuns returns the hooks that a node's log tells of, oldest first.
func (c *Cluster) HookRuns(node string) ([]HookRun, error) {
	text, err := c.SlurmdLog(node)
	if err != nil {
		return nil, err
	}
	return parseHookRuns(text), nil
}

// parseHookRuns finds the records
//
//	[time] error: epilog failed: rc:1 output:TEXT
//	[time] error: epilog killed by signal 9 output:TEXT
//	[time] debug2: prep/script: _run_subpath_command: epilog success rc:0 output:TEXT
//
// and after the first two "[time] error: [job 7] epilog failed status=1:0" ("status=0:9"), since 25.11
// "error: JobId=7 SLUID=s4ZHM806T9MS01 epilog failed status=1:0", which alone names the job. A record ends where a
// line starts with a time.
func parseHookRuns(log string) []HookRun {
	head := regexp.MustCompile(`(?m)^\[\d{4}-[0-9T:.-]+\] `)
	ran := regexp.MustCompile(`(?s)^(?:error|debug2): (?:prep/script: _run_subpath_command: )?(prolog|epilog) (?:failed: )?(success rc:|rc:|killed by signal )(\d+) output:(.*?)\n*$`)
	status := regexp.MustCompile(`^error: \[?(?:job |jobid |JobId=)(\d+)(?:'s|\]| SLUID=\w+)? (prolog|epilog) failed status=(\d+:\d+)`)
	var found []HookRun
	for _, record := range head.Split(log, -1) {
		if m := ran.FindStringSubmatch(record); m != nil {
			n, _ := strconv.Atoi(m[3])
			run := HookRun{Hook: m[1], Exit: n, Output: m[4]}
			if strings.HasPrefix(m[2], "killed") {
				run.Exit, run.Signal = 0, n
			}
			found = append(found, run)
		} else if m := status.FindStringSubmatch(record); m != nil {
			// The first failure without a job that ended the same way.
			i := slices.IndexFunc(found, func(r HookRun) bool {
				return r.Failed() && r.Job == "" && r.Hook == m[2] && fmt.Sprintf("%d:%d", r.Exit, r.Signal) == m[3]
			})
			if i >= 0 {
				found[i].Job = JobID(m[1])
			}
		}
	}
	return found
}
