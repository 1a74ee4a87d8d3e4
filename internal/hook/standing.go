package hook

import (
	"maps"
	"slices"

	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// withStanding returns the case with the fatal errors of GPUs that the node has on record.
func withStanding(a *node.Access, c judge.Case) judge.Case {
	standing, err := state.Standing.Load(a.Store)
	c.Past.Standing, c.Faults = standing, slices.Concat(c.Faults, node.Fault(err))
	return c
}

// keepStanding puts on record what this hook has learned of fatal errors. drained is set if the node is drained for
// what is judged so. A job's hook without news writes nothing.
func keepStanding(a *node.Access, c judge.Case, j judge.Judgement, drained bool) []record.Finding {
	return node.Fault(state.Standing.Update(a.Store, func(now *record.Standing) error {
		next := c.StandingAfter(*now, j, drained)
		if a.Phase != slurm.HealthCheck && next.Epoch == now.Epoch && slices.Equal(next.Faults, now.Faults) &&
			maps.Equal(next.Errors, now.Errors) {
			return state.ErrUnchanged
		}
		*now = next
		return nil
	}))
}
