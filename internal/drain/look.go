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

// unverifiable says why no health check can ever find all of a drain's causes gone, empty where one can.
func (w Written) unverifiable() string {
	for _, c := range w.Causes {
		if !Verifiable(c.Code) || c.GPU == "" {
			return fmt.Sprintf("no health check can tell that %s is over", c.Code)
		}
	}
	if len(w.Causes) == 0 || !w.Epoch.Same(w.Epoch) {
		return "no health check can tell that it is over"
	}
	return ""
}

// verify says whether a health check found all of a drain's causes gone, and nothing on any other card of jobs: what
// else would have drained the node found it drained, and left no trace. It gives the worst answer.
func verify(causes []Cause, cards map[gpu.ID]Seen) (worst Answer, why string) {
	worst = Clean
	for _, c := range causes {
		name := string(c.GPU)
		if c.Index != nil { // as an admin knows it
			name = fmt.Sprint(*c.Index)
		}
		switch seen := cards[c.GPU]; {
		case seen.Memory == Dirty:
			return Dirty, fmt.Sprintf("GPU %s is not clean: %s", name, seen.Why)
		case seen.Memory != Clean:
			worst, why = Unknown, fmt.Sprintf("it is not known whether GPU %s is clean: %s", name,
				cmp.Or(seen.Why, "it was not looked at"))
		}
	}
	if worst != Clean {
		return worst, why
	}
	for _, id := range slices.Sorted(maps.Keys(cards)) {
		if seen := cards[id]; seen.Memory == Dirty && seen.Given {
			return Dirty, fmt.Sprintf("the drain's cause is gone, but GPU %s is not clean: %s", id, seen.Why)
		}
	}
	return Clean, ""
}
