package record

import (
	"slices"
	"time"
)

// Course is a GPU's memory over time: the most in use in each of at most MaxPoints steps of equal length.
type Course struct {
	Step time.Duration `json:"step_ns"`
	Used []uint32      `json:"used_mib"`
}

// at raises the step of a moment to what was used then, and returns it. Beyond MaxPoints the steps double in length.
func (c *Course) at(since time.Duration, used uint64, also []RecordedProcess) int {
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

// reach raises a step to a figure. Steps between consecutive samples get the figure before, those in longer gaps 0.
func reach(points []uint32, slot int, figure uint32) []uint32 {
	const between = 3 // steps of one second: as far as two samples are apart if none was missed
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

func halved(points []uint32) []uint32 {
	for i := 0; i < len(points); i += 2 {
		points[i/2] = slices.Max(points[i:min(i+2, len(points))])
	}
	return points[:(len(points)+1)/2]
}

func inMiB(bytes uint64) uint32 { return uint32(min(bytes>>20, 1<<32-1)) }
