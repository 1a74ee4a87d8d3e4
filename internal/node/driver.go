package node

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"bookend/internal/backend"
	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/nodefiles"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/state"
)

// The names of the backend and of slurmd -G in the records of stuck children.
const (
	backendOp = "backend"
	SlurmdOp  = "slurmd -G"
)

// BackendReserve is for one last sample after Max: attaching was reported to take 1-3 s, a call in teardown 0.4 s.
const BackendReserve = 500 * time.Millisecond

// Answers reports whether no child is stuck in the driver: while one lives, no other is started.
func (a *Access) Answers() (ok bool, faults []record.Finding) {
	stuck, err := a.Store.Stuck(nil, a.alive)
	faults = Fault(err)
	if stuck != nil {
		faults = append(faults, record.Saw(catalog.Stuck, stuck.Words(a.at(stuck.Since)), "the driver answers"))
	}
	return stuck == nil, faults
}

// StuckBackend returns the record of a backend that could not be killed.
func (a *Access) StuckBackend(left *backend.Abandoned) *state.Stuck {
	return &state.Stuck{PID: left.PID, StartTicks: left.StartTicks, Since: a.Env.Clock.Boot(), Op: backendOp}
}

// Abandoned records a child that could not be killed, so that no other is started while it lives. Hooks that wait for
// this one's answer then go on: the record keeps them from asking.
func (a *Access) Abandoned(stuck state.Stuck) []record.Finding {
	err := state.StuckChildren.Add(a.Store, stuck, a.alive)
	if met := a.met.Load(); met != nil && err == nil {
		(*met)()
	}
	return Fault(err)
}

// Ask asks the backends of the request's vendors, one after the other. With several, hears.Said is not called.
func (a *Access) Ask(r protocol.Request, hears backend.Params) backend.Answer {
	if a.ending != nil {
		_, a.unsaid = a.Ended()
		r = Within(r, a.Left(a.Times.Driver)) // less than before the wait
	}
	if a.last.Abandoned != nil {
		return backend.Answer{Troubles: a.last.Troubles}
	}
	began := a.Env.Clock.Boot()
	met, refused := a.Meet()
	if refused != nil {
		return *refused
	}
	waited := a.Env.Clock.Boot() - began
	r = Within(r, time.Duration(r.DeadlineMillis)*time.Millisecond-waited)
	hears.Heard = met
	answer := a.askAll(r, hears)
	if answer.Abandoned == nil { // else the record of the child comes first
		met()
	}
	return answer
}

// Within limits a request to the time that is left. The backend ends by itself before it would be killed, so that its
// samples arrive. A watch that fits is not shortened: what is concluded from it depends on how long it was.
func Within(r protocol.Request, left time.Duration) protocol.Request {
	r.DeadlineMillis = min(r.DeadlineMillis, left.Milliseconds())
	r.Watch.Max = max(0, min(r.Watch.Max, left-BackendReserve))
	return r
}

