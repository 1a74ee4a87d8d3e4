package stage

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/backend"
	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/inventory"
	"bookend/internal/operation"
	"bookend/internal/state"
	"bookend/internal/wire"
)

// Meet reports whether the driver may be asked: where no abandoned child lives in it, and no other hook waits for its
// answer in vain. Leave ends what Meet began.
func (d *Driver) Meet() bool { return d.Store == nil || d.answers() && d.meet() }

// answers reports that no child is stuck in the driver: while one lives, nobody starts another.
func (d *Driver) answers() bool {
	stuck, err := d.Store.Stuck()
	d.Try(err)
	if stuck == nil {
		return true
	}
	if d.Alive(*stuck) {
		text := operation.StuckText(*stuck, d.At(stuck.Since))
		d.Add(finding.Saw(code.Stuck, text, "the driver answers"))
		return false
	}
	d.Try(d.Store.ClearStuck())
	return true
}

// abandoned records a child that could not be killed, so that no other is started while it lives.
func (d *Driver) abandoned(op string, pid int, startTicks uint64) {
	if d.Store != nil {
		d.Try(d.Store.SetStuck(state.Stuck{PID: pid, StartTicks: startTicks, Since: d.Clock.Boot(), Op: op}))
	}
}

// abandonedReader records a child that could not be killed while it read other processes' /proc. That is no word about
// the driver: the next hooks only leave alone what it reads. If it cannot be recorded, this hook starts no other.
func (d *Driver) abandonedReader(op string, failure error) {
	err := d.readers().Keep(op, failure, nil)
	d.Try(err)
	d.unkept = d.unkept || err != nil
}

func (d *Driver) readers() operation.Readers {
	return operation.Readers{Config: d.Config, Clock: d.Clock, Store: d.Store}
}

