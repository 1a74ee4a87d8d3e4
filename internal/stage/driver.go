package stage

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"bookend/internal/backend"
	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/compare"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/nodefiles"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/state"
)

// answers reports whether no child is stuck in the driver: while one lives, no other is started.
func (d *Driver) answers() bool {
	stuck, err := d.Store.Stuck(nil, d.Alive)
	d.Try(err)
	if stuck != nil {
		text := stuck.Words(d.At(stuck.Since))
		d.Add(record.Saw(catalog.Stuck, text, "the driver answers"))
	}
	return stuck == nil
}

// abandoned records a child that could not be killed, so that no other is started while it lives. Hooks that wait for
// this one's answer then go on: the record keeps them from asking.
func (d *Driver) abandoned(op string, pid int, startTicks uint64) {
	err := d.Store.SetStuck(state.Stuck{PID: pid, StartTicks: startTicks, Since: d.Clock.Boot(), Op: op}, d.Alive)
	d.Try(err)
	if met := d.met.Load(); met != nil && err == nil {
		(*met)()
	}
}

// ask asks the backends of the request's vendors, one after the other. With several, hears.Said is not called.
func (d *Driver) ask(r protocol.Request, hears backend.Params) backend.Answer {
	waits := d.ending != nil
	if last := d.ended(); last.Abandoned != nil {
		return backend.Answer{Troubles: last.Troubles}
	}
	if waits {
		r = within(r, d.Left(time.Duration(d.Times.Driver), d.Reserve())) // less than before the wait
	}
	began := d.Clock.Boot()
	met, refused := d.meet()
	if refused != nil {
		return backend.Answer{Unasked: true, Troubles: []backend.Trouble{*refused}}
	}
	waited := d.Clock.Boot() - began
	r = within(r, time.Duration(r.DeadlineMillis)*time.Millisecond-waited)
	hears.Heard = met
	answer := d.askAll(r, hears)
	if answer.Abandoned == nil { // else the record of the child comes first
		met()
	}
	return answer
}

// within limits a request to the time that is left. The backend ends by itself before it would be killed, so that its
// samples arrive. A watch that fits is not shortened: what is concluded from it depends on how long it was.
func within(r protocol.Request, left time.Duration) protocol.Request {
	r.DeadlineMillis = min(r.DeadlineMillis, left.Milliseconds())
	r.Watch.Max = max(0, min(r.Watch.Max, left-backendReserve))
	return r
}

