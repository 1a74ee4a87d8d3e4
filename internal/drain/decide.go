package drain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safetext"
	"bookend/internal/slurm"
)

// Act is the action on the node's drain.
type Act string

const (
	Leave  Act = "left alone"
	Write  Act = "reason written"
	Add    Act = "drained already" // by us, and now for one more cause
	Resume Act = "resumed"
)

// Facts is everything on which a decision depends.
type Facts struct {
	Now    time.Time
	Epoch  gpu.Epoch
	Mute   bool // no reason is to be written, and nothing resumed
	Resume int  // a node is resumed after so many clean health checks in a row; 0: never
	Memory Remembered
	Exits  []Exit // on record in this boot, oldest first
	// Partial is true if there may be further exits: the boot is unknown, or not every record could be read.
	Partial bool
	// Lost is true if a job's record was damaged since the boot: if it held an exit, that is no longer on record.
	Lost  bool
	Node  slurm.Node
	Cards map[gpu.ID]record.GPUSeen // by this health check
	// Last and Standing say which other GPUs are good: the last health check on record, and the errors that stand.
	Last     *record.Check
	Standing record.Standing
}

// Decision is what to do. Its Memory is stored first: what could not be done, the next health check tries again.
type Decision struct {
	Act    Act
	Why    string
	Reason string // for Write
	Memory Remembered
}

// seldom is the interval for asking only whether our drain is over: scontrol makes slurmctld send all nodes.
const seldom = time.Hour

// Pending reports whether there is a drain of ours to look after: only then is Slurm asked.
func (in Facts) Pending() bool {
	switch w, last := in.Memory.Written, in.Memory.Last; {
	case in.Mute:
		return false
	case len(in.Memory.open(in.Exits)) > 0:
		return true
	case w == nil:
		return false
	default:
		return in.Resume > 0 && w.unverifiable() == "" || last == nil || last.Act != Leave ||
			in.Now.Sub(last.Wall).Abs() >= seldom
	}
}

// Conf returns the SLURM_CONF of the controller that has the drain.
func (in Facts) Conf() string {
	if open := in.Memory.open(in.Exits); len(open) > 0 {
		return open[len(open)-1].Conf
	}
	if in.Memory.Written != nil {
		return in.Memory.Written.Conf
	}
	return ""
}

func Decide(in Facts) Decision {
	open := in.Memory.open(in.Exits)
	if in.stands() {
		return in.standing(open)
	}
	if x, ours := in.ours(open); ours {
		if flag := other(in.Node); flag != "" {
			return in.leave(in.Memory, fmt.Sprintf("%q is ours, but the node's state has %s", in.Node.Reason, flag))
		}
		return in.write(open, x, fmt.Sprintf("%s, in the place of %q", x.Reason, in.Node.Reason))
	}
	return in.others(open)
}

// stands reports whether the node's reason is the one that we wrote last: the same bytes, set at that time, by root or
// by a user that Slurm does not show. The same text from another user, or set again later, is a decision of theirs.
func (in Facts) stands() bool {
	w, n := in.Memory.Written, in.Node
	return w != nil && n.Drained() && n.Reason == w.Reason && slices.Contains([]string{"", "root", "0"}, n.By) &&
		follows(n.At, w.Wall)
}

// ours finds the exit that Slurm's fixed text is for: the last one, of that hook, that the text's time can follow.
func (in Facts) ours(open []Exit) (cause Exit, found bool) {
	fixed := map[slurm.Context]string{slurm.Prolog: slurm.PrologError, slurm.Epilog: slurm.EpilogError}
	for _, x := range open {
		slurms := !x.ByScontrol && in.Node.Drained() && in.Node.Reason == fixed[x.Phase]
		if slurms && follows(in.Node.At, x.Wall) && x.Reason != "" {
			cause, found = x, true
		}
	}
	return cause, found
}

// others handles a node that is not drained, or not by us. Slurm gets a moment to drain it.
func (in Facts) others(open []Exit) Decision {
	m, drained := in.Memory, in.Node.Drained()
	young := func(wall time.Time) bool { return !drained && in.Now.Sub(wall).Abs() <= late }
	if m.Written != nil && young(m.Written.Wall) {
		return in.leave(m, "our reason has just been written, and the node is not drained yet")
	}
	m.Written = nil
	over := slices.DeleteFunc(slices.Clone(open), func(x Exit) bool { return young(x.Wall) })
	m = in.settle(m, over)
	if len(over) < len(open) {
		return in.leave(m, "Slurm has not drained the node for a hook that has just asked for it")
	}
	return in.leave(m, otherReason(in.Node))
}

