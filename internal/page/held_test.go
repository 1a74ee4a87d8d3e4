package page

import (
	"fmt"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/settle"
)

// What stays on a card is drawn between looks that saw it, and no look's word goes further than what it saw.
func TestHeld(t *testing.T) {
	orphan := found(code.Orphan, cardA, 20*gib)
	leaves := func() ledger.Run { return ran(1, cardA, seenAs(0, cardA, 0), seenAs(2, cardA, 20*gib, orphan)) }
	unread := seenAs(6, cardA, 0, finding.Finding{Code: code.Unread, GPU: cardA, Unknown: "no answer"})
	unread.Curves = map[gpu.ID]settle.Curve{cardA: {State: settle.Unknown}}
	reloaded := ran(2, cardA, seenAs(6, cardA, 9*gib, found(code.Dirty, cardA, 9*gib)), seenAs(8, cardA, 0))
	reloaded.Epoch.Module = "m2"
	vague := found(code.Residue, cardA, 0)
	vague.Bytes = gpu.Unknown("shared memory counted twice")
	gone := seenAs(4, cardB, 0)
	for name, tt := range map[string]struct {
		runs  []ledger.Run
		check *ledger.Check
		want  string
	}{
		"nothing": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), seenAs(2, cardA, 0))}, nil,
			""},
		"nobody looked since": {[]ledger.Run{leaves()}, nil, "2-24 20 unseen"},
		"gone when the next job came": {[]ledger.Run{leaves(),
			ran(2, cardA, seenAs(6, cardA, 0), seenAs(8, cardA, 0))}, nil, "2-6 20 gone"},
		"found again": {[]ledger.Run{leaves(),
			ran(2, cardA, seenAs(6, cardA, 20*gib, found(code.Dirty, cardA, 20*gib)), seenAs(8, cardA, 0))}, nil,
			"2-6 20 stayed, 6-8 20 gone"},
		"kept over a job that adds none": {[]ledger.Run{leaves(),
			ran(2, cardA, seenAs(6, cardA, 20*gib, found(code.Dirty, cardA, 20*gib)), seenAs(8, cardA, 20*gib))}, nil,
			"2-8 20 stayed, 8-24 20 unseen"},
		"a job adds to it": {[]ledger.Run{leaves(),
			ran(2, cardA, seenAs(6, cardA, 20*gib, found(code.Dirty, cardA, 20*gib)),
				seenAs(8, cardA, 50*gib, found(code.Orphan, cardA, 30*gib)))},
			nil, "2-8 20 stayed, 8-24 50 unseen"},
		"the next look could not tell": {[]ledger.Run{leaves(), ran(2, cardA, unread, seenAs(8, cardA, 0))}, nil,
			"2-6 20 unknown"},
		"the driver was reloaded": {[]ledger.Run{leaves(), reloaded}, nil, "2-6 20 gone, 6-8 9 gone"},
		"how much nobody knows": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), seenAs(2, cardA, gib, vague))},
			nil, "2-24 ? unseen"},
		"seen from aside": {[]ledger.Run{leaves(),
			ran(2, cardB, besides(seenAs(3, cardB, 0), cardA, 20*gib), besides(gone, cardA, 0))}, nil,
			"2-3 20 stayed, 3-4 20 gone"},
		"in use, by whom nobody knows": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), seenAs(2, cardA, 0)),
			ran(2, cardB, besides(seenAs(3, cardB, 0), cardA, gib), besides(gone, cardA, 0))},
			nil, "3-4 1 gone unclaimed"},
		"beside another job of the card": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), seenAs(9, cardA, 0)),
			ran(2, cardA, seenAs(3, cardA, gib, found(code.Dirty, cardA, gib)), seenAs(4, cardA, 0))}, nil, ""},
		"beside another job that got it so": {[]ledger.Run{leaves(),
			ran(2, cardA, seenAs(5, cardA, 20*gib, found(code.Dirty, cardA, 20*gib)), seenAs(20, cardA, 20*gib)),
			ran(3, cardA, seenAs(8, cardA, 20*gib, found(code.Dirty, cardA, 20*gib)), seenAs(9, cardA, 20*gib))}, nil,
			"2-20 20 stayed, 20-24 20 unseen"},
		"an end that nobody saw": {[]ledger.Run{leaves(),
			ran(2, cardA, seenAs(6, cardA, 20*gib, found(code.Dirty, cardA, 20*gib)),
				ledger.End{At: seenAs(8, cardA, 0).At, Wall: hour(8), Unseen: "its job began anew"}),
			ran(3, cardA, seenAs(10, cardA, 0), seenAs(11, cardA, 0))}, nil, "2-6 20 stayed, 6-10 20 gone"},
		"a small remainder": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), seenAs(2, cardA, 9<<20)),
			ran(2, cardB, besides(seenAs(3, cardB, 0), cardA, 9<<20), gone)}, nil, ""},
		"a health check saw it": {[]ledger.Run{leaves()},
			&ledger.Check{Wall: hour(5), Epoch: epoch, Snapshot: seenAs(5, cardA, 20*gib).Snapshot,
				Leaked: map[gpu.ID]uint64{cardA: 20 * gib}}, "2-5 20 stayed, 5-24 20 unseen"},
		"a health check saw it gone": {[]ledger.Run{leaves()},
			&ledger.Check{Wall: hour(5), Epoch: epoch, Snapshot: seenAs(5, cardA, 0).Snapshot}, "2-5 20 gone"},
		"a health check that was ended": {[]ledger.Run{leaves()},
			&ledger.Check{Wall: hour(5), Epoch: epoch, Snapshot: seenAs(5, cardA, 0).Snapshot, Stopped: true},
			"2-24 20 unseen"},
	} {
		c := Lay(tt.runs, Request{Now: hour(24), Since: hour(0), Check: tt.check, Blocks: 100000})
		var got []string
		for _, h := range c.Lanes[0].Held {
			bytes := fmt.Sprint(h.Bytes.Bytes / gib)
			if !h.Bytes.Known() {
				bytes = "?"
			}
			text := fmt.Sprintf("%.0f-%.0f %s %s", h.Start.Sub(noon).Hours(), h.End.Sub(noon).Hours(), bytes, h.Fate)
			if h.Unclaimed {
				text += " unclaimed"
			}
			got = append(got, text)
		}
		if sum := c.Lanes[0].Sum; strings.HasSuffix(tt.want, "unclaimed") && (sum.Worst.Bytes != 0 || sum.Held != 0) {
			t.Errorf("%s: counted as left behind: %+v", name, sum)
		}
		if text := strings.Join(got, ", "); text != tt.want {
			t.Errorf("%s: %s, want %s", name, text, tt.want)
		}
	}
}

