package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
)

// Whoever may hold memory is named to the user as far as he may know them.
func TestCandidates(t *testing.T) {
	mine := func(pid int, classes ...attrib.Class) finding.Holder {
		return finding.Holder{Process: attrib.Process{PID: pid, UID: 1001, Name: "worker", Start: 500 * time.Second}, Classes: classes}
	}
	theirs := finding.Holder{Process: attrib.Process{PID: 99, UID: 1002, Name: "secret"}}
	dead := &finding.Holder{Process: attrib.Process{PID: 70, Gone: true}, Classes: []attrib.Class{attrib.Phantom}}
	for _, tt := range []struct {
		name   string
		code   code.Code
		holder *finding.Holder
		who    []finding.Holder
		want   []string
	}{
		{"a phantom's holder", code.Phantom, dead, []finding.Holder{mine(71)}, []string{
			"bookend:   Holder: process 71 (worker) since 08:51:40 has the card open"}},
		{"a stopped one in a container", code.Phantom, dead, []finding.Holder{mine(71, attrib.Orphan, attrib.Stopped, attrib.Container)}, []string{
			"bookend:   Holder: process 71 (worker) since 08:51:40 has the card open;",
			"bookend:           stopped; kill -9 71 ends it, in a container"}},
		{"one that is ending", code.Phantom, dead, []finding.Holder{mine(71, attrib.Dying)}, []string{
			"bookend:   Holder: process 71 (worker) since 08:51:40 has the card open; about", "bookend:           to end"}},
		{"memory without a process", code.Residue, nil, []finding.Holder{mine(71), theirs}, []string{
			"bookend:   Maybe:  process 71 (worker) since 08:51:40 has the driver open",
			"bookend:   Maybe:  a process that is not yours"}},
		{"many", code.Residue, nil, []finding.Holder{mine(71), mine(72), mine(73), mine(74), mine(75), theirs, theirs}, []string{
			"bookend:   Maybe:  and 2 more processes of yours", "bookend:   Maybe:  2 processes that are not yours"}},
		{"nobody", code.Residue, nil, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := finding.Finding{Code: tt.code, GPU: "GPU-a", Bytes: gpu.Bytes(20480 * mebi), Holder: tt.holder, Candidates: tt.who}
			var text []string
			for _, l := range End(scene(1, settle.Flat, f)) {
				text = append(text, string(l))
			}
			for _, want := range tt.want {
				if !slices.Contains(text, want) {
					t.Errorf("no line %q in\n%s", want, strings.Join(text, "\n"))
				}
			}
			if all := strings.Join(text, "\n"); strings.Contains(all, "secret") || strings.Contains(all, "99") ||
				len(tt.want) == 0 && (strings.Contains(all, "Maybe") || strings.Contains(all, "Holder")) {
				t.Errorf("says too much:\n%s", all)
			}
		})
	}
}

// What is on other cards than the job's is the admin's.
func TestTrespassIsNotTheUsers(t *testing.T) {
	f := finding.Finding{Code: code.Trespass, GPU: "GPU-z", Bytes: gpu.Bytes(mebi), Holder: holder(1002)}
	if s := scene(1, settle.Clean, f); !s.Clean() || len(End(s)) != 1 {
		t.Errorf("%v", End(s))
	}
}

// A stopped process is said to be, with what ends it; of another user's nothing is.
func TestStoppedHolder(t *testing.T) {
	for uid, want := range map[uint32]bool{1001: true, 1002: false} {
		h := holder(uid)
		h.Classes = []attrib.Class{attrib.Stopped}
		var text []string
		for _, l := range End(scene(1, settle.Flat, found(code.Orphan, h, nil))) {
			text = append(text, string(l))
		}
		if got := strings.Contains(strings.Join(text, " "), "stopped"); got != want {
			t.Errorf("uid %d: %q", uid, text)
		}
	}
}
