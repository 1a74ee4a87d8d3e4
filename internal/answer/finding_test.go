package answer

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
)

// What a finding does not have is null or empty, never a number that could be meant.
func TestXidAndEnded(t *testing.T) {
	for want, f := range map[string]finding.Finding{
		`"xid":79,"ended":""`:        {Code: code.XidFatal, Xid: 79},
		`"xid":null,"ended":"gone"`:  {Code: code.Ended, Ended: finding.AlreadyGone},
		`"xid":null,"ended":""`:      {Code: code.Ended, Observed: "process 7: ended by SIGKILL"}, // an older record
		`"xid":null,"ended":"\\x0a"`: {Code: code.Ended, Ended: "\n"},
	} {
		got, err := json.Marshal(newFinding(f, finding.Judged{}, func(time.Duration) time.Time { return time.Time{} }))
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s, %v: no %s", got, err, want)
		}
	}
}
