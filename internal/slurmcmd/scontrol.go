package slurmcmd

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

// Patience is enough time for Version if nothing else limits it.
const Patience = 3 * time.Second

// maxOutput bounds scontrol's answer: one node is about 1 KiB.
const maxOutput = 64 << 10

// ErrChanged means that the node had changed right before it was to be updated; nothing was changed.
var ErrChanged = errors.New("somebody else has changed the node meanwhile")

// Scontrol asks Slurm about this node, and drains or resumes it. Package drain decides what to do. Every call is
// bounded: if slurmctld is down or hangs, scontrol alone would wait 10 to 20 s.
type Scontrol struct {
	Path string // absolute
	Conf string // SLURM_CONF as slurmd gave it to a hook; empty for scontrol's default
	Root bool   // this process is root: the program must be trusted
	// Time returns the time left for a call; it is called before each. With slurmctld up a call takes 10 ms.
	Time func() time.Duration
	most int // bytes of an answer, if more than maxOutput
}

func (c Scontrol) Node(name string) (n slurm.Node, err error) {
	text, err := c.run("show", "node", name)
	if err == nil {
		n, err = parseNode(text, name)
	}
	if err != nil {
		return slurm.Node{}, fmt.Errorf("read node %q: %w", name, err)
	}
	return n, nil
}

// Drain sets state and reason of a node in one update: slurmctld wipes a reason without a state.
func (c Scontrol) Drain(name, reason string, still func(slurm.Node) bool) error {
	return c.update("drain", name, still, "State=DRAIN", "Reason="+reason)
}