// standing handles a drain with our reason: it adds the causes found since, and decides whether the drain may end.
func (in Facts) standing(open []Exit) Decision {
	w := in.Memory.Written.with(open)
	m := in.settle(in.Memory, open)
	m.Written = &w
	if why := in.unclean(w); why != "" {
		w.Clean = 0
		return in.leave(m, why)
	}
	w.Clean = min(w.Clean+1, in.Resume)
	times := fmt.Sprintf("clean %d of %d times in a row", w.Clean, in.Resume)
	switch flag := beyond(in.Node, quiet...); {
	case w.Clean < in.Resume:
		return in.leave(m, times)
	case flag != "":
		return in.leave(m, times+"; not resumed while its state has "+flag)
	case in.Node.Silent:
		return in.leave(m, times+"; not resumed while it does not respond")
	}
	return in.decision(Resume, times+" after "+w.Reason, m)
}

// unclean returns why a drain's causes are not known to be over, or "" if they are.
func (in Facts) unclean(w Written) string {
	never := w.unverifiable()
	switch {
	case in.Resume == 0:
		never = "drain.resume is off"
	case !w.Epoch.Same(in.Epoch):
		never = "the driver was reloaded since, or no one knows: somebody has had a hand in it"
	case in.Partial:
		never = "not all records of this node could be read"
	case in.Memory.Resetting.Equal(w.Wall):
		never = "the health check that began to reset its GPU has died"
	case in.Lost:
		never = "a damaged record of this node may have held another cause"
	}
	if never != "" {
		return "drained for " + w.Reason + "; " + never
	}
	return unclean(w.Causes, in.Cards)
}

// write settles no exit: the next health check sees whether the reason was set.
func (in Facts) write(open []Exit, x Exit, why string) Decision {
	w := Written{Reason: x.Reason, Wall: in.Now.UTC().Round(0), At: x.At, Conf: x.Conf, Epoch: x.Epoch}.with(open)
	if more := w.Reason + in.hint(w, x); Ours(more) { // else it is too long
		w.Reason = more
	}
	m := in.Memory
	m.Written = &w
	d := in.decision(Write, why, m)
	d.Reason = w.Reason
	return d
}

// hint returns what a reason for the hardware of one GPU adds if the node's others are good, by all that is on record.
func (in Facts) hint(w Written, x Exit) string {
	last := in.Last
	if last == nil || last.Stopped || len(last.Rest) > 0 || !last.Epoch.Same(w.Epoch) ||
		in.Now.Sub(last.Wall).Abs() > seldom || len(w.Causes) == 0 ||
		w.Causes[0].GPU == "" || w.Causes[0].Index == nil || x.Wider {
		return ""
	}
	id, number := w.Causes[0].GPU, *w.Causes[0].Index
	numbers := map[int]bool{number: true}
	for _, c := range last.Cards {
		numbers[c.Index] = true
		if (c.Index == number) != (c.Device.ID == id) {
			return ""
		}
	}
	for i := range len(numbers) { // a number that is missing is a GPU that Slurm has and the driver has not
		if !numbers[i] {
			return ""
		}
	}
	soft := func(c Cause) bool { return c.GPU != id || Verifiable(c.Code) }
	another := func(f record.Finding) bool { return elsewhere(f, id) }
	stands := func(f record.StandingFault) bool { return f.GPU != id }
	if len(numbers) == 1 || slices.ContainsFunc(w.Causes, soft) || slices.ContainsFunc(last.Findings, another) ||
		slices.ContainsFunc(in.Standing.Faults, stands) {
		return ""
	}
	return fmt.Sprintf("; %d of %d good: bookend quarantine --resume %d", len(numbers)-1, len(numbers), number)
}

// elsewhere reports whether a finding is a problem of anything but this GPU.
func elsewhere(f record.Finding, id gpu.ID) bool {
	entry, _ := catalog.Lookup(f.Code)
	return f.GPU != id && (entry.Severity != catalog.Note || f.Code == catalog.Unjudged)
}

func (in Facts) leave(m Remembered, why string) Decision { return in.decision(Leave, why, m) }

func (in Facts) decision(act Act, why string, m Remembered) Decision {
	why = string(safetext.Clean(why, maxWhy))
	m.Last = &Said{in.Now.UTC().Round(0), act, why}
	return Decision{Act: act, Why: why, Memory: m}
}

// AtHook decides for a hook that is about to drain: Slurm's own text is not there yet. With Leave, nothing is stored.
func AtHook(in Facts, own Exit) Decision {
	n := in.Node
	flag := other(n)
	switch {
	case own.Renews && in.stands() && flag == "": // no health check can tell any more that it is over
		own.Causes = append(slices.Clone(in.Memory.Written.Causes), own.Causes...)
		return in.write([]Exit{own}, own, own.Reason)
	case own.Renews:
		return in.leave(in.Memory, otherReason(n))
	case in.stands():
		w, m := in.Memory.Written.with([]Exit{own}), in.Memory
		m.Written = &w
		return in.decision(Add, w.Reason, m)
	case flag != "":
		return in.leave(in.Memory, "the node's state has "+flag)
	case own.Phase == slurm.HealthCheck && !n.Drained() && !n.Idle():
		return in.leave(in.Memory, "Slurm does not have the node as idle: a job's end decides")
	case n.Drained():
		return in.leave(in.Memory, otherReason(n))
	case n.Reason != "" && !Ours(n.Reason) && n.Reason != slurm.PrologError && n.Reason != slurm.EpilogError:
		// a reason without a drain is left over from an earlier drain, or a person's remark
		return in.leave(in.Memory, fmt.Sprintf("the node is not drained, and has %q all the same", n.Reason))
	}
	return in.write([]Exit{own}, own, own.Reason)
}

