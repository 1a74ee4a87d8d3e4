// Package page lays a node's records out over time and makes one self-contained HTML page of that: for an admin's
// browser, readable without script, on paper and by keyboard. It asks for nothing but itself: a browser is told to load
// nothing.
//
// Lay makes a Chart of the records: each GPU is a lane, jobs are blocks, what stayed on it between looks is Held,
// findings are Marks. Write shows it. Places are fractions of the time shown; what no look saw has no place.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/state"
)

type Report struct {
	Node  string
	Chart Chart
	// Offenders are GPUs on which the same was found again and again.
	Offenders []gpu.ID
	Damaged   []state.Damage
	Made      time.Time
	Version   string
	// Copy is true for records that were taken elsewhere: what is there now nobody knows.
	Copy bool
	// Users names the jobs' users. Without it their names, which People are, are left out wherever they appear.
	Users  bool
	People []string
}

//go:embed page.html.tmpl
var markup string

//go:embed page.css
var style string

//go:embed page.js
var script string

// mostListed bounds the table of findings: a page is to open at once.
const mostListed = 500

// sheet is a report as the template asks for it. Its methods and the functions below make every text safe.
type sheet struct {
	Report
	people *regexp.Regexp // nil where users are named
	Style  template.CSS
	Script template.JS
}

// functions of the template that need no report.
var functions = template.FuncMap{
	"percent": func(part float64) string { return fmt.Sprintf("%.3f%%", part*100) }, "clean": clean, "plural": count,
	"width": func(from, to float64) string { return fmt.Sprintf("%.3f%%", (to-from)*100) },
	"name":  cardName, "model": model, "shape": shape, "severity": severity, "whose": whose, "outcome": outcome,
	"stamp": func(t time.Time) string { return t.Format(stamp) }, "figure": figure,
	"moment": func(t time.Time) string { return t.Format("2 January 2006, 15:04 (UTC-07:00)") },
}

func Write(w io.Writer, r Report) error {
	s := sheet{Report: r, Style: template.CSS(style), Script: template.JS(script)}
	if !r.Users {
		s.people = namesOf(r.People)
	}
	t, err := template.New("page").Funcs(functions).Parse(markup)
	if err == nil {
		err = t.Execute(w, s)
	}
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// Policy is what the page may do, told to the browser: show itself. Threat: a text from outside that became markup
// after all would neither run nor load anything.
func (sheet) Policy() string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; base-uri 'none'; form-action 'none'",
		hash(style), hash(script))
}