// EnsureDrained is Drain for a caller whose exit status drains nothing: it reads the node again. Without an error the
// node is drained, perhaps by another and with another reason; a reason in place is never replaced.
func (c Scontrol) EnsureDrained(name, reason string, still func(slurm.Node) bool) error {
	err := c.Drain(name, reason, func(now slurm.Node) bool { return !now.Drained() && still(now) })
	switch now, unread := c.Node(name); {
	case unread != nil:
		return errors.Join(err, unread)
	case now.Drained():
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("drain node %q: scontrol was accepted, but the node is not drained", name)
}

// noDrain is part of slurmctld's answer if a node to be undrained is not drained, or may not be undrained.
const noDrain = "Invalid node state specified"

// Resume ends a node's drain, which also clears the reason of a node that is up. A node that went DOWN meanwhile stays
// DOWN and keeps its reason; RESUME would make it IDLE. A drain that has ended already is no error.
func (c Scontrol) Resume(name string, still func(slurm.Node) bool) error {
	err := c.update("resume", name, still, "State=UNDRAIN")
	if err == nil || !strings.Contains(err.Error(), noDrain) {
		return err
	}
	if now, unread := c.Node(name); unread != nil || now.Drained() {
		return err
	}
	return nil
}

// ResumeIf is Resume if the drain is as still wants it. If the node may be drained now, it returns the command left.
func (c Scontrol) ResumeIf(name string, still func(slurm.Node) bool) (left []string) {
	now, err := c.Node(name)
	if err == nil && (!now.Drained() || still(now) && c.Resume(name, still) == nil) {
		return nil
	}
	const what = "if the reason of the node's drain (%.200q) is over: scontrol update nodename=%s state=undrain"
	return []string{fmt.Sprintf(what, now.Reason, name)}
}

// update reads the node right before it changes it, and returns ErrChanged if still rejects what it read.
func (c Scontrol) update(do, name string, still func(slurm.Node) bool, what ...string) error {
	now, err := c.Node(name)
	if err == nil && !still(now) {
		err = ErrChanged
	}
	if err == nil {
		_, err = c.run(append([]string{"update", "NodeName=" + name}, what...)...)
	}
	if err != nil {
		return fmt.Errorf("%s node %q: %w", do, name, err)
	}
	return nil
}

// sibling is a program of Slurm's next to scontrol.
func (c Scontrol) sibling(name string) Scontrol {
	c.Path = filepath.Join(filepath.Dir(c.Path), name)
	return c
}

func (c Scontrol) run(args ...string) (string, error) {
	// Threat: a user who can write scontrol would run code as root here.
	if c.Root {
		if err := safefile.Trusted(c.Path); err != nil {
			return "", err
		}
	}
	spec := child.Spec{Path: c.Path, Args: args, MaxOutput: max(c.most, maxOutput), Timeout: c.Time()}
	// Times are parsed: in this machine's time zone, or a format set by its admin, they would mean something else.
	spec.Env = []string{"TZ=UTC0"}
	// Threat: none beyond slurmd's own: it runs as root by this very file, and gave it to its hooks.
	if c.Conf != "" {
		if !filepath.IsAbs(c.Conf) {
			return "", fmt.Errorf("scontrol %s: SLURM_CONF %.200q is not an absolute path", args[0], c.Conf)
		}
		spec.Env = append(spec.Env, "SLURM_CONF="+c.Conf)
	}
	res := child.Run(spec)
	if err := failed(res, spec.Timeout); err != nil {
		return string(res.Stdout), fmt.Errorf("%s %s: %w", filepath.Base(c.Path), args[0], err)
	}
	return string(res.Stdout), nil
}

// failed returns why a Slurm program has not answered, with the last line of its errors.
func failed(res child.Result, limit time.Duration) error {
	last := bytes.TrimSpace(res.Stderr)
	switch {
	case res.Outcome == child.NotStarted:
		return res.Err
	case res.Outcome == child.Hung || res.Outcome == child.Abandoned:
		return fmt.Errorf("no answer within %v", limit.Round(time.Millisecond))
	case res.Outcome != child.Exited || res.ExitCode != 0:
		return fmt.Errorf("%s, exit %d: %.200q", res.Outcome, res.ExitCode, last[bytes.LastIndexByte(last, '\n')+1:])
	}
	return nil
}

// Version asks a Slurm program for its version. Threat: it runs as root; one that users can write is not started.
func Version(program, conf string, within time.Duration) (string, error) {
	const enough = 4 << 10
	if err := safefile.Trusted(program); err != nil {
		return "", fmt.Errorf("not started: %w", err)
	}
	res := child.Run(child.Spec{Path: program, Args: []string{"-V"}, Env: []string{"SLURM_CONF=" + conf},
		MaxOutput: enough, Timeout: within})
	if err := failed(res, within); err != nil {
		return "", fmt.Errorf("%s -V: %w", program, err)
	}
	text, _, _ := strings.Cut(string(res.Stdout), "\n")
	return strings.TrimSpace(text), nil
}

// scontrol's format of a node: "NodeName=n1 ..." and lines of fields, indented by three blanks. Reason and comment have
// lines of their own; a reason continues with ten blanks. In the one-line format a comment could pass for a field.
const (
	field         = "\n   "
	goesOn        = "\n          "
	stateOf       = field + "State="
	reasonOf      = field + "Reason="
	timeForm      = "2006-01-02T15:04:05"
	notResponding = "NOT_RESPONDING"
	stateMark     = "*" // after the state's first word: it does not respond
)

// parseNode parses the answer of "scontrol show node" about one node. An ambiguous answer is an error.
func parseNode(text, name string) (n slurm.Node, err error) {
	_, rest, _ := strings.Cut(text, stateOf)
	rest, _, _ = strings.Cut(rest, "\n")
	state, _, _ := strings.Cut(rest, " ")
	switch {
	case !strings.HasPrefix(text, "NodeName="+name+" ") || strings.Contains(text, "\nNodeName="):
		return n, errors.New("scontrol tells of no such node, or of several")
	case strings.Count(text, stateOf) != 1 || strings.TrimRight(state, stateMark) == "":
		return n, errors.New("scontrol tells no state, or several")
	case strings.Count(text, reasonOf) > 1:
		return n, errors.New("scontrol tells several reasons: a comment of several lines may pass for one")
	}
	for flag := range strings.SplitSeq(state, "+") {
		plain := strings.TrimRight(flag, stateMark)
		n.Silent = n.Silent || plain == notResponding || plain != flag
		if plain != notResponding {
			n.Flags = append(n.Flags, plain)
		}
	}
	n.Reason, n.By, n.At = parseReason(text)
	return n, nil
}

// parseReason returns the reason, its author and its time: " [user@time]" at the end of its first line.
func parseReason(text string) (reason, by string, at time.Time) {
	_, rest, _ := strings.Cut(text, reasonOf)
	first, rest, _ := strings.Cut(rest, "\n")
	reason = first
	if i := strings.LastIndex(first, " ["); i >= 0 && strings.HasSuffix(first, "]") {
		who, when, stamped := strings.Cut(first[i+2:len(first)-1], "@")
		if t, err := time.Parse(timeForm, when); stamped && err == nil {
			reason, by, at = first[:i], who, t
		}
	}
	if strings.HasPrefix("\n"+rest, goesOn) { // not one of ours
		reason += "\n..."
	}
	return reason, by, at
}

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

func (c Scontrol) Submit(args []string) (text string, err error) {
	text, err = c.sibling("sbatch").run(args...)
	return strings.TrimSpace(text), err
}