// Facts returns what a program that is no hook knows of the node's drain.
func (m Remembered) Facts(n slurm.Node, now time.Time, epoch gpu.Epoch) Facts {
	return Facts{Memory: m, Node: n, Now: now, Epoch: epoch}
}

// Renew decides about a drain of ours after a finding that no health check can tell to be over.
func (in Facts) Renew(f record.Finding, at time.Duration, conf string) Decision {
	own := Exit{Renews: true, Conf: conf, Epoch: in.Epoch, Reason: string(Compose(f, 0, slurm.HealthCheck)),
		Causes: []Cause{{f.Code, f.GPU, f.Index}}}
	own.At = at
	return AtHook(in, own)
}

func (in Facts) Renews(f record.Finding, at time.Duration, conf string) func(slurm.Node) bool {
	return func(n slurm.Node) bool {
		in.Node = n
		return in.Renew(f, at, conf).Act == Write
	}
}

// Verifiable reports whether a health check can tell that a finding is gone: only one about memory on a GPU. A GPU's
// condition, as the driver reports it, ends with a repair or a reset; the admin who does that resumes the node.
func Verifiable(c catalog.Code) bool { return c.Traits().Memory != "" }

// unverifiable returns why no health check can ever find all of a drain's causes gone, or "" if one can.
func (w Written) unverifiable() string {
	for _, c := range w.Causes {
		if !Verifiable(c.Code) || c.GPU == "" {
			return fmt.Sprintf("no health check can tell that %s is over", c.Code)
		}
	}
	if len(w.Causes) == 0 || !w.Epoch.Same(w.Epoch) {
		return "no health check can tell that it is over"
	}
	return ""
}

// unclean returns why a drain's causes are not known to be gone, or which other GPU of jobs is dirty without a record.
func unclean(causes []Cause, cards map[gpu.ID]record.GPUSeen) string {
	for _, c := range causes {
		name := string(c.GPU)
		if c.Index != nil { // as an admin knows it
			name = fmt.Sprint(*c.Index)
		}
		seen := cards[c.GPU]
		// memory that no list shows
		if seen.Clean && seen.ByList && (c.Code == catalog.Residue || c.Code == catalog.Dirty) {
			seen = record.GPUSeen{Why: "its memory cannot be judged"}
		}
		if !seen.Clean {
			return fmt.Sprintf("GPU %s is not known to be clean: %s", name, cmp.Or(seen.Why, "it was not looked at"))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(cards)) {
		if seen := cards[id]; seen.Dirty && seen.Given {
			return fmt.Sprintf("the drain's cause is gone, but GPU %s is not clean: %s", id, seen.Why)
		}
	}
	return ""
}

// quiet are the flags of a node in normal operation; any other means an admin, a power plan or a fault.
var quiet = slices.Concat([]string{"ALLOCATED", "MIXED"}, slurm.IdleFlags)

// busy are flags with which no node is resumed: a job's end may still drain it, or it is in maintenance.
var busy = []string{"COMPLETING", "MAINT"}

// beyond returns the first flag of the state that is not one of these, or "".
func beyond(n slurm.Node, flags ...string) string {
	i := slices.IndexFunc(n.Flags, func(f string) bool { return !slices.Contains(flags, f) })
	if i < 0 {
		return ""
	}
	return n.Flags[i]
}

// other returns a flag because of which the node's reason must be left alone, or "".
func other(n slurm.Node) string { return beyond(n, slices.Concat(quiet, busy)...) }

func otherReason(n slurm.Node) string {
	switch {
	case !n.Drained():
		return "the node is not drained any more"
	case n.Reason == "":
		return "the node is drained without a reason"
	}
	return fmt.Sprintf("the node has %q, which Bookend has not set", n.Reason)
}

// Limits for the controller's clock, in whole seconds, against this node's: how much earlier, and how much later, a
// drain may be stamped than the hook's verdict that it follows. In between are the hook's outputs and slurmd's message,
// a second or two; with more time, a drain by another script, on a node resumed meanwhile, could be taken for ours.
const (
	early = 2 * time.Second
	late  = 20 * time.Second
)

// follows reports whether what Slurm stamped with at can be the consequence of what happened here at wall.
func follows(at, wall time.Time) bool {
	after := at.Sub(wall)
	return !at.IsZero() && !wall.IsZero() && after >= -early && after <= late
}
