package stage

import (
	"errors"
	"fmt"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/routine"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// check is one run of the health check: a root hook of no job, which looks at all of the node's cards.
type check struct {
	*hook // its cards are those that no job has and that are not clean

	last     *ledger.Check // the one before, nil where there was none that holds
	seen     gpu.Snapshot  // one look at every card
	side     finding.Side  // the same, with who is on them
	every    []finding.Card
	keepers  *ledger.Keepers   // nil where nobody has searched for any
	leftOver map[gpu.ID]uint64 // bytes on cards that no job has, by what was found there
}

// HealthCheck is bookend-healthcheck. It ends with 0 unless it could not check the node at all.
func HealthCheck(env Env) (exit int) {
	if code, done := preamble(env, "bookend-healthcheck"); done {
		return code
	}
	c := &check{hook: &hook{frame: newFrame(env), phase: slurm.HealthCheck}, leftOver: map[gpu.ID]uint64{}}
	confined(env)
	defer routine.Recover(func(p *routine.Panic) {
		c.panicked(p)
		exit = int(c.exit.Load())
	})
	defer c.guard(c.panicked, c.leave)()
	if c.attempt() {
		c.checked = c.gauges()
		c.cards = c.every // what the log's line is about
		c.outputs()
	}
	return int(c.exit.Load())
}

// attempt does the work. It returns false where there is nothing to say: no GPU on this node, or another check at work.
func (c *check) attempt() (worth bool) {
	defer routine.Recover(func(p *routine.Panic) {
		c.panicked(p)
		c.giveUp(c.end())
		worth = true
	})
	c.configure()
	c.settle = c.cfg.Settle.Epilog // nobody waits for it
	if !c.hasCards() {
		return false
	}
	for _, f := range c.found { // the configuration's
		fmt.Fprintf(c.env.Stderr, "bookend: %s\n", f.Observed)
	}
	if !c.nameNode() {
		c.decide()
		return true
	}
	c.openState()
	if !c.alone() {
		return false
	}
	c.recallLast()
	c.examine()
	c.decide() // the findings are final here
	c.settleDrain()
	c.decide() // with what became of asking Slurm
	c.keepLast()
	return true
}

// examine looks, judges what it saw, and keeps what later hooks want to know.
func (c *check) examine() {
	heard := c.listen(c.lastMark())
	c.lookAround()
	heard()
	c.judge()
	c.sight()
	c.settleRuns()
	c.countKeepers()
}

// leave is the last word of a health check that is stopped.
func (c *check) leave(why string) {
	c.exit.Store(int32(code.Exit(code.Deadline)))
	c.hook.leave(why)
}

// alone makes this the node's one health check at work. A second one, from a timer beside Slurm's, ends at once.
func (c *check) alone() bool {
	if c.store == nil {
		return true
	}
	_, err := c.store.BeOnlyCheck()
	if errors.Is(err, state.ErrLocked) {
		return false
	}
	c.try(err)
	return true
}
