package node

import (
	"encoding/json"
	"slices"
	"sync"

	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/nodefiles"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// WarmUp has another core spend the 0.6 ms that json takes for the first use of a type, before a record is read.
func WarmUp() {
	child.Go(func(*child.Panic) {}, func() { _, _ = json.Marshal([]any{record.Run{}, protocol.Reply{}}) })
}

// Observe returns the case with what is seen of the job's GPUs, unless the driver is known to be stuck or must not be
// asked from here, and with what still counts of the past. It also returns what was read meanwhile.
//
// The driver takes longest, so it is asked first, about the GPUs that the last hook found. Meanwhile the kernel's log
// gives the epoch, and Slurm's files give the meaning of the numbers. If these or the answer are not as foreseen, the
// node's GPUs are listed: the answer counts if it is about those, and the driver is asked again if not.
func Observe(a *Access, c judge.Case) (judge.Case, Meanwhile) {
	asks := c.Job.GPUProblem == "" && !a.Blinded()
	if asks {
		answers, faults := a.Answers()
		asks, c.Faults = answers, slices.Concat(c.Faults, faults)
	}
	if !asks {
		c, m := meanwhile(a, c)
		return withKernel(c, m.kernel), m
	}
	n := numbersOf(a, c.Past.Run)
	c.Seen = foresee(a, c.Past.Run, n.kept)
	epoch := c.Seen.Epoch
	c, found := withPast(a, c)
	var watch *ahead
	if len(c.Seen.Cards) > 0 {
		watch = watchAhead(a, c, c.Order(c.Seen.Cards, a.Settle))
	}
	c, m := meanwhile(a, c)
	n.start() // after what is shorter: each child slows the backend's start
	asForeseen := func() bool {
		log, _ := m.kernel()
		return epoch.Same(log.Epoch) && n.kept.Equal(n.list())
	}
	switch {
	case watch.stuck(): // then nothing else asks the driver
		if !asForeseen() {
			c.Seen = judge.Seen{}
			c, found = withPast(a, c)
		}
	case !watch.shows(c.Seen) || !asForeseen():
		c = inventory(a, c, n)
		if c.Seen.Epoch != epoch {
			c, found = withPast(a, c)
		}
	}
	c.Faults = slices.Concat(c.Faults, n.faults, found)
	return withKernel(look(a, c, watch), m.kernel), m
}

// withPast returns the case with what counts of the past in the epoch that it has seen, and what speaks against the
// start: that does not hold in another epoch. A fault of the state holds in any.
func withPast(a *Access, c judge.Case) (judge.Case, []record.Finding) {
	before, found := judge.StartOf(c.Past.Run, c.Job, c.Seen.Epoch)
	c.Past.Before = before
	return withBaselines(a, c), found
}

// ObserveAgain returns the case with what is seen while its GPUs are watched until they settle once more.
func ObserveAgain(a *Access, c judge.Case) judge.Case { return look(a, c, nil) }

// look watches the case's GPUs until they settle; the watch that was started ahead counts if it was of these.
func look(a *Access, c judge.Case, watch *ahead) judge.Case {
	e := &observer{a: a, c: c, ahead: watch}
	if watch != nil {
		e.brief = watch.brief
	}
	if watch != nil && len(c.Seen.Cards) == 0 { // no GPU can be read: keep the driver's error
		e.take(watch.answer())
		e.ahead = nil
	}
	side, cards := judge.Observe(e, c.Order(c.Seen.Cards, a.Settle))
	c = e.seen(c)
	c.Seen.Side, c.Seen.Cards = side, cards
	return c
}

// Consult returns the case with the node's other records if something needs them; for clean GPUs nothing does.
func Consult(a *Access, c judge.Case) judge.Case {
	var faults []record.Finding
	switch {
	case c.Asks(), c.AsksRecorded():
		c, faults = Complete(a, c)
	case c.ComparesHealth():
		c.Node, faults = Records(a.Store)
	}
	c.Faults = slices.Concat(c.Faults, faults)
	return c
}

// Meanwhile is what a hook reads while the driver answers, besides what belongs to the case.
type Meanwhile struct {
	Tests  map[gpu.ID]record.TestRecord // a start's: the last test allocations
	Output Output                       // an end's
	kernel kernelLog
}

type kernelLog func() (*gpu.KernelLog, []record.Finding)

func meanwhile(a *Access, c judge.Case) (judge.Case, Meanwhile) {
	var faults []record.Finding
	var m Meanwhile
	if c.Phase == slurm.Prolog {
		c.Past.Turn = Claim(a, 0)
		// An earlier run's report must not be taken for this one's, whatever happens.
		c.Faults = slices.Concat(c.Faults, Fault(a.Store.Users.RemoveReport(a.Job)))
		m.Tests, faults = Tests(a)
		m.kernel = readKernel(a, c, judge.MarkOfTests(m.Tests, a.Env.Clock.Boot()))
	} else {
		recorded := state.Recorded.Peek(a.Store)
		m.Output, faults = outputOfJob(a, c, recorded.Outputs[c.Past.Run.Name()])
		c.Past.Recording = recorded.Runs.About(c.Past.Run)
		m.kernel = readKernel(a, c, judge.Mark(c.Past.Run, c.Job))
	}
	c.Faults = slices.Concat(c.Faults, faults)
	return c, m
}

// readKernel starts to read the kernel's log after a mark, nil for the newest entry. A buffer of 1 MiB takes 10 ms.
func readKernel(a *Access, c judge.Case, since *gpu.KernelMark) kernelLog {
	paths := a.Config.Paths
	request := nodefiles.Request{Dev: paths.Dev, Proc: paths.Proc, Sys: paths.Sys, Since: since,
		Before: &c.Past.Standing.Mark}
	limit := a.Left(a.Times.Scan)
	read := child.Async(func() (gpu.KernelLog, error) { return nodefiles.ReadKernel.Ask(request, limit) })
	return sync.OnceValues(func() (*gpu.KernelLog, []record.Finding) {
		log, err := read()
		if err != nil {
			log = gpu.KernelLog{Unknown: err.Error()}
		}
		log = log.Since(c.Past.Standing.Resets, c.Past.Standing.Epoch)
		return &log, defect(a.Env, err)
	})
}

// KernelLog reads the kernel's log after a mark, nil for its newest entry.
func KernelLog(a *Access, since *gpu.KernelMark) (*gpu.KernelLog, []record.Finding) {
	return readKernel(a, judge.Case{}, since)()
}

func withKernel(c judge.Case, wait kernelLog) judge.Case {
	log, faults := wait()
	c.Seen.Kernel, c.Faults = log, slices.Concat(c.Faults, faults)
	return c
}