func (d *Driver) askAll(r protocol.Request, hears backend.Params) backend.Answer {
	var names []string
	if r.All {
		for _, v := range nodefiles.Present(d.Config.Paths.Sys) {
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
		p.Root = d.EUID == 0
		p.Path, own.Options = d.Config.BackendOf(name, r.Op == protocol.Probe)
		answers = append(answers, backend.Ask(p, own))
	}
	return backend.Joined(answers...)
}

// meet waits while another hook has asked the driver and has no answer yet. If none comes in time, or a child is stuck,
// refused says so and the driver must not be asked. Call met after an answer.
func (d *Driver) meet() (met func(), refused *backend.Trouble) {
	const own = 1500 * time.Millisecond // reserved for this hook's own question
	met = func() {}
	if d.Store == nil {
		return met, nil
	}
	asks, err := d.Store.AskDriver(max(0, d.Left(time.Duration(d.Times.Driver), d.Reserve())-own))
	if err == nil {
		met = asks
		d.met.Store(&asks)
	}
	stuck := state.PeekStuck(d.Config.Paths.Run, d.Job.Node, d.Alive)
	switch {
	case stuck != nil:
		met()
		return nil, &backend.Trouble{Code: catalog.Stuck, Detail: stuck.Words(d.At(stuck.Since))}
	case errors.Is(err, state.ErrLocked):
		return nil, &backend.Trouble{
			Code: catalog.Hang, Unsure: true, Detail: "the driver has not answered another hook, so it was not asked",
		}
	case err != nil: // a lock that cannot be used stops no hook
		fmt.Fprintf(d.Stderr, "bookend: %v\n", err)
	}
	return met, nil
}

func (d *Driver) askBackend(r protocol.Request) backend.Answer {
	answer := d.ask(r, backend.Params{})
	d.take(answer)
	return answer
}

func (d *Driver) take(answer backend.Answer) {
	d.Seen.Looks += len(answer.Snapshots)
	d.Add(d.troubles(answer, "")...)
}

// troubles returns findings for what went wrong in the backend. Their texts begin with in, the step that failed.
func (d *Driver) troubles(a backend.Answer, in string) (found []record.Finding) {
	if a.Abandoned != nil {
		d.abandoned(backendOp, a.Abandoned.PID, a.Abandoned.StartTicks)
	}
	if a.Panic != nil {
		found = append(found, d.Panicked(a.Panic))
	}
	for _, t := range a.Troubles {
		switch {
		case t.Unsure:
			found = append(found, record.Unsure(t.Code, in+t.Detail))
		default:
			found = append(found, record.Saw(t.Code, in+t.Detail, "a whole answer from the backend"))
		}
	}
	for _, f := range a.Faults {
		f.Detail = in + f.Detail
		fault := compare.FromFault(f)
		if fault.Code == catalog.Lost {
			fault.Doubts = []string{"said of the driver as a whole, not of this job's GPUs"}
		}
		found = append(found, fault)
	}
	return found
}

// childFault reports the failure of a child of our own. Only the inventory asks the driver; the others read /proc.
func (d *Driver) childFault(op string, err error) {
	if d.Defect(err) {
		return
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
		d.abandoned(op, failed.Result.PID, failed.Result.StartTicks)
	}
	d.Add(f)
}

// Listen starts to read the kernel's log after a mark, nil for the newest entry. A ring buffer of 1 MiB takes 10 ms.
func (d *Driver) Listen(since *gpu.KernelMark) (collect func() *gpu.KernelLog) {
	paths := d.Config.Paths
	request := nodefiles.Request{Dev: paths.Dev, Proc: paths.Proc, Sys: paths.Sys, Since: since}
	limit := d.Left(time.Duration(d.Times.Scan), d.Reserve())
	wait := child.Async(func() (gpu.KernelLog, error) { return nodefiles.ReadKernel.Ask(request, limit) })
	return sync.OnceValue(func() *gpu.KernelLog {
		log, err := wait()
		if err != nil {
			d.Defect(err)
			log = gpu.KernelLog{Unknown: err.Error()}
		}
		return &log
	})
}

// patience is how long a hook waits for a backend to start before it goes on.
const patience = 300 * time.Millisecond

// ahead is a watch that was started before it was certain which GPUs to watch.
type ahead struct {
	cards  []record.Assigned
	rule   gpu.WatchRule
	answer func() backend.Answer
}

// watchAhead starts an order's watch, and returns once the backend runs: what starts sooner would slow it down.
func (d *Driver) watchAhead(o judge.Order) {
	r := d.watching(o.Cards, o.Rule)
	begun, said, over := make(chan struct{}, len(gpu.Vendors)), make(chan backend.Answer, 1), make(chan struct{})
	wait := child.Async(func() (backend.Answer, error) {
		defer close(over)
		return d.ask(r, backend.Params{
			Started: func(int, uint64) { begun <- struct{}{} }, Said: func(a backend.Answer) { said <- a },
		}), nil
	})
	ended := sync.OnceValue(func() backend.Answer {
		answer, err := wait()
		errors.As(err, &answer.Panic)
		return answer
	})
	d.ahead = &ahead{o.Cards, o.Rule, sync.OnceValue(func() backend.Answer {
		select {
		case answer := <-said:
			d.ending = ended
			return answer
		case <-over:
			return ended()
		}
	})}
	select {
	case <-begun:
	case <-over:
	case <-time.After(patience): // there are several backends, or the program is on a disk that does not answer
	}
}

// ended waits until a backend that has answered ends. Errors after the answer are printed; a stuck backend is recorded.
func (d *Driver) ended() (last backend.Answer) {
	if d.ending != nil {
		d.last, d.ending = d.ending(), nil
		for _, f := range d.troubles(d.last, "after its answer: ") {
			fmt.Fprintf(d.Stderr, "bookend: %s: %s\n", f.Code, f.Observed)
		}
	}
	return d.last
}

func (a *ahead) stuck() bool { return a != nil && (a.answer().Abandoned != nil || a.answer().Unasked) }

// shows reports a complete answer in which each GPU has the inventory's bus id and minor, or Slurm gave its UUID.
func (a *ahead) shows(seen judge.Seen) bool {
	if a == nil {
		return false
	}
	answer := a.answer()
	if !answer.Complete || len(answer.Troubles)+len(answer.Faults) > 0 || len(answer.Snapshots) == 0 {
		return false
	}
	last := answer.Snapshots[len(answer.Snapshots)-1]
	return !slices.ContainsFunc(seen.Cards, func(c record.Assigned) bool {
		r, _ := last.Reading(c.Device.ID)
		its, own := r.Device, c.Device
		same := its.BusID == own.BusID && its.Minor != nil && own.Minor != nil && *its.Minor == *own.Minor
		return its.ID == "" || !same && seen.Origin.Source != record.ByUUID
	})
}

// of returns the answer, and whether it is that of this watch; if not, only the answer's child counts.
func (a *ahead) of(cards []record.Assigned, rule gpu.WatchRule) (answer backend.Answer, is bool) {
	if a != nil {
		answer = a.answer()
		is = reflect.DeepEqual(a.cards, cards) && reflect.DeepEqual(a.rule, rule)
	}
	return answer, is
}
