package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"bookend/internal/code"
)

// What a later release counts beside: two families, a trouble, a field of the book itself.
const (
	laterSamples = `{"name":"bookend_heat_kelvin","labels":["0","GPU-a"],"value":3,"unit":"K"},{"name":"bookend_wear","value":1e3,"counts":[1,2]}`
	laterTrouble = `{"code":"BKD-NEW-KIND","since":"2026-11-21T12:00:00Z","last":"2026-11-21T12:00:00Z","count":4,"hook":"night_watch","job":7,"mood":"bad"}`
	laterField   = `"fleet":{"name":"<a>","nodes":[1,2]}`
)

// fromLater puts a later release's counters into a host's counts, as it would have left them.
func fromLater(t *testing.T, f Files) {
	t.Helper()
	data, err := os.ReadFile(f.book())
	must(t, err)
	text := string(data)
	for old, with := range map[string]string{
		`"samples":[`: `"samples":[` + laterSamples + ",", `"troubles":[`: `"troubles":[` + laterTrouble + ",", `"version":1`: `"version":1,` + laterField,
	} {
		if strings.Count(text, old) != 1 {
			t.Fatalf("%q is not there once in %s", old, text)
		}
		text = strings.Replace(text, old, with, 1)
	}
	must(t, os.WriteFile(f.book(), []byte(text), 0o600))
}

// has looks for an element of a list, or a field of the book, in the file of counts, whatever its form.
func has(t *testing.T, f Files, want string) bool {
	t.Helper()
	data, err := os.ReadFile(f.book())
	must(t, err)
	var book map[string]any
	must(t, json.Unmarshal(data, &book))
	var one any
	must(t, json.Unmarshal([]byte(want), &one))
	for _, list := range []any{book["samples"], book["troubles"], []any{map[string]any{"fleet": book["fleet"]}}} {
		for _, there := range list.([]any) {
			if reflect.DeepEqual(there, one) {
				return true
			}
		}
	}
	return false
}

// After a downgrade nothing is damaged and nothing lost: known counts go on, the rest waits for the next upgrade.
func TestCountersOfALaterRelease(t *testing.T) {
	f := host(t)
	record(t, f, at(0, Prolog, code.BadConfig))
	fromLater(t, f)
	record(t, f, at(1, Prolog), at(2, Epilog, code.Hang), looked(4, Epilog, GivenCard{UUID: "GPU-a", Left: 5}))
	first, second, _ := strings.Cut(laterSamples, `},{`)
	for _, kept := range []string{first + "}", "{" + second, laterTrouble, "{" + laterField + "}"} {
		if !has(t, f, kept) {
			t.Errorf("not kept: %s", kept)
		}
	}
	got := shown(t, f)
	wants(t, got, map[string]float64{
		`bookend_hook_runs_total{hook="prolog",action="note"}`: 2,
		`bookend_own_errors_total{code="BKD-CONFIG"}`:          1,
		`bookend_own_errors_total{code="BKD-ST-DAMAGED"}`:      0,
	})
	for series := range got {
		if strings.Contains(series, "heat") || strings.Contains(series, "wear") {
			t.Errorf("%s is shown, of which this release knows neither kind nor labels", series)
		}
	}
	s, err := Read(f.Var)
	if must(t, err); len(s.Troubles) != 2 {
		t.Errorf("%+v", s.Troubles)
	}

	families = append(families, family{name: "bookend_heat_kelvin", kind: "gauge", labels: cardLabels, help: "Warmth."})
	t.Cleanup(func() { families = families[:len(families)-1] })
	record(t, f, at(5, Prolog))
	wants(t, shown(t, f), map[string]float64{`bookend_heat_kelvin{gpu="0",uuid="GPU-a"}`: 3})
}

// A card that is forgotten is so in the later release's words too.
func TestLaterCountersOfAForgottenCard(t *testing.T) {
	f := host(t)
	record(t, f, looked(0, Epilog, GivenCard{UUID: "GPU-a", Left: 1}), at(1, Prolog, code.BadConfig))
	fromLater(t, f)
	heat, _, _ := strings.Cut(laterSamples, `,{`)
	record(t, f, at(2, Epilog))
	if !has(t, f, heat) {
		t.Errorf("%s is gone too early", heat)
	}
	record(t, f, at(60*24*60, Epilog))
	if has(t, f, heat) || !has(t, f, laterTrouble) {
		t.Errorf("%s is kept, or all is gone", heat)
	}
}

// What is known goes before what is not where there is no room for both.
func TestTooManyLaterCounters(t *testing.T) {
	f := host(t)
	record(t, f, at(0, Prolog, code.BadConfig))
	data, err := os.ReadFile(f.book())
	must(t, err)
	var many strings.Builder
	for i := 0; len(data)+many.Len() < maxBook-2000; i++ {
		fmt.Fprintf(&many, `{"name":"bookend_new","labels":["%0900d"],"value":1},`, i)
	}
	must(t, os.WriteFile(f.book(), []byte(strings.Replace(string(data), `"samples":[`, `"samples":[`+many.String(), 1)), 0o600))
	all := at(1, Epilog)
	for _, e := range code.All() {
		all.Findings = append(all.Findings, Finding{Code: e.Code, Own: true, Detail: strings.Repeat("x", maxDetail)})
	}
	record(t, f, all, at(2, Prolog))
	if data, err := os.ReadFile(f.book()); err != nil || len(data) > maxBook/2 || strings.Contains(string(data), "bookend_new") {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	wants(t, shown(t, f), map[string]float64{`bookend_hook_runs_total{hook="prolog",action="note"}`: 2})
}