func TestCheckIsAnEntry(t *testing.T) {
	check := &ledger.Check{Wall: hour(5), Epoch: epoch, Snapshot: seenAs(5, cardB, 0).Snapshot,
		Cards:    []ledger.Assigned{{Index: 6, Device: gpu.Device{ID: cardB}}},
		Findings: []finding.Finding{found(code.Trespass, cardB, gib)}}
	c := Lay([]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), seenAs(2, cardA, 0))},
		Request{Now: hour(24), Check: check})
	if len(c.Entries) != 1 || c.Entries[0].Phase != Check || c.Entries[0].Job != "" || len(c.Lanes) != 2 ||
		*c.Lanes[1].Card.Index != 6 || len(c.Lanes[1].Marks) != 1 {
		t.Errorf("%+v", c)
	}
}

func TestCards(t *testing.T) {
	runs := aDay()
	for name, want := range map[string]string{
		"": "ab", "0": "a", "1": "b", "2": "", "nvidia1": "b", "nvidia": "", "GPU-aaaa": "a", "GPU-": "",
		"GPU-aaaaaaaa": "a", "gpu-aaaa": "",
	} {
		c := Lay(runs, Request{Now: hour(24), GPU: name})
		got := ""
		for _, l := range c.Lanes {
			got += string(l.Card.ID[4])
		}
		if got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	one := Lay(runs, Request{Now: hour(24), GPU: "0"})
	if one.Total.Jobs != 5 || len(one.Entries) != 2 {
		t.Errorf("%d jobs, %d findings of one card", one.Total.Jobs, len(one.Entries))
	}
}

// Where marks would cover each other one stands for all, the gravest first.
func TestMarks(t *testing.T) {
	var runs []ledger.Run
	for i, at := range []float64{1, 1.1, 1.2, 10} {
		c := []code.Code{code.Dirty, code.Throttle, code.Orphan, code.Dirty}[i]
		runs = append(runs, ran(1, cardA, ledger.End{}, seenAs(at, cardA, gib, found(c, cardA, gib))))
	}
	c := Lay(runs, Request{Since: hour(0), Until: hour(24), Now: hour(24)})
	m := c.Lanes[0].Marks
	if len(m) != 2 || len(m[0].Entries) != 3 || c.Entries[m[0].Entries[0]].Finding.Code != code.Orphan ||
		c.Entries[m[0].Entries[2]].Finding.Code != code.Throttle {
		t.Errorf("%+v", m)
	}
}

// What policy ignores is no entry; what lies outside the time shown is none either.
func TestEntries(t *testing.T) {
	quiet := seenAs(2, cardA, gib, found(code.Orphan, cardA, gib), found("BKD-NEW", cardA, 0))
	quiet.Verdict.Judged[0].Action = "ignore"
	c := Lay([]ledger.Run{ran(1, cardA, seenAs(0, cardA, gib, found(code.Dirty, cardA, gib)), quiet)},
		Request{Since: hour(1), Until: hour(3), Now: hour(24)})
	if len(c.Entries) != 1 || c.Entries[0].Finding.Code != "BKD-NEW" || c.Entries[0].Kind.Title == "" {
		t.Errorf("%+v", c.Entries)
	}
}
