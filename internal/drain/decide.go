package drain

import (
	"fmt"
	"time"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/report"
)

// Act is what is to be done about the node's drain.
type Act string

// The acts.
const (
	Leave  Act = "left alone"
	Write  Act = "reason written"
	Add    Act = "drained already" // by us, and for one cause more now
	Forget Act = "forgotten"
	Count  Act = "counted clean"
	Resume Act = "resumed"
)

// Rules are the site's.
type Rules struct {
	By     config.ReasonBy
	Resume bool
	After  int // health checks in a row that find the cause gone
}

// Input is all that a decision rests on.
type Input struct {
	Now    Moment
	Epoch  gpu.Epoch
	Rules  Rules
	Memory Memory
	Exits  []Exit // on record in this boot, oldest first
	Node   Node
	Cards  map[gpu.ID]Seen // what this health check saw
}

// Decision is what is to be done, and what is to be remembered of it before it is done: what was intended and not done
// is tried again by the next health check, if it still holds then.
type Decision struct {
	Act    Act
	Why    string
	Reason string // for Write
	Memory Memory
}

// seldom is how often Slurm is asked about a drain of ours of which nothing is to be done but to notice that it is
// over: scontrol makes slurmctld send all of the cluster's nodes for one.
const seldom = time.Hour

// Pending reports whether there is a drain of ours to look after now: only then is Slurm asked.
func Pending(r Rules, m Memory, exits []Exit, now time.Time) bool {
	switch {
	case r.By == config.ReasonByNone:
		return false
	case len(m.open(exits)) > 0:
		return true
	case m.Written == nil:
		return false
	}
	return r.Resume && m.Written.verifiable() || m.Last == nil || m.Last.Act != Leave ||
		now.Sub(m.Last.Wall).Abs() >= seldom
}

// Conf is the SLURM_CONF by which Slurm is to be asked.
func Conf(m Memory, exits []Exit) string {
	if open := m.open(exits); len(open) > 0 {
		return open[len(open)-1].Conf
	}
	if m.Written != nil {
		return m.Written.Conf
	}
	return ""
}

// maxWhy bounds the text of a decision in bytes: another's reason may be in it, which is as long as its writer likes.
const maxWhy = 1 << 10

// Decide says what a health check is to do.
func Decide(in Input) Decision { return in.said(in.decide()) }

// said adds to what is remembered what was decided.
func (in Input) said(d Decision) Decision {
	d.Why = string(report.Clean(d.Why, maxWhy))
	d.Memory.Last = &Said{in.Now.Wall.UTC().Round(0), d.Act, d.Why}
	return d
}

func (in Input) decide() Decision {
	open := in.Memory.open(in.Exits)
	if in.stands() {
		return in.standing(open)
	}
	if x, ours := in.ours(open); ours {
		return in.upgrade(open, x)
	}
	return in.others(open)
}

// stands reports whether the node's reason is the one that we wrote last: the same bytes, of that time, and root's.
// Another user who wrote the same meant it, and so did one who wrote it again later.
func (in Input) stands() bool {
	w := in.Memory.Written
	return w != nil && in.Node.Drained() && in.Node.Reason == w.Reason && in.Node.byRoot() &&
		follows(in.Node.At, w.Wall)
}

// ours finds the exit that Slurm's fixed text is for: of that hook, at that time, the last before it.
func (in Input) ours(open []Exit) (cause Exit, found bool) {
	if !in.Node.Drained() {
		return Exit{}, false
	}
	for _, x := range open {
		if in.Node.Reason == x.fixed() && follows(in.Node.At, x.Wall) && x.Reason != "" {
			cause, found = x, true
		}
	}
	return cause, found
}

// upgrade puts our reason in the place of Slurm's.
func (in Input) upgrade(open []Exit, x Exit) Decision {
	if flag := in.Node.other(); flag != "" {
		return in.leave(in.Memory, fmt.Sprintf("%q is ours, but the node's state has %s", in.Node.Reason, flag))
	}
	return in.write(open, x, fmt.Sprintf("%s, in the place of %q", x.Reason, in.Node.Reason))
}

// write settles no exit: whether the reason stands the next health check sees.
func (in Input) write(open []Exit, x Exit, why string) Decision {
	w := Written{Reason: x.Reason, Wall: in.Now.Wall.UTC().Round(0), Conf: x.Conf, Epoch: x.Epoch}
	w = w.with(open)
	m := in.Memory
	m.Written = &w
	return Decision{Act: Write, Why: why, Reason: x.Reason, Memory: m}
}

