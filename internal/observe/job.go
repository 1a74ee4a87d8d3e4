// Package observe sees what a hook judges: the node's GPUs and their numbers, samples until they have settled, the
// processes that hold them, their condition, the kernel's log, and what the job's output says. What can be read while
// the driver answers is read then.
package observe

import (
	"encoding/json"
	"slices"

	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/protocol"
	"bookend/internal/record"
)

// Job returns the case with what is seen of the job's GPUs, unless the driver is known to be stuck or must not be asked
// from here, and with what still counts of the past. It also returns what was read meanwhile.
//
// The driver takes longest, so it is asked first, about the GPUs that the last hook found. Meanwhile the kernel's log
// gives the epoch, and Slurm's files give the meaning of the numbers. If these or the answer are not as foreseen, the
// node's GPUs are listed: the answer counts if it is about those, and the driver is asked again if not.
func Job(a *node.Access, c judge.Case) (judge.Case, Meanwhile) {
	asks := c.Job.GPUProblem == "" && !a.Blinded()
	if asks {
		answers, faults := a.Answers()
		asks = answers
		c.Faults = slices.Concat(c.Faults, faults)
	}
	if !asks {
		c, m := meanwhile(a, c)
		return withKernel(c, m), m
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
	if watch != nil {
		// The first use of a type takes json 0.6 ms: spend that while the driver answers.
		_, _ = json.Marshal([]any{record.Run{}, protocol.Reply{}})
	}
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
	return withKernel(look(a, c, watch), m), m
}

func withKernel(c judge.Case, m Meanwhile) judge.Case {
	log, faults := m.kernel()
	c.Seen.Kernel, c.Faults = log, slices.Concat(c.Faults, faults)
	return c
}

// withPast returns the case with what counts of the past in the epoch that it has seen, and what speaks against the
// start: that does not hold in another epoch. A fault of the state holds in any.
func withPast(a *node.Access, c judge.Case) (judge.Case, []record.Finding) {
	before, found := judge.StartOf(c.Past.Run, c.Job, c.Seen.Epoch)
	baselines, faults := a.Baselines(c.Seen.Epoch)
	c.Past.Before, c.Past.Baselines = before, baselines
	c.Faults = slices.Concat(c.Faults, faults)
	return c, found
}

// look watches the case's GPUs until they settle; the watch that was started ahead counts if it was of these.
func look(a *node.Access, c judge.Case, watch *ahead) judge.Case {
	e := &eyes{a: a, c: c, ahead: watch}
	if watch != nil {
		e.brief = watch.brief
	}
	if watch != nil && len(c.Seen.Cards) == 0 { // its errors are reported, though no GPU can be read
		e.take(watch.answer())
		e.ahead = nil
	}
	side, cards := judge.Observe(e, c.Order(c.Seen.Cards, a.Settle))
	c = e.seen(c)
	c.Seen.Side, c.Seen.Cards = side, cards
	return c
}

// AfterCleanUp watches the case's GPUs until they settle once more, and returns the case and what was seen.
func AfterCleanUp(a *node.Access, c judge.Case) (judge.Case, record.Side, []record.Finding) {
	e := &eyes{a: a, c: c}
	side, cards := judge.Observe(e, c.Order(c.Seen.Cards, a.Settle))
	faults := e.faults
	e.faults = nil
	c = e.seen(c)
	c.Seen.Cards = cards
	return c, side, faults
}

// Consult returns the case with the node's other records if something needs them; for clean GPUs nothing does.
func Consult(a *node.Access, c judge.Case) judge.Case {
	var faults []record.Finding
	switch {
	case c.Asks(), c.AsksRecorded():
		c, faults = a.Complete(c)
	case c.ComparesHealth():
		c.Node, faults = a.Records()
	}
	c.Faults = slices.Concat(c.Faults, faults)
	return c
}

func ids(cards []record.Assigned) (list []gpu.ID) {
	for _, c := range cards {
		list = append(list, c.Device.ID)
	}
	return list
}
