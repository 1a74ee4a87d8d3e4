package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// life is a node whose hooks and checks follow one another.
type life struct {
	c        Check
	log      []gpu.Xid
	checked  *gpu.KernelMark // the end of the log at the last check
	run      *record.Run     // of the job that runs
	kept     record.Standing
	recovery string // what the driver says of GPU 0, empty for nothing
	lost     bool
}

func (l *life) seq() uint64 { return uint64(len(l.log)) + 10 }

func (l *life) write(code int, recovery string) string {
	bus := l.c.Seen.Cards[0].Device.BusID
	l.log = append(l.log, gpu.Xid{KernelMark: gpu.KernelMark{Seq: l.seq() + 1}, BusID: bus, Code: code, Recovery: recovery})
	return ""
}

// reads is the kernel's log as a hook reads it.
func (l *life) reads(since *gpu.KernelMark) *gpu.KernelLog {
	log := &gpu.KernelLog{Last: gpu.KernelMark{Seq: l.seq()}, Epoch: l.c.Seen.Epoch}
	for _, x := range l.log {
		if since != nil && x.Seq > since.Seq {
			log.Xids = append(log.Xids, x)
		} else if x.Seq > l.kept.Mark.Seq {
			log.Before = append(log.Before, x)
		}
	}
	return log
}

// hook is the case of a hook on GPU 0, or on all for a check.
func (l *life) hook(phase slurm.Context, since *gpu.KernelMark) Check {
	k := l.c
	k.Phase, k.Past.Standing, k.Seen.Kernel, k.Node = phase, l.kept, l.reads(since), &Node{}
	if phase != slurm.HealthCheck {
		k.Job, k.Seen.Cards = slurm.Job{ID: 8, Node: "n1", Context: phase}, k.Seen.Cards[:1]
	}
	if l.run != nil {
		k.Node.Runs = []record.Run{*l.run}
	}
	if l.recovery != "" && phase != slurm.Prolog {
		k.Seen.Health = []gpu.Health{{Device: k.Seen.Cards[0].Device.ID,
			Facts: []gpu.Fact{{Code: gpu.RecoveryAction, Value: strings.TrimPrefix(l.recovery, "silent")}}}}
	}
	if l.lost {
		id := k.Seen.Cards[0].Device.ID
		k.Seen.Side.Snapshot.Faults = []gpu.Fault{{Code: gpu.FaultLost, Device: id}}
		if phase != slurm.HealthCheck { // which looks once
			k.Seen.Side.Curves = map[gpu.ID]record.Curve{id: {State: record.Unreadable, Steady: true}}
		}
	}
	return k
}

func (l *life) ends(step string, k Check, j Judgement, drained bool) string {
	l.kept = k.StandingAfter(l.kept, j, drained)
	for i, f := range j.Found {
		if f.Code == catalog.XidFatal {
			step += fmt.Sprintf(" %d", f.Xid)
			if f.Earlier {
				step += " before"
			}
			step += " " + string(j.Of(i).Action)
		}
	}
	if j.Held != "" {
		step += " (held)"
	}
	return step
}

func (l *life) does(step string) string {
	name, rest, _ := strings.Cut(step, " ")
	switch name {
	case "start":
		k := l.hook(slurm.Prolog, nil)
		l.run = &record.Run{Job: k.Job, Epoch: k.Seen.Epoch, Devices: k.Seen.Cards, Key: "w",
			Start: &record.End{At: time.Second, Kernel: &gpu.KernelLog{Last: k.Seen.Kernel.Last}}}
		j := Judge(k.Case)
		return l.ends(step, k, j, j.Exit != 0)
	case "end":
		k := l.hook(slurm.Epilog, Mark(*l.run, slurm.Job{ID: 8}))
		k.Past.Run, l.run = *l.run, nil
		j := Judge(k.Case)
		return l.ends(step, k, j, j.Exit != 0)
	case "check":
		k := l.hook(slurm.HealthCheck, l.checked)
		k.Last = &record.Check{Boot: k.Seen.Epoch.Boot, Epoch: k.Seen.Epoch, Kernel: l.checked}
		l.checked = &k.Seen.Kernel.Last
		j := JudgeCheck(k)
		return l.ends(step, k, j, j.Action == config.Drain)
	case "reload":
		l.c.Seen.Epoch.Module += "x"
	case "reboot":
		l.c.Seen.Epoch.Boot, l.log, l.checked = "c", nil, nil
	case "says":
		l.recovery = rest
	case "lost":
		l.lost = true
	case "over":
		return l.write(154, "none")
	default:
		code := 0
		if _, err := fmt.Sscan(name, &code); err != nil {
			panic(step)
		}
		return l.write(code, "")
	}
	return ""
}

