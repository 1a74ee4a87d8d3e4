package report

import (
	"strings"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/settle"
)

// Whoever had a process ended by clean-up reads of it, though it is but a note.
func TestEnded(t *testing.T) {
	self := &finding.Owner{Job: 42, UID: 1001, Level: attrib.ByCgroup}
	ended := func(uid uint32, how finding.Outcome, onCard bool) finding.Finding {
		f := found(code.Ended, holder(uid), self)
		if f.Ended = how; !onCard {
			f.GPU, f.Index = "", nil
		}
		return f
	}
	byTerm := ended(1001, finding.ByTerm, true)
	orphan := found(code.Orphan, holder(1001), self)
	const do = `
bookend:   Do:     end background processes before your script ends (wait, or
bookend:           trap 'kill 0' EXIT)`
	const clean = "\nbookend: GPU 0 of n1 left clean by your job"
	for _, tt := range []struct {
		name   string
		action config.Action
		found  []finding.Finding
		want   string
	}{
		{"ended", config.Note, []finding.Finding{byTerm}, `
bookend: process 4711 (python) of your job was still on GPU 0 and was ended
bookend: (SIGTERM)
bookend: GPU 0 of n1 clean now` + do},
		{"a warning says the same", config.Warn, []finding.Finding{ended(1001, finding.ByKill, false)}, `
bookend: process 4711 (python) of your job outlived it and was ended (SIGKILL)
bookend: GPU 0 of n1 clean now` + do},
		{"many", config.Note, []finding.Finding{byTerm, byTerm, byTerm, byTerm, byTerm}, strings.Repeat(`
bookend: process 4711 (python) of your job was still on GPU 0 and was ended
bookend: (SIGTERM)`, 3) + `
bookend: and 2 more processes of your job were ended
bookend: GPU 0 of n1 clean now` + do},
		{"something stays", config.Note, []finding.Finding{byTerm, orphan}, `
bookend: process 4711 (python) of your job was still on GPU 0 and was ended
bookend: (SIGTERM)
bookend: GPU 0 of n1 was not clean after your job
bookend:   Found:  20480 MiB held by process 4711 (python) since 08:50:00
bookend:   Who:    this job` + do + `
bookend:   More:   for your admin: bookend show 42 on n1`},
		{"not to be told", config.Ignore, []finding.Finding{byTerm}, clean},
		{"gone before", config.Note, []finding.Finding{ended(1001, finding.AlreadyGone, true)}, clean},
		{"refused", config.Note, []finding.Finding{ended(1001, finding.Refused, true)}, clean},
		{"hangs", config.Note, []finding.Finding{ended(1001, finding.StillThere, true)}, clean},
		{"an older record", config.Note, []finding.Finding{ended(1001, "", true)}, clean},
		{"another user's", config.Note, []finding.Finding{ended(1002, finding.ByTerm, true)}, clean},
		{"no time", config.Warn, []finding.Finding{{Code: code.Ended, Unknown: "no time left"}}, clean},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := scene(1, settle.Clean, tt.found...)
			for i, f := range tt.found {
				if f.Code == code.Ended {
					s.Verdict.Judged[i] = finding.Judged{Action: tt.action}
				}
			}
			var got strings.Builder
			for _, line := range End(s) {
				got.WriteString("\n" + string(line))
			}
			if got.String() != tt.want || s.Clean() != (tt.want == clean) {
				t.Errorf("clean %v, got:%s\nwant:%s", s.Clean(), got.String(), tt.want)
			}
		})
	}
}
