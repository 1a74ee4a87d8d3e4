package finding

import (
	"encoding/json"
	"testing"

	"bookend/internal/code"
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

// A record keeps the number of an Xid and what clean-up did; an older one has neither, and is read all the same.
func TestRecorded(t *testing.T) {
	for record, want := range map[string]Finding{
		`{"code":"BKD-XIDFATAL","xid":79}`:                                              {Code: code.XidFatal, Xid: 79},
		`{"code":"BKD-XIDFATAL","observed":"Xid 79 (the card has fallen off the bus)"}`: {Code: code.XidFatal, Observed: "Xid 79 (the card has fallen off the bus)"},
		`{"code":"BKD-ENDED","ended":"sigkill"}`:                                        {Code: code.Ended, Ended: ByKill},
		`{"code":"BKD-ENDED","observed":"process 4711: ended by SIGKILL"}`:              {Code: code.Ended, Observed: "process 4711: ended by SIGKILL"},
	} {
		var got Finding
		if err := json.Unmarshal([]byte(record), &got); err != nil || got.Xid != want.Xid || got.Ended != want.Ended || got.Observed != want.Observed {
			t.Errorf("%s: %+v, %v", record, got, err)
		}
		if again, err := json.Marshal(got); err != nil || string(again) != record {
			t.Errorf("written again as %s, want %s (%v)", again, record, err)
		}
	}
}
