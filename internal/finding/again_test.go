package finding

import (
	"fmt"
	"slices"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
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
	both := side(at(200), settle.Moving, reading(2*gib, listed(70, gib), listed(71, gib)), orphan, beside.Holder.Process)
	unknown := side(at(200), settle.Moving, reading(109*mib, gpu.Process{PID: 71, Memory: gpu.Unknown("not available")}))
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
		"the process has gone":          {[]Finding{held}, []Finding{moving}, gone, "BKD-ORPHAN? BKD-MOVING "},
		"it is there still":             {[]Finding{held}, []Finding{moving}, still, "BKD-ORPHAN? BKD-MOVING "},
		"named again":                   {[]Finding{held, moving}, []Finding{later, moving}, still, "BKD-ORPHAN BKD-MOVING "},
		"the list is not trusted":       {[]Finding{held}, []Finding{unread}, untrusted, "BKD-ORPHAN? BKD-UNREAD "},
		"not read":                      {[]Finding{held, residue}, []Finding{unread}, blind, "BKD-ORPHAN? BKD-RESIDUE? BKD-UNREAD "},
		"may be held by who was ended":  {[]Finding{exported}, []Finding{moving}, gone, "BKD-RESIDUE? BKD-MOVING "},
		"may have been held by anyone":  {[]Finding{residue, dead}, []Finding{moving}, buried, "BKD-RESIDUE? BKD-PHANTOM? BKD-MOVING "},
		"its memory cannot be read":     {[]Finding{residue}, []Finding{moving}, unknown, "BKD-RESIDUE? BKD-MOVING "},
		"lost":                          {[]Finding{residue}, []Finding{lost}, blind, "BKD-RESIDUE? BKD-LOST "},
		"each of two":                   {[]Finding{held, beside}, []Finding{moving}, both, "BKD-ORPHAN? BKD-ORPHAN? BKD-MOVING "},
		"not of memory":                 {[]Finding{small, lost}, []Finding{moving}, both, "BKD-ORPHAN? BKD-LOST BKD-MOVING "},
		"other GPUs are not seen again": {[]Finding{trespass}, nil, clean, "BKD-TRESPASS "},
		"the search was not whole":      {[]Finding{untraced}, []Finding{moving}, gone, "BKD-UNTRACED BKD-MOVING "},
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

// Clean-up ends the process that exported its memory, or that made up the threshold: what else moves on the GPU does
// not keep the rest certain.
func TestAgainAfterCleanUp(t *testing.T) {
	own := orphan
	own.Cgroup = slurm.Owner{ID: 10}
	for name, tt := range map[string]struct {
		held, extra, beside uint64
		other               attrib.Process
	}{
		"exported memory":          {5 * gib, 20 * gib, 100 * mib, attrib.Process{PID: 71, UID: 1002, Start: at(150)}},
		"most of what was certain": {600 * mib, 0, 100 * mib, attrib.Process{PID: 71, UID: alice, Start: at(150)}},
	} {
		used := tt.held + tt.extra + tt.beside + 18*mib
		one := ending(side(at(200), settle.Flat, reading(used, listed(70, tt.held), listed(71, tt.beside)), own, tt.other))
		first := Compare(one)
		if !slices.ContainsFunc(first, func(f Finding) bool { return len(f.Doubts) == 0 }) {
			t.Fatalf("%s: nothing was certain at first: %+v", name, first)
		}
		two := ending(side(at(203), settle.Moving, reading(tt.beside+9*mib, listed(71, tt.beside)), tt.other))
		for _, f := range two.Again(first, Compare(two)) {
			if len(f.Doubts) == 0 && f.Unknown == "" {
				t.Errorf("%s: certain still: %+v", name, f)
			}
		}
	}
}
