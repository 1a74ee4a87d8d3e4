package health

import (
	"fmt"
	"strconv"
	"strings"

	"bookend/internal/gpu"
)

// question is one fact, with what it was at the last look: "" where that is not known.
type question struct{ value, before string }

// answer is what a row makes of it; the zero answer is no.
type answer struct{ observed, unknown string }

func equal(r Row, q question) answer {
	if q.value != r.Value {
		return answer{}
	}
	return answer{observed: r.observed}
}

// another is any number: the words have rows before this one.
func another(r Row, q question) answer {
	n, err := strconv.ParseUint(q.value, 10, 64)
	if err != nil || n == 0 {
		return answer{}
	}
	return answer{observed: r.observed + strconv.FormatUint(n, 10)}
}

// underWay is neither well nor wrong yet.
func underWay(r Row, q question) answer {
	a := equal(r, q)
	a.unknown = a.observed
	return a
}

// counted compares a counter that starts at 0 whenever the driver is loaded.
func counted(_ Row, q question) answer {
	now, err := strconv.ParseUint(q.value, 10, 64)
	if err != nil || now == 0 {
		return answer{}
	}
	before, err := strconv.ParseUint(q.before, 10, 64)
	if err == nil && before <= now {
		if before == now {
			return answer{}
		}
		return answer{observed: fmt.Sprintf(
			"%d uncorrectable memory errors more than at the last look (%d then, %d now)",
			now-before, before, now)}
	}
	a := answer{observed: fmt.Sprintf("%d uncorrectable memory errors since the driver was loaded", now)}
	a.unknown = a.observed + ": there is no earlier count to say whether this job met them"
	return a
}

// slowed picks the reasons that say something of the machine: a power limit is how a card is meant to work.
func slowed(r Row, q question) answer {
	var reasons []string
	for reason := range strings.SplitSeq(q.value, "+") {
		for _, part := range []string{"thermal", "brake", "slowdown"} {
			if strings.Contains(reason, part) {
				reasons = append(reasons, reason)
				break
			}
		}
	}
	if reasons == nil {
		return answer{}
	}
	return answer{observed: r.observed + strings.Join(reasons, ", ")}
}

// asksNothing reports that the driver was asked whether the card needs recovery, and said no.
func asksNothing(h gpu.Health) bool {
	f, ok := h.Fact(gpu.RecoveryAction)
	return ok && f.Unknown == "" && f.Value == "none"
}
