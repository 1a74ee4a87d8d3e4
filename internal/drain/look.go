package drain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"bookend/internal/code"
	"bookend/internal/gpu"
)

// Answer is what a health check can say of a card.
type Answer string

// The answers. The zero value is none of them: not looked at, which is unknown.
const (
	Clean   Answer = "clean"
	Dirty   Answer = "dirty"
	Unknown Answer = "unknown"
)

// Seen is what one health check saw of a card.
type Seen struct {
	Memory Answer // Clean: at rest, and nobody and nothing on it but what always is
	Why    string // where Memory is not Clean
	Given  bool   // to a job on record: a card that no job ever has is none of Slurm's
}

// Verifiable reports whether a health check can tell that a finding is gone: that of memory on a card. What the driver
// says of a card's condition ends with a repair or a reset, and whoever does that resumes the node.
func Verifiable(c code.Code) bool { return c.Traits().Memory != "" }

// verify says whether a health check found all of a drain's causes gone, and nothing on any other card of jobs: what
// else would have drained the node found it drained, and left no trace. It gives the worst answer. never reports a
// cause of which no check can ever tell.
func verify(causes []Cause, cards map[gpu.ID]Seen) (worst Answer, why string, never bool) {
	worst = Clean
	for _, c := range causes {
		if !Verifiable(c.Code) || c.GPU == "" {
			return Unknown, fmt.Sprintf("no health check can tell that %s is over", c.Code), true
		}
		switch seen := cards[c.GPU]; {
		case seen.Memory == Dirty && worst != Dirty:
			worst, why = Dirty, fmt.Sprintf("GPU %s is not clean: %s", c.card(), seen.Why)
		case seen.Memory != Dirty && seen.Memory != Clean && worst == Clean:
			worst, why = Unknown, fmt.Sprintf("it is not known whether GPU %s is clean: %s", c.card(),
				cmp.Or(seen.Why, "it was not looked at"))
		}
	}
	if worst == Clean {
		worst, why = anyDirty(cards)
	}
	return worst, why, len(causes) == 0
}

func anyDirty(cards map[gpu.ID]Seen) (worst Answer, why string) {
	for _, id := range slices.Sorted(maps.Keys(cards)) {
		if seen := cards[id]; seen.Memory == Dirty && seen.Given {
			return Dirty, fmt.Sprintf("the drain's cause is gone, but GPU %s is not clean: %s", id, seen.Why)
		}
	}
	return Clean, ""
}

// card is how an admin knows it.
func (c Cause) card() string {
	if c.Index != nil {
		return fmt.Sprint(*c.Index)
	}
	return string(c.GPU)
}
