package fleet

import (
	"fmt"
	"strings"
	"testing"

	"bookend/test/must"
)

// A remark has codes and figures alone: of runs that have ended, and of findings that policy reports and that are known.
func TestRemarks(t *testing.T) {
	const found = `{"job": "4", "job_id": %d, "uid": 7, "user": "a; b", "state": %q, "began_at": "2026-11-21T08:00:00Z", "findings": [
		{"code": "BKD-DIRTY", "action": "note", "index": 0}, {"code": "BKD-CONFIG", "action": "warn"}, {"code": "BKD-NEW\n", "action": "drain"},
		{"code": "BKD-ORPHAN", "action": "drain", "index": 0, "bytes": {"bytes": 21474836480}, "holder": {"name": "x=,'"}},
		{"code": "BKD-ORPHAN", "action": "drain", "index": 0, "bytes": {"bytes": 21474836480}}, {"code": "BKD-HANG", "action": "repeat"},
		{"code": "BKD-XIDFATAL", "action": "warn", "index": 12, "xid": 79}, {"code": "BKD-GAP", "action": "warn"}]}`
	in := "n1: " + strings.ReplaceAll(doc("n1", fmt.Sprintf(`"ended": [`+found+`, {"job_id": 5, "state": "ended", "findings": []}],
		"running": [`+found+`],`, 4, "ended", 6, "running")), "\n", "") + "\n" +
		`n2: {"version": 2, "kind": "history", "node": "n2", "runs": [` + strings.ReplaceAll(fmt.Sprintf(found+","+found, 4, "ended", 7, "lost"), "\n", "") + "]}\n" +
		"n3: " + strings.ReplaceAll(doc("n4", fmt.Sprintf(`"ended": [`+found+`],`, 8, "ended")), "\n", "") + "\n"
	all, err := Remarks(strings.NewReader(in), func(code string) bool { return code != "BKD-CONFIG" && !strings.Contains(code, "NEW") })
	got := ""
	for _, r := range all {
		got += fmt.Sprintln(r.Job, r.UID, r.Node, r.Began.Format("15:04"), r.Text)
	}
	const text = ": BKD-ORPHAN gpu 0 20.0 GiB + BKD-HANG + BKD-XIDFATAL gpu 12\n"
	must.Not(t, err != nil || got != "4 7 n1 08:00 n1"+text+"4 7 n2 08:00 n2"+text, "%v\n%s", err, got)
}