// ask asks the backends of the vendors whose GPUs a request is about, one after the other.
func (d *Driver) ask(r wire.Request) backend.Answer {
	var names []string
	if r.All {
		for _, v := range inventory.Present(d.Config.Paths.Sys) {
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
	for _, name := range names {
		own := r
		own.Devices = slices.DeleteFunc(slices.Clone(r.Devices),
			func(device gpu.Device) bool { return gpu.VendorOf(device).Name != name })
		p := backend.Params{Root: d.EUID == 0, Started: d.started(operation.Backend),
			Answered: func() { d.contact.met(true) }}
		p.Path, own.Options = d.Config.BackendOf(name, r.Op)
		answers = append(answers, backend.Ask(p, own))
	}
	return backend.Joined(answers...)
}

// askBackend is ask, with what went wrong among the findings.
func (d *Driver) askBackend(r wire.Request) backend.Answer {
	answer := d.ask(r)
	d.Seen.Looks += len(answer.Snapshots)
	d.Add(d.troubles(answer, "")...)
	return answer
}

// troubles turns what went wrong below the readings into findings, which say in what.
func (d *Driver) troubles(a backend.Answer, in string) (found []finding.Finding) {
	if a.Abandoned != nil {
		d.abandoned(operation.Backend, a.Abandoned.PID, a.Abandoned.StartTicks)
	}
	if a.Panic != nil {
		found = append(found, d.Panicked(a.Panic))
	}
	for _, t := range a.Troubles {
		switch {
		// which says nothing for certain
		case t.Code == code.Hang && d.contact.waited > patience/3 && d.Seen.Looks == 0:
			const why = "another hook's wait for the driver left too little time: "
			found = append(found, finding.Unsure(code.Slow, why+in+t.Detail))
		case t.Unsure:
			found = append(found, finding.Unsure(t.Code, in+t.Detail))
		default:
			found = append(found, finding.Saw(t.Code, in+t.Detail, "a whole answer from the backend"))
		}
	}
	for _, f := range a.Faults {
		f.Detail = in + f.Detail
		fault := finding.FromFault(f)
		if fault.Code == code.Lost {
			fault.Doubts = []string{"said of the driver as a whole, not of this job's GPUs"}
		}
		found = append(found, fault)
	}
	return found
}

// askReader asks a child that reads other processes' /proc. One that gets stuck and cannot be put on record is the last
// that this hook starts.
func askReader[Rep any](
	d *Driver, op operation.Operation[operation.ReaderRequest, Rep], timeout time.Duration,
	request operation.ReaderRequest, at func(Rep) []finding.Instance,
) (reply Rep, err error) {
	var unkept error
	if err = (&operation.Error{Op: op.Name, Err: operation.ErrStuck}); !d.unkept {
		reply, unkept, err = operation.Read(d.readers(), op, request, timeout, at)
		d.Try(unkept)
		d.unkept = unkept != nil
	}
	if err != nil {
		d.childFault(op.Name, err)
	}
	return reply, err
}

// childFault words the failure of a child of our own that looked at the driver or at processes. Only the inventory asks
// the driver: of the others, which read /proc, no answer says nothing against it.
func (d *Driver) childFault(op string, err error) {
	if d.Defect(err) {
		return
	}
	f := finding.Finding{
		Code: code.Hang, Observed: err.Error(), Expected: "an answer within the deadline", Unknown: err.Error(),
	}
	var failed *operation.Error
	switch errors.As(err, &failed); {
	case errors.Is(err, operation.ErrNoTime):
		f.Code = code.Slow
	case errors.Is(err, operation.ErrStuck):
		f.Code = code.Untraced
	case failed == nil:
	case failed.Result.Outcome != child.Abandoned && failed.Result.Outcome != child.Hung:
		f.Code = code.BackendCrash
	case op != operation.Inventory.Name:
		f.Code = code.Untraced
	case failed.Result.Outcome == child.Abandoned:
		d.abandoned(op, failed.Result.PID, failed.Result.StartTicks)
	}
	d.Add(f)
}

// Listen starts reading the kernel's log since a mark, nil for the newest entry's alone, beside what the hook does. A
// ring of 1 MiB takes some 10 ms; the longest wait is that for all of /proc.
func (d *Driver) Listen(since *gpu.KernelMark) (collect func() *gpu.KernelLog) {
	paths := d.Config.Paths
	request := operation.MachineRequest{Dev: paths.Dev, Proc: paths.Proc, Sys: paths.Sys, Since: since}
	wait := operation.Kernel.Beside(request, d.Left(time.Duration(d.Times.Scan), d.Reserve()))
	return func() *gpu.KernelLog {
		log, err := wait()
		if err != nil {
			d.Defect(err)
			log = gpu.KernelLog{Unknown: err.Error()}
		}
		return &log
	}
}

// contact is this hook's first contact with the driver.
type contact struct {
	holds  bool          // it asks, and others wait for its answer
	waited time.Duration // for another hook's answer, of the time that was meant for the driver
	pids   []int         // of the children that asked
	met    func(answered bool)
}

// patience is how long a hook waits for another's first answer before it looks what keeps that.
const patience = 300 * time.Millisecond

// worthAsking is the least time in which a driver that answers can be expected to.
const worthAsking = 500 * time.Millisecond

// meet waits for another hook's contact. Where nobody has heard it lately one hook asks and the others wait for what
// comes of it, as long as it sleeps where nothing can wake it: else each would leave a child there. One that is merely
// slow, stopped or busy keeps nobody: they ask beside it. Without state each hook is on its own.
func (d *Driver) meet() bool {
	left := func() time.Duration { return d.Left(time.Duration(d.Times.Driver), d.Reserve()) }
	began := d.Clock.Boot()
	for first := true; first || left() > worthAsking; first = false {
		met, err := d.Store.Meet(d.Clock.Boot, min(patience, left()))
		d.contact.waited = d.Clock.Boot() - began
		if err == nil && met != nil {
			d.contact.met, d.contact.holds = met, true
			d.adopt()
		}
		if !errors.Is(err, state.ErrLocked) || !d.asleep(d.Store.Asking()) {
			return d.answers()
		}
	}
	if d.answers() {
		const why = "not asked: another hook's child has been in the driver for more than %v"
		d.Add(finding.Unsure(code.Slow, fmt.Sprintf(why, d.contact.waited.Round(time.Millisecond))))
	}
	return false
}

// asleep reports whether a child that asks sleeps where no signal wakes it.
func (d *Driver) asleep(asking *state.Asking) bool {
	return asking != nil && child.Uninterruptible(d.Config.Paths.Proc, asking.PID, asking.StartTicks)
}

// adopt takes the stuck child of a hook that was killed for what it is: nobody else has it on record. One that merely
// ends after its hook is soon gone: so it has to sleep at each of some looks.
func (d *Driver) adopt() {
	const looks = 6
	asking := d.Store.Asking()
	for range looks {
		if !d.asleep(asking) || !child.Orphaned(d.Config.Paths.Proc, asking.PID, asking.StartTicks, asking.Hook) {
			return
		}
		time.Sleep(patience / looks)
	}
	d.Try(d.Store.SetStuck(asking.Stuck))
}

// started returns what notes a child that asks the driver.
func (d *Driver) started(op string) func(pid int, startTicks uint64) {
	if !d.contact.holds {
		return nil
	}
	return func(pid int, startTicks uint64) {
		d.contact.pids = append(slices.Clone(d.contact.pids), pid)
		// Without it the others ask beside this hook: nothing worth telling.
		_ = d.Store.SetAsking(state.Asking{
			Stuck: state.Stuck{PID: pid, StartTicks: startTicks, Since: d.Clock.Boot(), Op: op}, Hook: d.PID,
		})
	}
}

// Leave ends the first contact, however it went.
func (d *Driver) Leave() {
	d.contact.met(false)
	if d.contact.holds {
		_ = d.Store.ClearAsking(d.contact.pids...)
	}
}
