package judge

import (
	"testing"

	"bookend/internal/gpu"
)

// Where memory cannot be judged a drain's cause is gone when no process is listed, in a list that was read in full.
func TestSeenByList(t *testing.T) {
	c, cards := checkOf()
	one := gpu.Process{PID: 70, Memory: gpu.Bytes(gib)}
	for name, tt := range map[string]struct {
		unjudged, unlisted string
		processes          []gpu.Process
		clean              bool
	}{
		"no process":            {unjudged: "files are in it", clean: true},
		"a process":             {unjudged: "files are in it", processes: []gpu.Process{one}},
		"a list that is not":    {unjudged: "files are in it", unlisted: "not supported"},
		"memory that is judged": {},
	} {
		r := gpu.Reading{Device: cards[0].Device, ProcessesUnknown: tt.unlisted, Processes: tt.processes}
		r.Memory.Used, r.Memory.Unjudged = gpu.Bytes(9*gib), tt.unjudged
		c.Seen.Side.Snapshot.Readings = []gpu.Reading{r}
		if got := c.DrainSeen(Judgement{})[cards[0].Device.ID]; got.Clean != tt.clean || got.ByList != tt.clean {
			t.Errorf("%s: %+v, want clean %v", name, got, tt.clean)
		}
	}
}
