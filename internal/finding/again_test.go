package finding

import (
	"fmt"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/settle"
)

// A second look adds what it found, and takes back no more than what it proves gone.
func TestAgain(t *testing.T) {
	held := Finding{Code: code.Orphan, GPU: card, Bytes: gpu.Bytes(gib), Holder: &Holder{Process: orphan}}
	residue := Finding{Code: code.Residue, GPU: card, Bytes: gpu.Bytes(gib)}
	trespass := Finding{Code: code.Trespass, GPU: "GPU-1", Holder: &Holder{Process: attrib.Process{PID: 80}}}
	untraced := Finding{Code: code.Untraced, Unknown: "one process hung"}
	moving, unread := Finding{Code: code.Moving, GPU: card, Unknown: "after 2.0 s"}, Finding{Code: code.Unread, GPU: card, Unknown: "no reading"}
	later := held
	later.Bytes = gpu.Bytes(2 * gib)
	clean, flat := side(at(200), settle.Clean, reading(0)), side(at(200), settle.Flat, reading(gib))
	still := side(at(200), settle.Moving, reading(gib, listed(70, gib)), orphan)
	gone := side(at(200), settle.Moving, reading(gib))
	young := orphan
	young.Start = at(199)
	reused := side(at(200), settle.Moving, reading(gib, listed(70, gib)), young)
	blind := Side{Curves: map[gpu.ID]settle.Curve{card: {State: settle.Unknown}}}

	for name, tt := range map[string]struct {
		first, second []Finding
		now           Side
		want          string // codes; "?" marks one with a doubt
	}{
		"it is clean":                   {[]Finding{held, residue, untraced}, nil, clean, ""},
		"something else is there":       {[]Finding{held}, []Finding{residue}, flat, "BKD-RESIDUE "},
		"the process has gone":          {[]Finding{held}, []Finding{moving}, gone, "BKD-MOVING "},
		"its PID is another's":          {[]Finding{held}, []Finding{moving}, reused, "BKD-MOVING "},
		"it is there still":             {[]Finding{held}, []Finding{moving}, still, "BKD-ORPHAN? BKD-MOVING "},
		"named again":                   {[]Finding{held, moving}, []Finding{later, moving}, still, "BKD-ORPHAN BKD-MOVING "},
		"not read":                      {[]Finding{held, residue}, []Finding{unread}, blind, "BKD-ORPHAN? BKD-RESIDUE? BKD-UNREAD "},
		"other GPUs are not seen again": {[]Finding{trespass}, nil, clean, "BKD-TRESPASS "},
	} {
		got := ""
		for _, f := range ending(tt.now).Again(tt.first, tt.second) {
			mark := ""
			if len(f.Doubts) > 0 {
				mark = "?"
			}
			got += fmt.Sprintf("%s%s ", f.Code, mark)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if len(held.Doubts) > 0 {
		t.Errorf("the first list was changed: %+v", held)
	}
}
