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
	exported := residue
	exported.Candidates = []Holder{{Process: orphan}}
	trespass := Finding{Code: code.Trespass, GPU: "GPU-1", Holder: &Holder{Process: attrib.Process{PID: 80}}}
	untraced := Finding{Code: code.Untraced, Unknown: "one process hung"}
	moving, unread := Finding{Code: code.Moving, GPU: card, Unknown: "after 2.0 s"}, Finding{Code: code.Unread, GPU: card, Unknown: "no reading"}
	lost := Finding{Code: code.Lost, GPU: card}
	later := held
	later.Bytes = gpu.Bytes(2 * gib)

	dead := Finding{Code: code.Phantom, GPU: card, Bytes: gpu.Bytes(gib), Holder: &Holder{Process: attrib.Process{PID: 72, Gone: true}}}
	beside := Finding{Code: code.Orphan, GPU: card, Bytes: gpu.Bytes(gib), Holder: &Holder{Process: attrib.Process{PID: 71}}}
	small := beside
	small.Bytes = gpu.Bytes(100 * mib)

	clean, flat := side(at(200), settle.Clean, reading(0)), side(at(200), settle.Flat, reading(gib))
	still := side(at(200), settle.Moving, reading(gib, listed(70, gib)), orphan)
	gone := side(at(200), settle.Moving, reading(gib))
	buried := side(at(200), settle.Moving, reading(2*gib, listed(72, gib)), dead.Holder.Process)
	young := orphan
	young.Start = at(199)
	reused := side(at(200), settle.Moving, reading(gib, listed(70, gib)), young)
	untrusted := gone
	untrusted.Snapshot.Readings = []gpu.Reading{{Device: gpu.Device{ID: card}, ProcessesUnknown: "not trusted"}}
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
		"the list is not trusted":       {[]Finding{held}, []Finding{unread}, untrusted, "BKD-ORPHAN? BKD-UNREAD "},
		"not read":                      {[]Finding{held, residue}, []Finding{unread}, blind, "BKD-ORPHAN? BKD-RESIDUE? BKD-UNREAD "},
		"may be held by who was ended":  {[]Finding{exported}, []Finding{moving}, gone, "BKD-RESIDUE? BKD-MOVING "},
		"may have been held by anyone":  {[]Finding{residue, dead}, []Finding{moving}, buried, "BKD-RESIDUE? BKD-PHANTOM? BKD-MOVING "},
		"lost":                          {[]Finding{residue}, []Finding{lost}, blind, "BKD-RESIDUE? BKD-LOST "},
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
