package observe

import (
	"slices"
	"time"

	"bookend/internal/backend"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// eyes look at a node's GPUs for one judge.Observe, and keep what the answers contain besides samples.
type eyes struct {
	a      *node.Access
	c      judge.Case // as known before
	ahead  *ahead     // the first watch, if it was started ahead
	looks  int
	health []gpu.Health
	brief  bool // only part of the GPUs' condition was asked for
	faults []record.Finding
}

// seen returns the case with what the eyes kept.
func (e *eyes) seen(c judge.Case) judge.Case {
	c.Seen.Looks += e.looks
	if e.health != nil {
		c.Seen.Health = e.health
	}
	c.Seen.Brief = c.Seen.Brief || e.brief
	c.Faults = slices.Concat(c.Faults, e.faults)
	return c
}

func (e *eyes) take(answer backend.Answer) {
	e.looks += len(answer.Snapshots)
	e.faults = append(e.faults, e.a.Troubles(answer, "")...)
}

// Watch asks the backend to sample GPUs as long as the rule says, or the hook's time allows.
func (e *eyes) Watch(cards []record.Assigned, rule gpu.WatchRule) []gpu.Snapshot {
	answer, asked := e.ahead.of(cards, rule)
	e.ahead = nil
	if !asked {
		asks := answer.Abandoned == nil && !answer.Unasked
		if len(cards) == 0 && asks {
			return nil
		}
		answer.Snapshots = nil
		if asks {
			request := watching(e.a, e.c, cards, rule, e.c.Seen.Looks+e.looks == 0)
			e.brief = e.brief || request.Brief
			answer = e.a.Ask(request, backend.Params{})
		}
	}
	e.take(answer)
	if answer.Health != nil && len(answer.Snapshots) > 0 {
		e.health = answer.Health
	}
	return answer.Snapshots
}

// watching returns the request. The first one of an end also asks for the GPUs' condition.
func watching(
	a *node.Access, c judge.Case, cards []record.Assigned, rule gpu.WatchRule, first bool,
) protocol.Request {
	timeout := a.Left(a.Times.Driver)
	r := node.Within(protocol.Request{Op: protocol.Watch, DeadlineMillis: timeout.Milliseconds(), Watch: rule}, timeout)
	for _, card := range cards {
		r.Devices = append(r.Devices, card.Device)
	}
	if first && c.Phase != slurm.Prolog {
		r.Health, r.Brief = true, brief(a, c.Job.Exit)
	}
	return fitting(r)
}

// brief reports that the GPUs' slow facts can be skipped: the job ended well, and a health check read them recently.
func brief(a *node.Access, exit slurm.ExitStatus) bool {
	const lately = 10 * time.Minute
	if a.Store == nil || !exit.Known || exit.Raw != 0 || exit.Derived != 0 {
		return false
	}
	at, now := state.LastExamined.Peek(a.Store), a.Env.Clock.Boot()
	return at > 0 && at <= now && now-at < lately
}

// fitting leaves out what a full pipe has no room for: the backend then watches longer; the result is judged here.
func fitting(r protocol.Request) protocol.Request {
	if _, err := r.Line(); err != nil {
		r.Watch.Expect = nil
	}
	return r
}

func (e *eyes) Processes(pids []int) map[int]record.Process {
	shown, faults := e.a.Processes(pids)
	e.faults = append(e.faults, faults...)
	return shown
}

func (e *eyes) Holders(then time.Duration) *record.Scan {
	scan, faults := e.a.Holders(then)
	e.faults = append(e.faults, faults...)
	return scan
}

// Quiet keeps probes off the GPUs while they are judged: the memory of a probe must never look like a leak.
func (e *eyes) Quiet(cards []record.Assigned) (busy map[gpu.ID]string, release func()) {
	const longest = 1500 * time.Millisecond // a probe takes 160-240 ms a GPU, in parallel on four 1.2 s (measured)
	return e.a.Store.Turns.Quiet(ids(cards), e.a.Deadline.Left(longest, e.a.Reserve()))
}
