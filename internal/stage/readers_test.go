package stage

import (
	"testing"

	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/internal/state"
	"bookend/test/must"
)

// Which readers of /proc keep a new one from being started.
func TestHungAt(t *testing.T) {
	at := []record.Instance{{PID: 70, Start: 1}}
	many := make([]state.Stuck, state.MaxReaders)
	for i := range many {
		many[i] = state.Stuck{Op: procscan.HoldersOp, At: at}
	}
	for name, tt := range map[string]struct {
		readers []state.Stuck
		at      int
		blocked bool
	}{
		"none":              {nil, 0, false},
		"one":               {many[:1], 1, false},
		"did not say":       {[]state.Stuck{{Op: procscan.HoldersOp}}, 0, true},
		"another operation": {[]state.Stuck{{Op: procscan.ProcessesOp}}, 0, false},
		"nearly too many":   {many[1:], state.MaxReaders - 1, false},
		"too many":          {many, 1, false}, // the one that stands for all
	} {
		skip, blocked := hungAt(procscan.HoldersOp, tt.readers)
		must.Not(t, len(skip) != tt.at || blocked != tt.blocked, "%s: got %d places, blocked %v", name, len(skip), blocked)
	}
}
