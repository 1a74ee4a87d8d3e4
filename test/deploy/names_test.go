package deploy

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"bookend/test/must"
)

// families are Bookend's metrics and their kinds, as docs/metrics.md has them, which is generated from the code.
func families(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(bookend_[a-z_]+)` \\| [a-z_, ]*\\| (counter|gauge|histogram) \\|").FindAllStringSubmatch(must.Read(t, "../../docs/metrics.md"), -1) {
		all[m[1]] = m[2]
	}
	if len(all) < 15 {
		t.Fatalf("docs/metrics.md has %d metrics", len(all))
	}
	return all
}

// named are the metrics that a text names; recorded series have a colon within and are none.
func named(text string) (all []string) {
	for _, name := range regexp.MustCompile(`[a-z_:]*\bbookend_[a-z0-9_:]+`).FindAllString(text, -1) {
		if name = strings.TrimSuffix(name, ":"); !strings.Contains(name, ":") {
			all = append(all, name)
		}
	}
	return all
}

// What rules, dashboard and documentation ask for is what Bookend writes, and each figure that Bookend writes is asked
// for.
func TestMetricsThatAreNamedAreThere(t *testing.T) {
	known := families(t)
	used := map[string]bool{"bookend_gpu_job_info": true} // is joined with other exporters' metrics
	for _, file := range []string{"deploy/prometheus/rules.yml", "deploy/grafana/bookend.json", "docs/monitoring.md",
		"docs/metrics.md", "test/monitoring/rules_test.yml"} {
		names := named(must.Read(t, "../../"+file))
		for _, name := range names {
			family := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base, has := strings.CutSuffix(name, suffix); has && known[base] == "histogram" {
					family = base
				}
			}
			kind, is := known[family]
			if !is || kind == "histogram" && family == name && !strings.HasPrefix(file, "docs/") {
				t.Errorf("%s asks for %s, which Bookend does not write", file, name)
			}
			if strings.HasPrefix(file, "deploy/") {
				used[family] = true
			}
		}
		if len(names) == 0 && file != "docs/monitoring.md" {
			t.Errorf("%s names no metric", file)
		}
	}
	for name := range known {
		if !used[name] {
			t.Errorf("neither rules nor dashboard ask for %s", name)
		}
	}
}

// Each recorded series that a rule asks for is recorded.
func TestRecordedSeries(t *testing.T) {
	rules := must.Read(t, "../../deploy/prometheus/rules.yml")
	var recorded []string
	for _, m := range regexp.MustCompile(`(?m)^      - record: (\S+)$`).FindAllStringSubmatch(rules, -1) {
		recorded = append(recorded, m[1])
	}
	asked := regexp.MustCompile(`\b[a-z_]+:bookend_[a-z_]+:[a-z0-9_]+\b`).FindAllString(rules, -1)
	if len(asked) <= len(recorded) { // each record is among them
		t.Errorf("%d recorded series are asked for %d times", len(recorded), len(asked))
	}
	for _, m := range asked {
		if !slices.Contains(recorded, m) {
			t.Errorf("%s is asked for and not recorded", m)
		}
	}
}

// Each alert says what is seen, what it means and what to do, and has a section of its own in the documentation; its
// codes are known.
func TestAlertsAreExplained(t *testing.T) {
	rules, doc := must.Read(t, "../../deploy/prometheus/rules.yml"), must.Read(t, "../../docs/monitoring.md")
	codes := must.Read(t, "../../internal/metrics/testdata/bookend.prom")
	alerts := regexp.MustCompile(`(?m)^      - alert: (\S+)$`).FindAllStringSubmatchIndex(rules, -1)
	if len(alerts) < 12 {
		t.Fatalf("%d alerts", len(alerts))
	}
	for i, at := range alerts {
		end := len(rules)
		if i+1 < len(alerts) {
			end = alerts[i+1][0]
		}
		name, body := rules[at[2]:at[3]], rules[at[1]:end]
		for _, want := range []string{"summary: \"", "description: \"", "action: \"",
			"/monitoring.md#" + strings.ToLower(name) + "\"\n", "severity: "} {
			if !strings.Contains(body, want) {
				t.Errorf("%s has no %s", name, strings.TrimSpace(want))
			}
		}
		if !strings.Contains(doc, "\n### "+name+"\n") {
			t.Errorf("docs/monitoring.md has no section %s", name)
		}
	}
	for _, m := range regexp.MustCompile(`BKD-\(([A-Z|-]+)\)`).FindAllStringSubmatch(rules, -1) {
		for code := range strings.SplitSeq(m[1], "|") {
			if !strings.Contains(codes, `{code="BKD-`+code+`",hook="health_check"}`) {
				t.Errorf("the rules ask for BKD-%s, which does not begin at 0: the first would be no increase", code)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Bookend\S+)$`).FindAllStringSubmatch(doc, -1) {
		if !strings.Contains(rules, "- alert: "+m[1]+"\n") {
			t.Errorf("docs/monitoring.md explains %s, which is no alert", m[1])
		}
	}
}