// others settles what is not ours: a node that is not drained, or by somebody else. Slurm gets a moment to drain it.
func (in Input) others(open []Exit) Decision {
	m, why := in.Memory, in.whose()
	if m.Written != nil && !in.Node.Drained() && in.Now.Wall.Sub(m.Written.Wall).Abs() < late {
		return in.leave(m, "our reason has just been written, and the node is not drained yet")
	}
	m.Written = nil
	var over []Exit
	for _, x := range open {
		if in.Node.Drained() || in.Now.Wall.Sub(x.Wall).Abs() > late {
			over = append(over, x)
		}
	}
	if len(over) < len(open) {
		why = "Slurm has not drained the node for a hook that has just asked for it"
	}
	if m = m.settle(in.Exits, over...); in.Memory.Written != nil {
		return Decision{Act: Forget, Why: why, Memory: m}
	}
	return in.leave(m, why)
}

func (in Input) whose() string {
	n := in.Node
	switch {
	case !n.Drained():
		return "the node is not drained any more"
	case n.Reason == "":
		return "somebody drained the node without a reason"
	case n.Reason == PrologError || n.Reason == EpilogError:
		return fmt.Sprintf("%q of %s is not ours: no Bookend hook failed then", n.Reason, n.when())
	}
	return fmt.Sprintf("the node has a reason of %s's, of %s", n.who(), n.when())
}

func (n Node) who() string {
	if n.By == "" {
		return "somebody"
	}
	return n.By
}

func (n Node) when() string {
	if n.At.IsZero() {
		return "unknown time"
	}
	return clock(n.At)
}

// standing looks after a drain with our reason: what else it stands for by now, and whether it may end.
func (in Input) standing(open []Exit) Decision {
	w := in.Memory.Written.with(open)
	m := in.Memory.settle(in.Exits, open...)
	m.Written = &w
	switch answer, why := in.verified(w); answer {
	case Clean:
		w.Clean = min(w.Clean+1, in.Rules.After)
		return in.clean(m, w)
	case Dirty:
		w.Clean = 0
		fallthrough
	default:
		return in.leave(m, why)
	}
}

// verified says whether what a drain stands for is over. Dirty is also what no check can ever tell.
func (in Input) verified(w Written) (answer Answer, why string) {
	answer, why, never := verify(w.Causes, in.Cards)
	switch {
	case !in.Rules.Resume:
		why = "drain.resume is off"
	case !w.Epoch.Same(in.Epoch):
		why = "the driver was reloaded since, or no one knows: somebody has had a hand in it"
	case !never:
		return answer, why
	}
	return Dirty, "drained for " + w.Reason + "; " + why
}

// clean counts, or resumes. m remembers w.
func (in Input) clean(m Memory, w Written) Decision {
	times := fmt.Sprintf("clean %d of %d times in a row", w.Clean, in.Rules.After)
	m.Written = &w
	if w.Clean < in.Rules.After {
		return Decision{Act: Count, Why: times, Memory: m}
	}
	if why := in.Node.unfit(); why != "" {
		return in.leave(m, times+"; not resumed while "+why)
	}
	return Decision{Act: Resume, Why: times + " after " + w.Reason, Memory: m}
}

func (in Input) leave(m Memory, why string) Decision {
	return Decision{Act: Leave, Why: why, Memory: m}
}

// AtHook says what a hook that is about to exit with something other than 0 is to do, if the site wants the reason
// from it: Slurm's own text is not there yet. Of Leave nothing is to be remembered.
func AtHook(in Input, own Exit) Decision {
	if in.stands() {
		w := in.Memory.Written.with([]Exit{own})
		m := in.Memory
		m.Written = &w
		return in.said(Decision{Act: Add, Why: w.Reason, Memory: m})
	}
	if flag := in.Node.other(); flag != "" {
		return in.leave(in.Memory, "the node's state has "+flag)
	}
	switch n := in.Node; {
	case n.Drained():
		return in.leave(in.Memory, in.whose())
	case n.Reason != "" && !Ours(n.Reason) && n.Reason != PrologError && n.Reason != EpilogError:
		// without a drain that is what was left of one that is over, or a person's remark
		return in.leave(in.Memory, fmt.Sprintf("the node is not drained, and has a reason of %s's all the same, of %s",
			n.who(), n.when()))
	}
	return in.said(in.write([]Exit{own}, own, own.Reason))
}
