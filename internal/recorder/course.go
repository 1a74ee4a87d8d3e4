package recorder

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/record"
)

// maxPoints is how many steps a curve has at most.
const maxPoints = 240

// slotAt returns the step of a moment. Beyond maxPoints the steps double in length, also those of processes.
func slotAt(c *record.Course, since time.Duration, also []record.RecordedProcess) int {
	c.Step = cmp.Or(c.Step, time.Second)
	for since/c.Step >= maxPoints {
		c.Step, c.Used = c.Step*2, halved(c.Used)
		for i := range also {
			also[i].Curve = halved(also[i].Curve)
		}
	}
	return int(since / c.Step)
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
