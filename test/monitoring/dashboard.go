package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const dashboardFile = "deploy/grafana/bookend.json"

// A panel with more lines than this cannot be read, and one a node would be thousands.
const mostLines = 50

// board is what of a dashboard decides what is asked of Prometheus, and how it is drawn.
type board struct {
	Panels     []boardPanel `json:"panels"`
	Templating struct {
		List []struct {
			Name  string          `json:"name"`
			Type  string          `json:"type"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

type boardPanel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct{ H, W, X, Y int }
	Targets []struct {
		Expr    string `json:"expr"`
		Legend  string `json:"legendFormat"`
		Format  string `json:"format"`
		Instant bool   `json:"instant"`
	} `json:"targets"`
}

// dashboard asks a real Prometheus with many nodes what each panel and each variable would ask.
func (b *bench) dashboard() (err error) {
	data, err := os.ReadFile(dashboardFile)
	if err != nil {
		return err
	}
	var d board
	if err := json.Unmarshal(data, &d); err != nil {
		return err
	}
	dir := filepath.Join(b.dir, "fleet-nodes")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	f := fleet{dir: dir, nodes: b.nodes, begin: time.Now().Add(-6 * time.Hour).Truncate(step)}
	blocks, err := f.blocks()
	if err != nil {
		return err
	}
	p, err := b.prometheus(blocks)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	errs := []error{d.wellLaid()}
	for _, panel := range d.Panels {
		errs = append(errs, panel.drawn(p, f))
	}
	return errors.Join(append(errs, d.variables(p, f), alerting(p, f))...)
}

// drawn asks for each target of a panel.
func (p boardPanel) drawn(prometheus *daemon, f fleet) error {
	var errs []error
	if p.Type != "row" && len(p.Targets) == 0 {
		return fmt.Errorf("panel %q asks nothing", p.Title)
	}
	lines := 0
	for _, t := range p.Targets {
		expr, unknown := filledIn(t.Expr)
		if unknown != "" {
			errs = append(errs, fmt.Errorf("panel %q: %s is no variable", p.Title, unknown))
			continue
		}
		var got []series
		var err error
		if t.Instant {
			got, err = prometheus.query(expr, f.end())
		} else {
			got, err = prometheus.queryRange(expr, f.begin.Add(step), f.end(), step)
		}
		switch lines += len(got); {
		case err != nil:
			err = fmt.Errorf("panel %q: %s: %w", p.Title, expr, err)
		case len(got) == 0:
			err = fmt.Errorf("panel %q has no data: %s", p.Title, expr)
		case !t.Instant && len(got[0].Values) == 0, t.Format == "table" && !t.Instant:
			err = fmt.Errorf("panel %q: no line through time, or a table of one: %s", p.Title, expr)
		}
		errs = append(errs, err, legend(p, t.Legend, got))
	}
	// topk through time chooses anew at each step: what stands there for a while is counted.
	if most := mostLines; lines > most && p.Type != "heatmap" {
		errs = append(errs, fmt.Errorf("panel %q draws %d lines of %d nodes", p.Title, lines, f.nodes))
	}
	return errors.Join(errs...)
}

// legend: a name in braces must be a label of what is drawn.
func legend(p boardPanel, format string, got []series) error {
	for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(format, -1) {
		found := len(got) == 0
		for _, s := range got {
			_, has := s.Metric[m[1]]
			found = found || has
		}
		if !found {
			return fmt.Errorf("panel %q: nothing drawn has the label %s", p.Title, m[1])
		}
	}
	return nil
}

// filledIn is a query as Grafana sends it with All chosen everywhere; unknown is a variable that is none.
func filledIn(expr string) (text, unknown string) {
	text = strings.NewReplacer("$__rate_interval", "20m", "$__range", "55m", "$__interval", "5m", "$cluster", ".*", "$partition", ".*",
		"$instance", ".*", "$gpu", ".*", "$budget", "2").Replace(expr)
	return text, regexp.MustCompile(`\$\w+`).FindString(text)
}

// variables asks for the values that each variable offers.
func (d board) variables(prometheus *daemon, f fleet) error {
	var errs []error
	asked := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		var q struct{ Query string }
		if err := json.Unmarshal(v.Query, &q); err != nil {
			return fmt.Errorf("variable %s: %w", v.Name, err)
		}
		query, _ := filledIn(q.Query)
		m := asked.FindStringSubmatch(query)
		if m == nil {
			errs = append(errs, fmt.Errorf("variable %s: %q is not label_values(SERIES, LABEL)", v.Name, query))
			continue
		}
		got, err := ask[[]string](prometheus, "label/"+m[2]+"/values", url.Values{"match[]": {m[1]}, "start": {stamp(f.begin)}, "end": {stamp(f.end())}})
		if err == nil && len(got) < 2 {
			err = fmt.Errorf("variable %s offers %q", v.Name, got)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// wellLaid: each panel has an id of its own, a place of its own inside the 24 columns, a title and words.
func (d board) wellLaid() error {
	var errs []error
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X+p.GridPos.W > 24 {
			errs = append(errs, fmt.Errorf("panel %d %q: no id, title or place of its own", p.ID, p.Title))
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, is := taken[at]; is {
					errs = append(errs, fmt.Errorf("panel %q lies over %q", p.Title, other))
				}
				taken[at] = p.Title
			}
		}
	}
	return errors.Join(errs...)
}

// alerting: what happens in the fleet makes the alerts' own expressions true, with the recorded series written out by hand
// where the fleet's history has none.
func alerting(prometheus *daemon, f fleet) error {
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range regexp.MustCompile(`(?m)^      - record: (\S+)\n        expr: (.*)$`).FindAllStringSubmatch(string(rules), -1) {
		expr := m[2]
		for range 3 { // recorded series stand on others
			for _, other := range regexp.MustCompile(`(?m)^      - record: (\S+)\n        expr: (.*)$`).FindAllStringSubmatch(string(rules), -1) {
				expr = strings.ReplaceAll(expr, other[1], "("+other[2]+")")
			}
		}
		got, err := prometheus.query(expr, f.end())
		if err == nil && len(got) == 0 {
			err = fmt.Errorf("%s has no data in the fleet: %s", m[1], expr)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