// What hooks and health checks find of fatal errors (the numbers), and what follows in enforce mode: "before" are those
// that are not of the job's time, or that an earlier hook or check has seen. "says" is the driver's recovery action.
func TestStandingFaults(t *testing.T) {
	for given, want := range map[string]string{
		"start, end, 79, says reset, start, end":  "start; end; start 79 before warn; end 79 before drain",
		"start, 48, says reset, end, start, end":  "start; end 48 drain; start 48 before warn; end 48 before warn",
		"start, end, 48, says silent, start, end": "start; end; start 48 before warn; end 48 before warn",
		"start, end, 48, lost, start, end":        "start; end; start 48 before warn; end 48 before warn",
		"start, end, 79, says silent, start, end": "start; end; start 79 before warn; end 79 before drain",

		// what ends it: the driver's word, now or in the log, a reload, a reboot
		"start, end, 79, says none, start, end, start":                 "start; end; start 79 before warn; end; start",
		"start, end, 79, over, says silent, start, end":                "start; end; start; end",
		"start, end, 79, start, over, says reset, end, start":          "start; end; start 79 before warn; end; start",
		"start, end, 79, over, 79, says reset, start, end":             "start; end; start 79 before warn; end 79 before drain",
		"start, end, 79, reload, says reset, start, end":               "start; end; start; end",
		"start, end, 79, start, reload, says reset, end":               "start; end; start 79 before warn; end",
		"check, 79, check, reboot, says reset, check, check":           "check; check 79 warn; check; check",
		"79, start, says reset, end, check, check":                     "start; end; check; check", // from before the first hook
		"start, end, 74, 13, 43, says reset, start, end, check, check": "start; end; start; end; check; check",

		// drained once for an entry; then an admin has decided, until a new one
		"check, 48, says reset, check, check, check, check": "check; check 48 warn; check 48 before drain; " +
			"check 48 before warn; check 48 before warn",
		"check, 48, says reset, check, check, start, 48, end, start, end": "check; check 48 warn; check 48 before drain; " +
			"start 48 before warn; end 48 drain; start 48 before warn; end 48 before warn",
		"check, 48, says reset, check, check, 48, check, check": "check; check 48 warn; check 48 before drain; " +
			"check 48 warn; check 48 before drain",

		// a check drains for what it or a hook has seen before, and not while a job is there
		"check, 48, says reset, check, 48, check":        "check; check 48 warn; check 48 before drain",
		"start, 48, says silent, end, says reset, check": "start; end 48 drain; check 48 before warn",
		"check, start, 48, says reset, check, check, end": "check; start; check 48 warn; " +
			"check 48 before drain (held); end 48 drain",
		"check, 48, says none, check, check":         "check; check 48 warn; check",
		"check, 48, says silent, check, check":       "check; check 48 warn; check 48 before warn",
		"check, 48, lost, check, check":              "check; check 48 warn; check 48 before warn",
		"check, 79, says recover_imex, check, check": "check; check 79 warn; check 79 before drain",
		"check, 48, says recover_imex, check, check": "check; check 48 warn; check 48 before warn",
	} {
		l := life{}
		l.c, _ = checkOf()
		l.c.Config.Mode = config.Enforce
		var said []string
		for step := range strings.SplitSeq(given, ", ") {
			if text := l.does(step); text != "" {
				said = append(said, text)
			}
		}
		must.Be(t, given, strings.Join(said, "; "), want)
	}
}

// A GPU that takes the place of another inherits none of its errors; of a GPU that this hook does not look at the errors
// are kept for those that do.
func TestStandingFaultIsOfItsGPU(t *testing.T) {
	l := life{recovery: "reset"}
	l.c, _ = checkOf()
	l.c.Config.Mode = config.Enforce
	l.does("start")
	l.write(79, "")
	l.log[0].BusID = l.c.Seen.Cards[1].Device.BusID
	must.Be(t, "another GPU's", l.does("end"), "end")
	must.Be(t, "it is kept", slices.IndexFunc(l.kept.Faults, func(f record.StandingFault) bool { return f.Xid.Code == 79 }), 0)
	l.c.Seen.Cards[0], l.c.Seen.Cards[1] = l.c.Seen.Cards[1], l.c.Seen.Cards[0]
	must.Be(t, "of the GPU itself", l.does("start"), "start 79 before warn")
	l.c.Seen.Cards[0].Device.ID = "GPU-new"
	must.Be(t, "of its successor", l.does("end"), "end")
}

// While a fatal error stands without a doubt, no drain of the node ends by itself, whatever it was for.
func TestStandingFaultKeepsADrain(t *testing.T) {
	c, cards := checkOf()
	for doubt, clean := range map[string]bool{"": false, "x": true} {
		f := record.Finding{Code: catalog.XidFatal, Earlier: true, GPU: cards[0].Device.ID}
		if doubt != "" {
			f.Doubts = []string{doubt}
		}
		seen := c.DrainSeen(Judgement{Found: []record.Finding{f}})[cards[0].Device.ID]
		must.Be(t, "clean, doubt "+doubt, seen.Clean, clean)
		must.Be(t, "dirty, doubt "+doubt, seen.Dirty, !clean)
	}
}
