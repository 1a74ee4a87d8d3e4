package session

import (
	"errors"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/backend"
	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/operation"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/internal/wire"
)

// Driver is a hook's dealings with the driver and with /proc; it is the Eyes that a hook looks with. Its Faults are
// what went wrong since they were taken last.
type Driver struct {
	*Hook
	Faults
	contact contact
	unkept  bool // a reader of /proc is stuck, and could not be put on record
	looks   int  // that came back so far
	first   first
}

// first is what only a hook's first watch brings.
type first struct {
	neighbours *gpu.Snapshot // of a health check: the GPUs that it does not look at more closely
	health     []gpu.Health
}

// Driver begins a hook's dealings with the driver.
func (h *Hook) Driver() *Driver {
	return &Driver{Hook: h, contact: contact{met: func(bool) {}}}
}

// Looks is how often the driver has told what is on GPUs.
func (d *Driver) Looks() int { return d.looks }

// Meet reports whether the driver may be asked: where no abandoned child lives in it, and no other hook waits for its
// answer in vain. Leave ends what Meet began.
func (d *Driver) Meet() bool { return d.answers() && d.meet() }

// answers reports that no child is stuck in the driver: while one lives, nobody starts another.
func (d *Driver) answers() bool {
	if d.Store == nil {
		return true
	}
	stuck, err := d.Store.Stuck()
	d.Try(err)
	if stuck == nil {
		return true
	}
	if operation.InDriver(*stuck) && d.Alive(*stuck) { // earlier releases put children here that read /proc
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
func (d *Driver) abandonedReader(op string, failure error, at []attrib.Instance) {
	err := d.readers().Keep(op, failure, at)
	d.Try(err)
	d.unkept = d.unkept || err != nil
}

func (d *Driver) readers() operation.Readers {
	return operation.Readers{Config: d.Config, Clock: d.Clock, Store: d.Store}
}

// askBackend asks the vendor's backend about GPUs.
func (d *Driver) askBackend(r wire.Request) backend.Answer {
	answer := backend.Ask(backend.Params{
		Path: d.Config.Backend, Root: d.EUID == 0,
		Started: d.started(operation.Backend), Answered: func() { d.contact.met(true) },
	}, r)
	d.looks += len(answer.Snapshots)
	d.Add(d.troubles(answer)...)
	return answer
}

// troubles turns what went wrong below the readings into findings.
func (d *Driver) troubles(a backend.Answer) (found []finding.Finding) {
	if a.Abandoned != nil {
		d.abandoned(operation.Backend, a.Abandoned.PID, a.Abandoned.StartTicks)
	}
	if a.Panic != nil {
		found = append(found, d.Panicked(a.Panic))
	}
	for _, t := range a.Troubles {
		f := finding.Saw(t.Code, t.Detail, "a whole answer from the backend")
		switch {
		case t.Code == code.Hang && d.cutShort() && d.looks == 0:
			const why = "another hook's wait for the driver left too little time: "
			f = finding.Unsure(code.Slow, why+t.Detail)
		case t.Unsure:
			f = finding.Unsure(t.Code, t.Detail)
		}
		found = append(found, f)
	}
	for _, f := range a.Faults {
		fault := finding.FromFault(f)
		if fault.Code == code.Lost {
			fault.Doubts = []string{"said of the driver as a whole, not of this job's GPUs"}
		}
		found = append(found, fault)
	}
	return found
}

// askReader asks a child that reads other processes' /proc. What it answered stands, also where it cannot end; then at
// says what it is stuck at. The error says that there is no answer.
func askReader[Req, Rep any](
	d *Driver, op operation.Operation[Req, Rep], timeout time.Duration,
	request func(skip []attrib.Instance) Req, at func(Rep) []attrib.Instance,
) (Rep, error) {
	skip, blocked := operation.Hung(op.Name, d.readers().Stuck())
	if blocked || d.unkept {
		var none Rep
		err := &operation.Error{Op: op.Name, Err: operation.ErrStuck}
		d.childFault(op.Name, err)
		return none, err
	}
	reply, err := op.Ask(request(skip), timeout)
	var failed *operation.Error
	if errors.As(err, &failed) && failed.Answered {
		d.abandonedReader(op.Name, err, at(reply))
		return reply, nil
	}
	if err != nil {
		d.childFault(op.Name, err)
	}
	return reply, err
}

// childFault words the failure of a child of our own that looked at the driver or at processes.
func (d *Driver) childFault(op string, err error) {
	if d.Defect(err) {
		return
	}
	const expected = "an answer within the deadline"
	f := finding.Finding{Code: code.Hang, Observed: err.Error(), Expected: expected, Unknown: err.Error()}
	var failed *operation.Error
	if errors.As(err, &failed) {
		switch r := failed.Result; r.Outcome {
		case child.Abandoned:
			if op == operation.Inventory.Name {
				d.abandoned(op, r.PID, r.StartTicks)
			} else {
				d.abandonedReader(op, err, nil)
			}
			f.Code = unanswered(op)
		case child.Hung:
			f.Code = unanswered(op)
		default:
			f.Code = code.BackendCrash
		}
	}
	switch {
	case errors.Is(err, operation.ErrNoTime):
		f.Code = code.Slow
	case errors.Is(err, operation.ErrStuck):
		f.Code = code.Untraced
	}
	d.Add(f)
}

// unanswered is what it means that a child does not answer: only the inventory asks the driver, the others read /proc.
func unanswered(op string) code.Code {
	if op == operation.Inventory.Name {
		return code.Hang
	}
	return code.Untraced
}

// Listen starts reading the kernel's log since a mark, nil for the newest entry's alone, beside what the hook does. A
// ring of 1 MiB takes some 10 ms; the longest wait is that for all of /proc.
func (d *Driver) Listen(since *gpu.KernelMark) (collect func() *gpu.KernelLog) {
	paths := d.Config.Paths
	request := operation.KernelRequest{Dev: paths.Dev, Proc: paths.Proc, Sys: paths.Sys, Since: since}
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

// CleanUp ends processes of the ended job, each within the grace. The error says that there is no word of what became
// of them.
func (d *Driver) CleanUp(processes []attrib.Process, grace, limit time.Duration) ([]operation.Result, error) {
	request := operation.CleanupRequest{
		Proc: d.Config.Paths.Proc, Processes: processes, Grace: grace,
		Owner: slurm.Owner{ID: d.Job.ID, SLUID: d.Job.SLUID},
	}
	results, err := operation.Cleanup.Ask(request, d.Left(limit, d.Reserve()))
	if err != nil {
		d.childFault(operation.Cleanup.Name, err)
	}
	return results, err
}
