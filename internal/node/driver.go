package node

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/nodefiles"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/state"
)

// Answers reports whether no child is stuck in the driver: while one lives, no other is started.
func (a *Access) Answers() (ok bool, faults []record.Finding) {
	stuck, err := a.Store.Stuck(nil, a.alive)
	faults = Fault(err)
	if stuck != nil {
		faults = append(faults, record.Saw(catalog.Stuck, stuck.Words(a.at(stuck.Since)), "the driver answers"))
	}
	return stuck == nil, faults
}

// abandoned records a child that could not be killed, nil for none, so that no other is started while it lives. Hooks
// that wait for this one's answer then go on: the record keeps them from asking.
func (a *Access) abandoned(stuck *state.Stuck) []record.Finding {
	if stuck == nil {
		return nil
	}
	stuck.Since = a.Env.Clock.Boot()
	err := state.StuckChildren.Add(a.Store, *stuck, a.alive)
	if next := a.next.Load(); next != nil && err == nil {
		(*next)(false)
	}
	return Fault(err)
}

// ask asks the backends of the request's vendors, one after the other. With several, p.OnAnswer is not called.
func (a *Access) ask(r protocol.Request, p Params) Answer {
	var earlier []record.Finding
	if a.ending != nil {
		_, earlier = a.Ended()
		r = r.Within(a.Left(a.Times.Driver)) // less than before the wait
	}
	answer := Answer{Troubles: a.last.Troubles}
	if a.last.Abandoned == nil {
		answer = a.askInTurn(r, p)
	}
	answer.earlier = earlier
	return answer
}

func (a *Access) askInTurn(r protocol.Request, p Params) Answer {
	began := a.Env.Clock.Boot()
	next, refused := a.meet(state.Library)
	if refused != nil {
		return *refused
	}
	p.Answered = func() { next(true) }
	answer := a.askAll(r.Within(r.Deadline()+began-a.Env.Clock.Boot()), p)
	if answer.Abandoned == nil { // else the record of the child comes first
		next(false)
	}
	return answer
}

