package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/slurm"
	"bookend/test/faultinject"
	"bookend/test/rig"
)

//go:embed mutants.yaml
var mutantTable []byte

// plantings are the mistakes in what the hooks keep.
var plantings = faultinject.Mutants(mutantTable)

// together stands for two ends at once, among the parts of mistakes.
const together = "two ends at once"

// faultPlan tries every fault on the hooks as they are, then plants one mistake after another.
func faultPlan(flags *flag.FlagSet, args []string) (right bool) {
	only := flags.String("only", "", "try the faults and mistakes alone whose name contains `TEXT`")
	rig.Try(flags.Parse(args))
	hooks, t := buildHooks(faultinject.Mutant{}), newTally()
	faults(*only, 3*runtime.NumCPU(), hooks, t) // most of a hook's time is waiting
	if *only == "" {
		twoEnds(hooks, t)
	}
	t.print(os.Stdout)
	return len(t.wrong) == 0 && faultinject.EachMutant(plantings, *only, notice)
}

func buildHooks(m faultinject.Mutant) (dir string) {
	return programs(m, "bookend-prolog", "bookend-epilog", rig.Backend)
}

// notice returns what notices a planted mistake, "" for nothing.
func notice(m faultinject.Mutant) (by string) {
	hooks, t := buildHooks(m), newTally()
	err := rig.Attempt(func() {
		if m.Part == together {
			twoEnds(hooks, t)
		} else {
			faults(m.Part, 2, hooks, t)
		}
	})
	if errors.Is(err, errHistory) { // several nodes may have had it
		_, by, _ = strings.Cut(err.Error(), errHistory.Error())
		by, _, _ = strings.Cut(by, "\n")
		return by
	}
	rig.Try(err)
	return t.harm()
}

// reference is a step as it goes without a fault.
type reference struct {
	step
	was, is look
	kept    string // the directory of a copy of what was kept before
	points  []point
	leaked  time.Duration // the node's
}

// newStand returns a node that has played the history once, and panics if that does not go as it should.
func newStand(hooks string) *node {
	n := newNode(hooks, "")
	n.refer(prelude)
	for _, st := range history {
		n.steps = append(n.steps, n.refer(st))
	}
	return n
}

// refer plays a step without a fault and notes all its calls.
func (n *node) refer(st step) reference {
	n.begin(st)
	r, t := reference{step: st, leaked: n.leaked, was: n.look(), kept: newDir("kept")}, newTracer(n.dir)
	copyKept(n.dir, r.kept)
	out := n.call(st, filters(""), func(_ int, c faultinject.Call) faultinject.Answer {
		if p, ok := t.point(c); ok {
			r.points = append(r.points, p)
		}
		return faultinject.Answer{}
	})
	r.is = n.look()
	found := findings(r.is.runs[st.key()].last(st.hook))
	problems := slices.Concat(r.is.damage, r.is.temporary(), disorder(r.points))
	if r.damaged && !r.is.aside(r.was.files[st.file()]) {
		problems = append(problems, "the damaged record is not set aside")
	}
	if out.exit != st.exit || out.output != "" || found != st.finds || len(problems) > 0 {
		panic(fmt.Errorf("%w%s: exit %d %q, found %q, not %d, %q; %s", errHistory,
			st.name, out.exit, out.output, found, st.exit, st.finds, strings.Join(problems, "; ")))
	}
	return r
}

// errHistory is a history that does not go, without any fault, as its table says.
var errHistory = errors.New("wrong history: ")

// disorder says if a record on disk got its name before it was safe there: it is opened, synced and renamed, then its
// directory is synced.
func disorder(points []point) (problems []string) {
	order := ""
	for _, p := range points {
		if !strings.HasPrefix(p.class, "var/history/"+nodeName) || p.role != "disk" {
			continue
		}
		switch {
		case p.call == "openat" && p.write:
			order += "o"
		case p.call == "fsync":
			order += "s"
		case p.call == "renameat":
			order += "r"
		}
	}
	renamed := strings.Count(order, "r")
	if len(regexp.MustCompile("os+r").FindAllString(order, -1)) < renamed {
		problems = append(problems, "a record on disk got its name before it was synced")
	}
	if strings.Count(order, "rs") < renamed {
		problems = append(problems, "a directory on disk was not synced after a record in it got its name")
	}
	return problems
}

// trial is one fault at one call of a step.
type trial struct {
	step int
	point
	fault
}

func (t trial) String() string {
	return history[t.step].name + ": " + t.point.String() + ": " + t.fault.name
}

// alike are points that differ in their number alone, or in which of many old runs they are about.
type alike struct {
	hook slurm.Context
	point
}

func (r reference) kind(p point) alike {
	p.nth, p.class = 0, strings.ReplaceAll(p.class, fmt.Sprint(r.run.id), "OWN")
	return alike{r.hook, p}
}

