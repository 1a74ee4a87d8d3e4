package finding

import (
	"testing"
)

// Records and documents keep these values; the words are what an admin reads.
func TestOutcomes(t *testing.T) {
	for outcome, want := range map[Outcome][3]string{
		AlreadyGone: {"gone", "", "already gone"},
		ByTerm:      {"sigterm", "SIGTERM", "ended by SIGTERM"},
		ByKill:      {"sigkill", "SIGKILL", "ended by SIGKILL"},
		StillThere:  {"still_there", "", "still there"},
		Refused:     {"refused", "", "refused"},
		"abducted":  {"abducted", "", "abducted"}, // of a later release
		"":          {"", "", ""},
	} {
		if got := [3]string{string(outcome), outcome.Signal(), outcome.Text()}; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
