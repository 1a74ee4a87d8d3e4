package record

// NodeCheck is one run of the health check, which the lane started as slurmd does.
type NodeCheck struct {
	When    string  `json:"when"` // its part in the scene
	Seconds float64 `json:"seconds"`
	Exit    int     `json:"exit"`
	Said    string  `json:"said,omitempty"` // on its outputs
	// Cards are the UUIDs of those that it read, in order of their names. The rest is nothing where it left no record.
	Cards    []string   `json:"cards"`
	Seen     []Occupant `json:"seen,omitempty"`
	Findings []Finding  `json:"findings,omitempty"`
	Lines    []string   `json:"lines,omitempty"` // its lines of Bookend's log: what they say
	// Drain is what it decided about a drain of the node, and why; empty where there is none.
	Drain string `json:"drain,omitempty"`
}

// Occupant is a process that a health check saw on a card.
type Occupant struct {
	GPU   string `json:"gpu"`
	PID   int    `json:"pid"`
	Bytes uint64 `json:"bytes"`
}
