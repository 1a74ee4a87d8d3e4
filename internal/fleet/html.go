package fleet

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"bookend/internal/page"
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
	Made time.Time
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

// HTML writes the fleet as a page that loads nothing, with all nodes.
func (f Fleet) HTML(w io.Writer, made time.Time) error {
	t, err := template.New("fleet").Funcs(functions).Parse(markup)
	if err == nil {
		err = t.Execute(w, sheet{f, made})
	}
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// Style is the page's only style.
func (sheet) Style() template.CSS { return template.CSS(page.Style + ownStyle) }

// Policy allows only that style.
func (sheet) Policy() string { return page.Policy(page.Style+ownStyle, "") }

// Tiles are the counts, worst first.
func (s sheet) Tiles() (all []tile) {
	for _, v := range verdicts {
		if n := s.Counts[v]; n > 0 {
			all = append(all, tile{v, n, v != OK})
		}
	}
	return all
}
