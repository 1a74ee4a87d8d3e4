package ledger

import (
	"testing"
	"time"

	"bookend/internal/gpu"
)

func TestAccounts(t *testing.T) {
	began := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	var many []gpu.Accounted
	for i := range 100 {
		many = append(many, gpu.Accounted{PID: i + 1, Peak: gpu.Bytes(uint64(i)),
			Began: began.Add(time.Duration(i-50) * time.Second)})
	}
	all := []gpu.Health{{Device: "A", Accounting: gpu.Accounting{Mode: "on", Processes: many}}, {Device: "B"}}
	for name, tt := range map[string]struct {
		since       time.Time
		kept, first int
	}{
		"since the job began": {began, 32, 100},
		"late":                {began.Add(40 * time.Second), 10, 100},
		"no start on record":  {time.Time{}, 32, 100},
		"none since":          {began.Add(time.Hour), 0, 0},
	} {
		got := Accounts(all, tt.since)
		processes := got[0].Accounting.Processes
		if len(processes) != tt.kept || tt.kept > 0 && processes[0].PID != tt.first || got[0].Accounting.Mode != "on" ||
			len(got) != 2 {
			t.Errorf("%s: kept %d, first %+v", name, len(processes), processes[:min(1, len(processes))])
		}
	}
	if all[0].Accounting.Processes[0].PID != 1 || len(all[0].Accounting.Processes) != 100 {
		t.Error("what was read was changed")
	}
}
