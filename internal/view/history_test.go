package view

import (
	"encoding/json"
	"strings"
	"testing"

	"bookend/internal/record"
	"bookend/internal/safetext"
	"bookend/test/golden"
	"bookend/test/must"
)

// TestHistory holds what is shown of runs to testdata/history.txtar. What several users meet is told from what one user's
// program does; what a start found is the earlier job's.
func TestHistory(t *testing.T) {
	golden.Archive(t, *update, "testdata/history.txtar", func(given string) string {
		var runs []record.Run
		must.Do(t, json.Unmarshal([]byte(given), &runs))
		var b strings.Builder
		safetext.KeepAll(NewHistory("n1", record.Newest(runs), runs, len(runs)/5), 400).Text(&b)
		safetext.KeepAll(NewOffenders("n1", runs), 400).Text(&b)
		return b.String()
	})
}
