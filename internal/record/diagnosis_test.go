package record

import (
	"slices"
	"testing"
)

// A job whose output says that memory ran out counts once for each cause that explains it.
func TestOutOfMemory(t *testing.T) {
	why := func(r Reason, causes ...Cause) *Diagnosis {
		return &Diagnosis{Reason: r, Causes: causes}
	}
	own := Cause{Name: CauseOwn, Answer: Yes}
	share := Cause{Name: CauseShare, Answer: Yes, With: CauseOwn}
	others := Cause{Name: CauseOthers, Answer: CannotTell}
	for name, tt := range map[string]struct {
		why  *Diagnosis
		want []CauseName
	}{
		"nothing to report":               {nil, nil},
		"failed without a word of memory": {why(ByFailure, own), nil},
		"its own use, of a share":         {why(ByMessage, others, own, share), []CauseName{CauseOwn}},
		"no cause found":                  {why(ByMessage, others), []CauseName{CauseUnknown}},
	} {
		if got := tt.why.OutOfMemory(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