// trials lists those of every step but the last, which shows what the one before it left. All that fits is tried at the
// first of the calls that are alike, the likeliest at some more.
func trials(steps []reference, only string, count *tally) (all []trial) {
	before := map[alike]bool{} // in an earlier step
	for i, r := range steps[:len(steps)-1] {
		count.count("calls of the hooks touch what they keep", len(r.points))
		of, met := map[alike]int{}, map[alike]int{}
		for _, p := range r.points {
			of[r.kind(p)]++
		}
		for _, p := range r.points {
			k := r.kind(p)
			met[k]++
			for _, f := range worth(p, met[k], of[k], before[k]) {
				if t := (trial{i, p, f}); strings.Contains(t.String(), only) {
					all = append(all, t)
				}
			}
		}
		for k := range of {
			before[k] = true
		}
	}
	return all
}

// worth returns the faults to try at the n-th of some points that are alike: at the first ones and the last one.
func worth(p point, n, of int, before bool) []fault {
	const sampled = 3
	all := p.faults()
	switch {
	case n > sampled && n != of:
		return nil
	case n == 1 && !before:
		return all
	case p.call == "openat" && p.write, slices.Contains(changing, p.call):
		// a kill between two changes leaves the same, wherever it is
		return slices.DeleteFunc(all, func(f fault) bool { return f.name != all[0].name && !f.kills() })
	case n == 1:
		return all[:1]
	}
	return nil
}

// attempt is what came of a hook.
type attempt struct {
	ending
	met    bool // the call of the fault
	killed bool
	is     look
}

// try runs a trial's step from where the history has it.
func (n *node) try(t trial) (a attempt) {
	r := n.steps[t.step]
	copyKept(r.kept, n.dir)
	n.leaked, r.arrange = r.leaked, nil // that was done before the history's hook
	n.begin(r.step)
	tr := newTracer(n.dir)
	// Only those calls that matter: each one that is watched takes time.
	a.ending = n.call(r.step, filters(t.call), func(hook int, c faultinject.Call) faultinject.Answer {
		if p, ok := tr.point(c); !ok || a.met || t.point != p {
			return faultinject.Answer{}
		}
		a.met, a.killed = true, t.kills()
		if t.group {
			_ = unix.Kill(-hook, unix.SIGKILL)
		}
		return t.answer
	})
	a.is = n.look()
	return a
}

// follow runs the step after the trial's, without a fault, long after it: an end sweeps what was interrupted.
func (n *node) follow(t trial, left []string) attempt {
	long := time.Now().Add(-48 * time.Hour)
	for _, name := range left {
		rig.Try(os.Chtimes(n.in(name), long, long))
	}
	return attempt{ending: n.play(n.steps[t.step+1].step), is: n.look()}
}

// faults tries every fault, on stands side by side.
func faults(only string, workers int, hooks string, t *tally) {
	stands, made := make([]*node, workers), -1
	each(stands, func() (int, bool) {
		made++
		return made, made < workers
	}, func(_ *node, i int) { stands[i] = newStand(hooks) })
	all := trials(stands[0].steps, only, t)
	t.count("faults were tried", len(all))
	each(stands, func() (tr trial, more bool) {
		if more = len(all) > 0; more {
			tr, all = all[0], all[1:]
		}
		return tr, more
	}, func(n *node, tr trial) {
		a := n.try(tr)
		v := judge(n.steps[tr.step], tr, a)
		v.next(n.steps[tr.step], n.steps[tr.step+1], a, n.follow(tr, a.is.temporary()))
		t.count(v.class, 1)
		t.fail(fmt.Sprintf("--only %q", tr.String()), v.wrong...)
	})
}

// twoEnds runs a whole epilog between another one's reading of the job's record and its writing: both ends are on
// record, or the log says which is not.
func twoEnds(hooks string, t *tally) {
	n := newNode(hooks, "probe: {at: never}\n") // else the second waits for the first
	end := step{name: together, hook: slurm.Epilog, run: first, world: quiet}
	n.play(step{name: end.name, hook: slurm.Prolog, run: first, world: quiet})
	tr, met := newTracer(n.dir), false
	var inner error
	n.call(end, filters("renameat"), func(_ int, c faultinject.Call) faultinject.Answer {
		p, ok := tr.point(c)
		if ok && !met && p.role == "hook" && strings.HasPrefix(p.class, "run/state/"+nodeName+"/100/") {
			met = true
			inner = rig.Attempt(func() { n.play(end) })
		}
		return faultinject.Answer{}
	})
	rig.Try(inner)
	is := n.look()
	ends, said := len(is.runs[end.key()].run.Ends), strings.Count(is.files[logFile], "BKD-ST-LOCK:")
	if !met || ends+said < 2 || len(is.damage) > 0 {
		t.fail(end.name, fmt.Sprintf("%s: two epilogs at once: %d ends on record, %d said to be missing; %q",
			lost, ends, said, is.damage))
	}
}
