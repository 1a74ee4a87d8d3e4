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
	Health gpu.Health
}

// Verifiable reports whether a health check can tell that a finding is gone.
func Verifiable(c code.Code) bool {
	e := c.Traits()
	return e.Memory != "" || e.Gone != code.Fact{}
}

// answer says whether a card is free of a finding, and what was seen where it is not known to be.
func (s Seen) answer(c code.Code) (Answer, string) {
	e := c.Traits()
	if e.Memory != "" {
		return s.Memory, s.Why
	}
	switch f, told := s.Health.Fact(e.Gone.Code); {
	case e.Gone == code.Fact{}:
		return Unknown, "no health check can tell"
	case !told:
		return Unknown, "its condition was not read"
	case f.Unknown != "":
		return Unknown, f.Unknown
	case f.Value != e.Gone.Good:
		return Dirty, fmt.Sprintf("%s is %s", e.Gone.Code, f.Value)
	}
	return Clean, ""
}

// verify says whether a health check found all of a drain's causes gone, and nothing on any other card of jobs: what else would
// have drained the node found it drained, and left no trace. It gives the worst answer. never reports a cause of which no check can
// ever tell.
func verify(causes []Cause, cards map[gpu.ID]Seen) (worst Answer, why string, never bool) {
	worst = Clean
	for _, c := range causes {
		if !Verifiable(c.Code) || c.GPU == "" {
			return Unknown, fmt.Sprintf("no health check can tell that %s is over", c.Code), true
		}
		seen, looked := cards[c.GPU]
		a, what := seen.answer(c.Code)
		switch {
		case !looked || a != Clean && a != Dirty:
			if worst == Clean {
				worst, why = Unknown, fmt.Sprintf("nobody knows whether GPU %s is clean: %s", c.card(), cmp.Or(what, "it was not looked at"))
			}
		case a == Dirty && worst != Dirty:
			worst, why = Dirty, fmt.Sprintf("GPU %s is not clean: %s", c.card(), what)
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