func (a *Access) askAll(r protocol.Request, hears backend.Params) backend.Answer {
	var names []string
	if r.All {
		for _, v := range nodefiles.Present(a.Config.Paths.Sys) {
			names = append(names, v.Name)
		}
	}
	for _, device := range r.Devices {
		if name := gpu.VendorOf(device).Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var answers []backend.Answer
	r.DeadlineMillis /= int64(max(1, len(names)))
	if len(names) > 1 {
		hears.Said = nil
	}
	for _, name := range names {
		own := r
		own.Devices = slices.DeleteFunc(slices.Clone(r.Devices),
			func(device gpu.Device) bool { return gpu.VendorOf(device).Name != name })
		p := hears
		p.Root = a.Env.EUID == 0
		p.Path, own.Options = a.Config.BackendOf(name, r.Op == protocol.Probe)
		answers = append(answers, backend.Ask(p, own))
	}
	return backend.Joined(answers...)
}

// Meet waits while another hook has asked the driver and has no answer yet. If none comes in time, or a child is stuck,
// refused says so and the driver must not be asked. Call met after an answer.
func (a *Access) Meet() (met func(), refused *backend.Answer) {
	const own = 1500 * time.Millisecond // reserved for this hook's own question
	met = func() {}
	if a.Store == nil {
		return met, nil
	}
	asks, err := a.Store.Turns.AskDriver(max(0, a.Left(a.Times.Driver)-own))
	if err == nil {
		met = asks
		a.met.Store(&asks)
	}
	stuck := state.PeekStuck(a.Config.Paths.Run, a.Job.Node, a.alive)
	switch {
	case stuck != nil:
		met()
		return nil, unasked(backend.Trouble{Code: catalog.Stuck, Detail: stuck.Words(a.at(stuck.Since))})
	case errors.Is(err, state.ErrLocked):
		return nil, unasked(backend.Trouble{
			Code: catalog.Hang, Unsure: true, Detail: "the driver has not answered another hook, so it was not asked",
		})
	case err != nil: // a lock that cannot be used stops no hook
		fmt.Fprintf(a.Env.Stderr, "bookend: %v\n", err)
	}
	return met, nil
}

func unasked(why backend.Trouble) *backend.Answer {
	return &backend.Answer{Unasked: true, Troubles: []backend.Trouble{why}}
}

// Asked is a question to the backend that goes on meanwhile.
type Asked struct {
	Begun <-chan struct{}       // has a value once a backend runs
	Over  <-chan struct{}       // closed once all have ended
	Wait  func() backend.Answer // waits for the answer, not for the end of the backend
}

// AskAhead asks the backend meanwhile. Until Wait has returned, nothing else may be asked.
func (a *Access) AskAhead(r protocol.Request) Asked {
	begun, said, over := make(chan struct{}, len(gpu.Vendors)), make(chan backend.Answer, 1), make(chan struct{})
	wait := child.Async(func() (backend.Answer, error) {
		defer close(over)
		return a.Ask(r, backend.Params{
			Started: func(int, uint64) { begun <- struct{}{} }, Said: func(answer backend.Answer) { said <- answer },
		}), nil
	})
	ended := sync.OnceValue(func() backend.Answer {
		answer, err := wait()
		errors.As(err, &answer.Panic)
		return answer
	})
	return Asked{begun, over, sync.OnceValue(func() backend.Answer {
		select {
		case answer := <-said:
			a.ending = ended
			return answer
		case <-over:
			return ended()
		}
	})}
}

// Ended waits until a backend that has answered ends. Errors after the answer are printed; a stuck backend is recorded,
// and faults says why that failed: then nothing keeps other hooks from the driver.
func (a *Access) Ended() (last backend.Answer, faults []record.Finding) {
	if a.ending != nil {
		a.last, a.ending = a.ending(), nil
		faults = a.recordStuck(a.last)
		for _, f := range slices.Concat(faults, a.findingsOf(a.last, "after its answer: ")) {
			fmt.Fprintf(a.Env.Stderr, "bookend: %s: %s\n", f.Code, f.Observed)
		}
	}
	return a.last, faults
}

// Troubles returns findings for what went wrong in the backend. Their texts begin with in, the step that failed.
func (a *Access) Troubles(answer backend.Answer, in string) []record.Finding {
	unsaid := a.unsaid
	a.unsaid = nil
	return slices.Concat(unsaid, a.recordStuck(answer), a.findingsOf(answer, in))
}

// recordStuck records the backend of an answer if it could not be killed.
func (a *Access) recordStuck(answer backend.Answer) []record.Finding {
	if answer.Abandoned == nil {
		return nil
	}
	return a.Abandoned(*a.StuckBackend(answer.Abandoned))
}

func (a *Access) findingsOf(answer backend.Answer, in string) (found []record.Finding) {
	if answer.Panic != nil {
		found = append(found, Panicked(a.Env, answer.Panic))
	}
	for _, t := range answer.Troubles {
		switch {
		case t.Unsure:
			found = append(found, record.Unsure(t.Code, in+t.Detail))
		default:
			found = append(found, record.Saw(t.Code, in+t.Detail, "a whole answer from the backend"))
		}
	}
	for _, f := range answer.Faults {
		f.Detail = in + f.Detail
		fault := record.FromFault(f)
		if fault.Code == catalog.Lost {
			fault.Doubts = []string{"said of the driver as a whole, not of this job's GPUs"}
		}
		found = append(found, fault)
	}
	return found
}

// ChildFault returns findings for the failure of a child of our own. Only the inventory asks the driver; the others
// read /proc.
func (a *Access) ChildFault(op string, err error) (faults []record.Finding) {
	if defect := a.Defect(err); defect != nil {
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
		faults = a.Abandoned(*leftBehind(err, a.Env.Clock.Boot()))
	}
	return append(faults, f)
}
