package fleet

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"
)

//go:embed fleet.html.tmpl
var markup string

// ownStyle is what the table needs beyond the style of the report page.
const ownStyle = `b.bad{color:var(--serious)}b.fine{color:var(--good)}.week{white-space:nowrap}
.week .none{fill:var(--line)}.week .fine{fill:var(--job)}.week .odd{fill:var(--warning)}.week .bad{fill:var(--serious)}
@media (min-width:761px){th,td:not(:last-child){white-space:nowrap}}
`

// sheet is a Fleet as the template uses it.
type sheet struct {
	Fleet
	Made   time.Time
	Style  template.CSS // the page's only one
	Policy string       // allows only that style
}

type tile struct {
	Verdict Verdict
	Count   int
	Bad     bool
}

var functions = template.FuncMap{
	"moment": func(t time.Time) string { return t.Format("2 January 2006, 15:04 (UTC-07:00)") },
	"since":  Node.sinceText, "left": Node.leftText,
	"shade": func(v Verdict) string { return map[bool]string{true: "fine", false: "bad"}[v == OK] },
	"day": func(d Day) string {
		switch {
		case d.Jobs == 0:
			return "none"
		case d.Worst == "":
			return "fine"
		case d.Worst == "warn":
			return "odd"
		}
		return "bad"
	},
}

// HTML writes the fleet as a page that loads nothing, with all nodes, in the style of Bookend's pages. policy is their
// Content-Security-Policy for a style and a script.
func (f Fleet) HTML(w io.Writer, made time.Time, style string, policy func(style, script string) string) error {
	t, err := template.New("fleet").Funcs(functions).Parse(markup)
	if err == nil {
		err = t.Execute(w, sheet{f, made, template.CSS(style + ownStyle), policy(style+ownStyle, "")})
	}
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// Tiles are the counts, worst first.
func (s sheet) Tiles() (all []tile) {
	for _, v := range verdicts {
		if n := s.Counts[v]; n > 0 {
			all = append(all, tile{v, n, v != OK})
		}
	}
	return all
}
