package node

import (
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/procscan"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// observer looks at a node's GPUs for one judge.Observe, and keeps what the answers contain besides samples.
type observer struct {
	a      *Access
	c      judge.Case // as known before
	ahead  *ahead     // the first watch, if it was started ahead
	looks  int
	health []gpu.Health
	brief  bool // only part of the GPUs' condition was asked for
	faults []record.Finding
}

func (e *observer) seen(c judge.Case) judge.Case {
	c.Seen.Looks += e.looks
	if e.health != nil {
		c.Seen.Health = e.health
	}
	c.Seen.Brief = c.Seen.Brief || e.brief
	c.Faults = slices.Concat(c.Faults, e.faults)
	return c
}

func (e *observer) take(answer Answer) {
	e.looks += len(answer.Snapshots)
	e.faults = append(e.faults, e.a.Troubles(answer, "")...)
}

// Watch asks the backend to sample GPUs as long as the rule says, or the hook's time allows.
func (e *observer) Watch(cards []record.Assigned, rule gpu.WatchRule) []gpu.Snapshot {
	answer, asked := e.ahead.of(cards, rule)
	e.ahead = nil
	switch {
	case asked:
	case answer.Abandoned != nil || answer.Unasked:
		answer.Snapshots = nil
	case len(cards) == 0:
		return nil
	default:
		request := watching(e.a, e.c, cards, rule, e.c.Seen.Looks+e.looks == 0)
		e.brief = e.brief || request.Brief
		answer = e.a.ask(request, Params{})
	}
	e.take(answer)
	if answer.Health != nil && len(answer.Snapshots) > 0 {
		e.health = answer.Health
	}
	return answer.Snapshots
}

// watching returns the request. The first one of an end also asks for the GPUs' condition.
func watching(a *Access, c judge.Case, cards []record.Assigned, rule gpu.WatchRule, first bool) protocol.Request {
	timeout := a.Left(a.Times.Driver)
	r := protocol.Request{Op: protocol.Watch, DeadlineMillis: timeout.Milliseconds(), Watch: rule}.Within(timeout)
	for _, card := range cards {
		r.Devices = append(r.Devices, card.Device)
	}
	if first && c.Phase != slurm.Prolog {
		r.Health, r.Brief = true, brief(a, c.Job.Exit)
	}
	return r
}

// brief reports that the GPUs' slow facts can be skipped: the job ended well, and a health check read them recently.
func brief(a *Access, exit slurm.ExitStatus) bool {
	if a.Store == nil || !exit.Known || exit.Raw != 0 || exit.Derived != 0 {
		return false
	}
	at, now := state.LastExamined.Peek(a.Store), a.Env.Clock.Boot()
	return at > 0 && at <= now && now-at < 10*time.Minute
}

func (e *observer) Processes(pids []int) map[int]record.Process {
	shown, faults := e.a.Processes(pids)
	e.faults = append(e.faults, faults...)
	return shown
}

// Holders searches /proc in a child, and leaves time for a watch of that length. It first waits until this hook's own
// backend, which has the GPUs open, has ended.
func (e *observer) Holders(then time.Duration) *record.Scan {
	_, unrecorded := e.a.Ended()
	timeout := e.a.Deadline.Left(time.Duration(e.a.Times.Scan), e.a.Reserve()+then+protocol.Reserve)
	found, faults, err := readProc(e.a, procscan.HoldersOp, timeout, procscan.Reader.Holders)
	if err != nil {
		found.Scan = record.Scan{Partial: err.Error()}
	}
	found.Scan.Holdings = slices.DeleteFunc(found.Scan.Holdings, isBackend(e.a.Config.Backend))
	e.faults = slices.Concat(e.faults, unrecorded, faults)
	return &found.Scan
}

// Quiet keeps probes off the GPUs while they are judged: the memory of a probe must never look like a leak.
func (e *observer) Quiet(cards []record.Assigned) (busy map[gpu.ID]string, release func()) {
	const longest = 1500 * time.Millisecond // a probe takes 160-240 ms a GPU, in parallel on four 1.2 s (measured)
	return e.a.Store.Turns.Quiet(record.IDs(cards), e.a.Deadline.Left(longest, e.a.Reserve()))
}