func (a *Access) askAll(r protocol.Request, p Params) Answer {
	var names []string
	if r.All {
		for _, v := range nodefiles.Present(a.Config.Paths.Sys) {
			names = append(names, v.Name)
		}
	}
	devices := map[string][]gpu.Device{}
	for _, device := range r.Devices {
		name := gpu.VendorOf(device).Name
		devices[name] = append(devices[name], device)
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var answers []Answer
	r.DeadlineMillis /= int64(max(1, len(names)))
	if len(names) > 1 {
		p.OnAnswer = nil
	}
	for _, name := range names {
		r.Devices = devices[name]
		answers = append(answers, a.askVendor(name, r, p))
	}
	return joined(answers...)
}

func (a *Access) askVendor(name string, r protocol.Request, p Params) Answer {
	p.Root = a.Env.EUID == 0
	p.Path, r.Options = a.Config.BackendOf(name, r.Op == protocol.Probe)
	return Ask(p, r)
}

// Record samples GPUs of one vendor until stop is closed, and passes each sample to onLook from another goroutine.
func (a *Access) Record(vendor string, devices []gpu.Device, stop <-chan struct{}, onLook func(gpu.Snapshot)) Answer {
	limit := time.Duration(a.Times.Driver)
	return a.askVendor(vendor, protocol.Request{
		Op: protocol.Record, Devices: devices, DeadlineMillis: limit.Milliseconds(),
		Watch: gpu.WatchRule{Every: time.Duration(a.Config.Record.Every)},
	}, Params{Stop: stop, Grace: limit, OnLook: onLook})
}

// KernelNews returns a function for errors of GPUs that have been added to the kernel log since its last call.
func (a *Access) KernelNews() func() []gpu.Xid { return nodefiles.Follow(a.Config.Paths.Dev).News }

// Allocate makes a test allocation on each GPU, all in one process, and returns the result or the reason for each. The
// process may take grace to die once its time is up. None is started if one could not be killed.
func (a *Access) Allocate(rule gpu.ProbeRule, devices []gpu.Device, limit, grace time.Duration) (
	all []gpu.Probe, faults []record.Finding,
) {
	var answer Answer
	if a.last.Abandoned == nil {
		rule.Locks = map[gpu.ID]string{}
		for _, d := range devices {
			rule.Locks[d.ID] = a.Store.Turns.ProbeLock(d.ID)
		}
		answer = a.askVendor(gpu.VendorOf(devices[0]).Name, protocol.Request{
			Op: protocol.Probe, Devices: devices, DeadlineMillis: limit.Milliseconds(), Probe: rule,
		}, Params{Grace: grace})
		a.last = answer
		faults = a.Troubles(answer, "the test allocation: ")
	}
	for _, d := range devices {
		p := untested(d.ID, answer, a.last.Abandoned != nil)
		p.At = a.Env.Clock.Boot()
		if i := slices.IndexFunc(answer.Probes, func(o gpu.Probe) bool { return o.Device == d.ID }); i >= 0 {
			p = answer.Probes[i]
		}
		all = append(all, p)
	}
	return all, faults
}

// untested returns the result for a GPU without an answer. A crash is as bad as an error; a hang is its own finding.
func untested(id gpu.ID, answer Answer, stuck bool) gpu.Probe {
	p := judge.SkippedTest(id, "the backend did not test it")
	switch {
	case stuck && len(answer.Troubles) == 0:
		p.Why = "an earlier test is stuck in the driver"
	case len(answer.Faults) > 0:
		p.Why = answer.Faults[0].Detail
	case len(answer.Troubles) == 0:
	case answer.Troubles[0].Code == catalog.Hang:
		p.Why = "the test did not end in time: " + answer.Troubles[0].Detail
	case answer.Troubles[0].Code == catalog.BackendCrash:
		p.Result, p.Why = gpu.ProbeBroken, "the backend crashed in the middle of the test: "+answer.Troubles[0].Detail
	default:
		p.Why = answer.Troubles[0].String()
	}
	return p
}

// meet waits while another hook has asked a part of the driver and has no answer yet. If none comes in time, or a child
// is stuck, refused says so and the driver must not be asked. Call next with the answer, or once no child is left.
func (a *Access) meet(part state.Part) (next func(answered bool), refused *Answer) {
	const own = 1500 * time.Millisecond // reserved for this hook's own question
	next = func(bool) {}
	if a.Store == nil {
		return next, nil
	}
	asks, err := a.Store.Turns.AskDriver(part, a.Env.Clock.Wall(), max(0, a.Left(a.Times.Driver)-own))
	if err == nil {
		next = asks
		a.next.Store(&asks)
	}
	stuck := state.PeekStuck(a.Config.Paths.Run, a.Job.Node, a.alive)
	switch {
	case stuck != nil:
		next(false)
		return nil, unasked(Trouble{Code: catalog.Stuck, Detail: stuck.Words(a.at(stuck.Since))})
	case errors.Is(err, state.ErrLocked):
		const why = "the driver has not answered another hook, so it was not asked"
		return nil, unasked(Trouble{Code: catalog.Hang, Unsure: true, Detail: why})
	case err != nil: // a lock that cannot be used stops no hook
		fmt.Fprintf(a.Env.Stderr, "bookend: %v\n", err)
	}
	return next, nil
}

func unasked(why Trouble) *Answer { return &Answer{Unasked: true, Troubles: []Trouble{why}} }

// Ended waits until a backend that has answered ends. Errors after the answer are printed; a stuck backend is recorded,
// and faults says why that failed: then nothing keeps other hooks from the driver.
func (a *Access) Ended() (last Answer, faults []record.Finding) {
	if a.ending != nil {
		a.last, a.ending = a.ending(), nil
		faults = a.abandoned(a.last.Abandoned)
		for _, f := range slices.Concat(faults, findingsOf(a.Env, a.last, "after its answer: ")) {
			fmt.Fprintf(a.Env.Stderr, "bookend: %s: %s\n", f.Code, f.Observed)
		}
	}
	return a.last, faults
}

// Troubles returns findings for what went wrong in the backend. Their texts begin with in, the step that failed.
func (a *Access) Troubles(answer Answer, in string) []record.Finding {
	return slices.Concat(answer.earlier, a.abandoned(answer.Abandoned), findingsOf(a.Env, answer, in))
}

func findingsOf(env child.Env, answer Answer, in string) (found []record.Finding) {
	if answer.Panic != nil {
		found = append(found, Panicked(env, answer.Panic))
	}
	for _, t := range answer.Troubles {
		if t.Unsure {
			found = append(found, record.Unsure(t.Code, in+t.Detail))
		} else {
			found = append(found, record.Saw(t.Code, in+t.Detail, "a whole answer from the backend"))
		}
	}
	for _, f := range answer.Faults {
		f.Detail = in + f.Detail
		fault := record.FromFault(f)
		switch {
		case fault.Code == catalog.Lost:
			fault.Doubts = []string{"said of the driver as a whole, not of this job's GPUs"}
		case fault.Code == catalog.DriverKO && in != "":
			fault.AddDoubt("the driver had answered this hook before")
		}
		found = append(found, fault)
	}
	return found
}

// ChildFault returns findings for the failure of a child. Only the inventory asks the driver; the others read /proc.
func (a *Access) ChildFault(op string, err error) (faults []record.Finding) {
	if defect := defect(a.Env, err); defect != nil {
		return defect
	}
	f := record.Finding{
		Code: catalog.Hang, Observed: err.Error(), Expected: "an answer within the deadline", Unknown: err.Error(),
	}
	var failed *child.Error
	switch errors.As(err, &failed); {
	case errors.Is(err, child.ErrNoTime):
		f.Code = catalog.Slow
	case errors.Is(err, child.ErrStuck):
		f.Code = catalog.Untraced
	case failed == nil:
	case failed.Result.Outcome != child.Abandoned && failed.Result.Outcome != child.Hung:
		f.Code = catalog.BackendCrash
	case op != nodefiles.ListGPUs.Name:
		f.Code = catalog.Untraced
	case failed.Result.Outcome == child.Abandoned:
		faults = a.abandoned(leftBehind(err, 0))
	}
	return append(faults, f)
}
