package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/config"
)

func TestExplanations(t *testing.T) {
	const may = "in mode enforce, if the policy says drain and the evidence is certain"
	for c, want := range map[catalog.Code]struct{ exit, drains string }{
		catalog.Orphan:   {"10 if it drains", may},
		catalog.BadEnv:   {"31 if it drains", may},
		catalog.Trespass: {"none of its own", "never: it is about a GPU that is not the hook's job's"},
		catalog.Throttle: {"none of its own", "never: it tells of a GPU and says nothing against it"},
		catalog.Output:   {"none of its own", "never: it is about a file in its user's hands"},
	} {
		got := explanation(string(c), config.Default())
		if !strings.Contains(got, "  drains:  "+want.drains+"\n") || !strings.Contains(got, "  exit:    "+want.exit+"\n") ||
			strings.Contains(got, "(default: ") {
			t.Errorf("%s: got\n%s\nwant %+v", c, got, want)
		}
	}
	for _, entry := range catalog.All() { // one text for each, none left out
		if got := explanation(string(entry.Code), config.Default()); strings.Count(got, "\n") != 7 ||
			strings.Contains(got, ": \n") {
			t.Errorf("%s:\n%s", entry.Code, got)
		}
	}
}

func TestCodeNames(t *testing.T) {
	for written, want := range map[string]catalog.Code{"BKD-ORPHAN": catalog.Orphan, "orphan": catalog.Orphan,
		" Bkd-Orphan ": catalog.Orphan, "st-write": catalog.StateWrite, "orfan": "", "": "", "BKD-": ""} {
		if got, ok := catalog.Parse(written); got != want || ok != (want != "") {
			t.Errorf("%q: %q", written, got)
		}
	}
	if got := codesIn("BKD-ORPHAN gpu=0 (BKD-GAP) XBKD-ECC BKD-NOPE"); !slices.Equal(got,
		[]catalog.Code{catalog.Orphan, catalog.Gap}) {
		t.Errorf("%v", got)
	}
	for n, want := range map[int]bool{0: true, 2: true, 10: true, 40: true, 137: true, 1: false, 20000: false, 256: false, -1: false} {
		if got := explanation(fmt.Sprint(n), config.Default()); want != strings.Contains(got, "of Bookend's hooks: ") {
			t.Errorf("exit status %d: %q", n, got)
		}
	}
}
