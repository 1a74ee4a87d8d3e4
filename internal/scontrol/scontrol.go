// Package scontrol drains this node with a reason, by Slurm's own command. A hook does so only where the
// configuration asks for it, always before it exits, and never over somebody else's reason.
package scontrol

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/safefile"
)

// Prefix begins every reason of ours; a reason that does not begin so is somebody else's.
const Prefix = "BKD-"

// maxOutput bounds scontrol's answer: one node is about 1 KiB.
const maxOutput = 64 << 10

// ErrForeign says that the node is drained, or has a reason, by somebody else; nothing was changed.
var ErrForeign = errors.New("the node has a reason that is not ours")

// Command is scontrol as this site runs it.
type Command struct {
	Path string // absolute
	Conf string // SLURM_CONF as slurmd gave it to the hook; empty for scontrol's default
	Root bool   // this process is root: the program must be trusted
	// Timeout bounds each of the two calls. With slurmctld down or hung a call takes 10-20 s if one lets it.
	Timeout time.Duration
}

// Drain sets state and reason of a node in one update: a reason without state is wiped by slurmctld.
func (c Command) Drain(node, reason string) error {
	// Threat: whoever can write scontrol runs as root here.
	if c.Root {
		if err := safefile.Trusted(c.Path); err != nil {
			return fmt.Errorf("drain node %q: %w", node, err)
		}
	}
	now, err := c.run("--oneliner", "show", "node", node)
	if err != nil {
		return fmt.Errorf("drain node %q: %w", node, err)
	}
	state, old := parseNode(now)
	if !ours(state, old) {
		return fmt.Errorf("drain node %q: %w: state %s, reason %.100q", node, ErrForeign, state, old)
	}
	if _, err := c.run("update", "NodeName="+node, "State=DRAIN", "Reason="+reason); err != nil {
		return fmt.Errorf("drain node %q: %w", node, err)
	}
	return nil
}

func (c Command) run(args ...string) (string, error) {
	spec := child.Spec{Path: c.Path, Args: args, MaxOutput: maxOutput, Timeout: c.Timeout}
	if c.Conf != "" {
		spec.Env = []string{"SLURM_CONF=" + c.Conf}
	}
	res := child.Run(spec)
	if res.Outcome != child.Exited || res.ExitCode != 0 {
		return "", fmt.Errorf("scontrol %s: %s, exit %d: %.200q", args[0], res.Outcome, res.ExitCode, res.Stderr)
	}
	return string(res.Stdout), nil
}

// parseNode reads the one line of "show node". The reason is the line's tail, up to " [user@time]" or the next
// key that Slurm puts behind it.
func parseNode(line string) (state, reason string) {
	for field := range strings.FieldsSeq(line) {
		if value, ok := strings.CutPrefix(field, "State="); ok {
			state = value
			break
		}
	}
	_, tail, ok := strings.Cut(line, " Reason=")
	if !ok {
		return state, ""
	}
	if i := strings.LastIndex(tail, " ["); i >= 0 {
		tail = tail[:i]
	}
	return state, strings.TrimSpace(tail)
}

// ours reports whether a node may get our reason: it has none and is not drained, or the one it has is ours.
func ours(state, reason string) bool {
	if state == "" {
		return false
	}
	if reason != "" && reason != "none" {
		return strings.HasPrefix(reason, Prefix)
	}
	for _, s := range []string{"DRAIN", "FAIL", "MAINT", "DOWN"} {
		if strings.Contains(state, s) {
			return false
		}
	}
	return true
}
