package operation

import (
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/state"
)

// Which readers of /proc keep a new one from being started.
func TestHung(t *testing.T) {
	at := []attrib.Instance{{PID: 70, Start: 1}}
	one := state.Reader{Stuck: state.Stuck{Op: Holders.Name}, At: at}
	many := make([]state.Reader, state.MaxReaders)
	for i := range many {
		many[i] = one
	}
	for name, tt := range map[string]struct {
		readers []state.Reader
		at      int
		blocked bool
	}{
		"none":              {nil, 0, false},
		"one":               {many[:1], 1, false},
		"did not say":       {[]state.Reader{{Stuck: state.Stuck{Op: Holders.Name}}}, 0, true},
		"another operation": {[]state.Reader{{Stuck: state.Stuck{Op: Processes.Name}}}, 0, false},
		"nearly too many":   {many[1:], state.MaxReaders - 1, false},
		"too many":          {many, state.MaxReaders, true},
	} {
		if skip, blocked := Hung(Holders.Name, tt.readers); len(skip) != tt.at || blocked != tt.blocked {
			t.Errorf("%s: %d places, blocked %v", name, len(skip), blocked)
		}
	}
}
