package ledger

import (
	"slices"
	"time"
)

// Curve is the course of a GPU's memory: the most in use in each of at most MaxPoints steps of equal length.
type Curve struct {
	Step time.Duration `json:"step_ns"`
	Used []uint32      `json:"used_mib"`
}

// at is the step of a moment since the recording began; it has at least what was used then. Where there are more than
// MaxPoints the steps grow to twice their length.
func (c *Curve) at(since time.Duration, used uint64, also []RecordedProcess) int {
	if c.Step == 0 {
		c.Step = time.Second
	}
	for since/c.Step >= MaxPoints {
		c.Step, c.Used = c.Step*2, halved(c.Used)
		for i := range also {
			also[i].Curve = halved(also[i].Curve)
		}
	}
	slot := int(since / c.Step)
	c.Used = reach(c.Used, slot, inMiB(used))
	return slot
}

// reach sets a step to at least a figure. Steps between two samples that follow one another have what was there before;
// where more is missing they have nothing.
func reach(points []uint32, slot int, figure uint32) []uint32 {
	const between = 3 // of a second each, as two samples lie at most apart where none was missed
	was := uint32(0)
	if n := len(points); n > 0 && slot-n <= between {
		was = points[n-1]
	}
	for len(points) < slot {
		points = append(points, was)
	}
	if len(points) == slot {
		return append(points, figure)
	}
	points[slot] = max(points[slot], figure)
	return points
}

// halved joins each two points to the larger one.
func halved(points []uint32) []uint32 {
	for i := 0; i < len(points); i += 2 {
		points[i/2] = slices.Max(points[i:min(i+2, len(points))])
	}
	return points[:(len(points)+1)/2]
}

func inMiB(bytes uint64) uint32 { return uint32(min(bytes>>20, 1<<32-1)) }
