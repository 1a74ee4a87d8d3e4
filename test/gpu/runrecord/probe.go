package runrecord

import "encoding/json"

// Test is a test allocation that the lane itself asked the backend for, and what was on the card then.
type Test struct {
	What  string          `json:"what"`
	Chunk uint64          `json:"chunk,omitempty"` // bytes of each block of a process that freed every other one
	Kept  uint64          `json:"kept,omitempty"`  // bytes that it kept
	Used  uint64          `json:"used,omitempty"`  // bytes of the card in use, by nvidia-smi
	Probe json.RawMessage `json:"probe"`           // as the backend said it
}

// Pair is two programs that took turns, round by round: Bookend's, and a bare one that does the same work.
type Pair struct {
	Name  string  `json:"name"`
	What  string  `json:"what"`
	Limit float64 `json:"limit"` // the most that the median of the rounds' ratios may be
	Ours  Timing  `json:"ours"`
	Bare  Timing  `json:"bare"`
}

// Ratios are the rounds', Bookend's time by the bare program's.
func (p Pair) Ratios() (all []float64) {
	for i := range min(len(p.Ours.Millis), len(p.Bare.Millis)) {
		if p.Bare.Millis[i] > 0 {
			all = append(all, p.Ours.Millis[i]/p.Bare.Millis[i])
		}
	}
	return all
}

// Ratio is the median of them, 0 where there is none.
func (p Pair) Ratio() float64 { return Timing{Millis: p.Ratios()}.Median() }

// Held reports whether the pair stayed within its limit.
func (p Pair) Held() bool { return p.Ratio() > 0 && p.Ratio() <= p.Limit }

// NodeCheck is one run of the health check, which the lane started as slurmd does.
type NodeCheck struct {
	When    string  `json:"when"` // its part in the scene
	Seconds float64 `json:"seconds"`
	Exit    int     `json:"exit"`
	Said    string  `json:"said,omitempty"` // on its outputs
	// Cards are the UUIDs of those that it read, in order of their names. The rest is nothing where it left no record.
	Cards    []string        `json:"cards"`
	Seen     []Occupant      `json:"seen,omitempty"`
	Findings json.RawMessage `json:"findings,omitempty"` // as Bookend has them on record
	Lines    []string        `json:"lines,omitempty"`    // its lines of Bookend's log: what they say
	// Drain is what it decided about a drain of the node, and why; empty where there is none.
	Drain string `json:"drain,omitempty"`
}

// Occupant is a process that a health check saw on a card.
type Occupant struct {
	GPU   string `json:"gpu"`
	PID   int    `json:"pid"`
	Bytes uint64 `json:"bytes"`
}
