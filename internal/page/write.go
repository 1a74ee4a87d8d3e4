// Package page lays a node's records out over time and makes one self-contained HTML page of that: for an admin's
// browser, readable without script, on paper and by keyboard. It asks for nothing but itself: a browser is told to load
// nothing.
//
// A chart has each card as a lane, jobs as blocks, what stayed on a card between looks, findings as marks. Places are
// fractions of the time shown; what no look saw has no place.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/report"
	"bookend/internal/state"
)

// Report is what a page is made of.
type Report struct {
	Node  string
	Chart Chart
	// Lemons are cards on which the same was found again and again, the worst first.
	Lemons  []gpu.ID
	Damaged []state.Damage
	Made    time.Time
	Version string
	// Copy is true for records that were taken elsewhere: what is there now nobody knows.
	Copy bool
	// Users names the jobs' users. Without it their names are left out wherever they appear.
	Users bool
	// People are the names that are left out.
	People []string
}

//go:embed page.html.tmpl
var markup string

//go:embed page.css
var style string

//go:embed page.js
var script string

// Write writes the page.
func Write(w io.Writer, r Report) error {
	t, err := template.New("page").Parse(markup)
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	if err := t.Execute(w, r.sheet()); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// sheet is the page as the template has it: every text is safe, every place a percentage.
type sheet struct {
	Node     report.Safe
	Range    string
	Zone     string
	Made     string
	Version  report.Safe
	Copy     bool
	Users    bool
	Empty    *empty
	Tiles    []tile
	Chips    []chip
	Axis     []ruler
	Elsewher *lane
	Lanes    []lane
	Joined   bool
	Cards    []card
	Rows     []row
	Left     string
	Codes    []explained
	Damaged  []report.Safe
	More     int // damaged records that are not listed
	Policy   string
	Style    template.CSS
	Script   template.JS
}

func (r Report) sheet() sheet {
	c := r.Chart
	k := r.words()
	s := sheet{
		Node: report.Clean(r.Node, nameWidth), Range: span(c.Since, c.Until), Zone: zone(c.Since, c.Until),
		Made:    r.Made.Format(stamp),
		Version: report.Clean(r.Version, nameWidth), Copy: r.Copy, Users: r.Users, Empty: r.empty(), Tiles: r.tiles(),
		Chips: k.chips(),
		Axis:  axes(c), Joined: c.Total.Joined, Codes: k.codes(), Style: template.CSS(style),
		Script: template.JS(script),
	}
	if c.First.IsZero() {
		s.Range = ""
	}
	listed := choose(c.Entries)
	for i, l := range c.Lanes {
		s.Lanes = append(s.Lanes, k.lane(l, fmt.Sprint(i), listed))
		s.Cards = append(s.Cards, k.card(c, i))
	}
	if len(c.Elsewhere) > 0 {
		s.Elsewher = &lane{Marks: k.marks(c.Elsewhere, listed)}
	}
	s.Rows, s.Left = k.rows(listed), left(len(c.Entries), len(listed))
	s.damaged(k, r.Damaged)
	s.Policy = mayDo()
	return s
}

// mostDamaged is how many damaged records are named.
const mostDamaged = 10

func (s *sheet) damaged(k words, all []state.Damage) {
	for _, d := range all[:min(len(all), mostDamaged)] {
		s.Damaged = append(s.Damaged, k.text(fmt.Sprintf("%s: %s", d.Path, d.Why), textWidth))
	}
	s.More = len(all) - len(s.Damaged)
}

// mayDo is what the page may do, told to the browser: show itself. Threat: a text from outside that became markup after
// all would neither run nor load anything.
func mayDo() string {
	return fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; base-uri 'none'; form-action 'none'",
		hash(style), hash(script))
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
