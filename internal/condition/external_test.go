package condition

import (
	"fmt"
	"strings"
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/test/must"
)

// verdictOf is a verdict as NVIDIA Health Validation writes it.
func verdictOf(severity string) string {
	return fmt.Sprintf(`{"schema_version": "1", "overall_severity": %q, "affected_components": [
		{"check_ids": ["gpu_count"], "entities": ["node"], "category": "node", "max_severity": "WARNING"},
		{"check_ids": ["gpu_xid_79", "a\u001b[31m'$(id)'"], "entities": ["GPU-5a0c/0"], "max_severity": "CRITICAL"}]}`+"\n", severity)
}

// Only a CRITICAL, or an exit status that the admin names, is a fault without a doubt. All else warns at most.
func TestExternal(t *testing.T) {
	last := func(action catalog.Action, f record.Finding) *record.Check {
		judged := []record.Judged{{Action: catalog.ToDrain}}
		return &record.Check{Findings: []record.Finding{f}, Verdict: record.Verdict{Action: action, Judged: judged}}
	}
	fault := record.Finding{Code: catalog.External}
	decided := fault
	decided.AddDoubt(drainedBefore)
	many := `{"overall_severity":"CRITICAL","affected_components":[{"max_severity":"CRITICAL","check_ids":[` +
		strings.Repeat(`"`+strings.Repeat("x", 60)+`",`, 99) + `"x"]}]}`
	for name, tt := range map[string]struct {
		exit   int
		output string
		last   *record.Check
		want   string // what was seen, the doubt behind a slash, or why it is unknown behind a question mark
	}{
		"plain success":                {0, "all fine\n", nil, ""},
		"nothing is said":              {0, "", nil, ""},
		"PASS":                         {0, verdictOf("PASS"), nil, ""},
		"INFO":                         {0, verdictOf("INFO"), nil, ""},
		"WARNING":                      {0, verdictOf("WARNING"), nil, "/opt/hv says WARNING: gpu_count, node/it is not CRITICAL"},
		"CRITICAL":                     {1, verdictOf("CRITICAL"), nil, "/opt/hv says CRITICAL: gpu_xid_79, a??31m???id??, GPU-5a0c/0"},
		"in small letters":             {1, `{"overall_severity":"critical"}`, nil, "/opt/hv says CRITICAL"},
		"more than is shown":           {1, many, nil, "/opt/hv says CRITICAL: " + strings.Repeat("x", 60) + ", " + strings.Repeat("x", 56)},
		"UNKNOWN exits as CRITICAL":    {1, verdictOf("UNKNOWN"), nil, "?/opt/hv says UNKNOWN and exits 1"},
		"UNKNOWN, of a named status":   {7, verdictOf("UNKNOWN"), nil, "?/opt/hv says UNKNOWN and exits 7"},
		"PASS, of a named status":      {7, verdictOf("PASS"), nil, "?/opt/hv says PASS and exits 7"},
		"CRITICAL that exits 0":        {0, verdictOf("CRITICAL"), nil, "?/opt/hv says CRITICAL and exits 0"},
		"another word":                 {1, verdictOf("FATAL\n"), nil, "?/opt/hv says FATAL? and exits 1"},
		"a status that is named":       {7, "ERROR: nhc: check_fs failed\n", nil, "/opt/hv exits 7, which health.external.drain_on lists"},
		"one that is not":              {2, "", nil, "?/opt/hv exits 2 and gives no verdict"},
		"other JSON, a named status":   {7, `{"tests": []}`, nil, "/opt/hv exits 7, which health.external.drain_on lists"},
		"damaged, a named status":      {7, verdictOf("CRITICAL")[:60], nil, "?the output of /opt/hv is not a whole verdict; it exits 7"},
		"cut before the severity":      {7, `{"schema_version": "1",`, nil, "?the output of /opt/hv is not a whole verdict; it exits 7"},
		"behind other words":           {1, "warning: x\n" + verdictOf("CRITICAL"), nil, "?the output of /opt/hv is not a whole verdict; it exits 1"},
		"two of them":                  {1, verdictOf("CRITICAL") + verdictOf("CRITICAL"), nil, "?the output of /opt/hv is not a whole verdict; it exits 1"},
		"without a severity":           {7, `{"overall_severity": null}`, nil, "?the output of /opt/hv is not a whole verdict; it exits 7"},
		"in UTF-16":                    {7, "\xff\xfe{\x00\"\x00", nil, "?the output of /opt/hv is not a whole verdict; it exits 7"},
		"of another type":              {7, `{"overall_severity": 3}`, nil, "?the output of /opt/hv is not a whole verdict; it exits 7"},
		"again, after a drain":         {7, "", last(catalog.ToDrain, fault), "/opt/hv exits 7, which health.external.drain_on lists/" + drainedBefore},
		"and again":                    {7, "", last(catalog.ToWarn, decided), "/opt/hv exits 7, which health.external.drain_on lists/" + drainedBefore},
		"unknown after a drain":        {2, "", last(catalog.ToDrain, fault), "?/opt/hv exits 2 and gives no verdict/" + drainedBefore},
		"after a drain that was held":  {7, "", last(catalog.ToWarn, fault), "/opt/hv exits 7, which health.external.drain_on lists"},
		"after one for another reason": {7, "", last(catalog.ToDrain, record.Finding{Code: catalog.XidFatal}), "/opt/hv exits 7, which health.external.drain_on lists"},
	} {
		got := ""
		if f := External(&Reply{Program: "/opt/hv", Named: tt.exit == 7, Exit: tt.exit, Output: []byte(tt.output)}, tt.last); len(f) > 0 {
			f := f[0]
			got = strings.Join(append([]string{f.Observed}, f.Doubts...), "/")
			if f.Unknown != "" {
				got = strings.Join(append([]string{"?" + f.Unknown}, f.Doubts...), "/")
			}
			must.Be(t, name, f.Code, catalog.External)
		}
		must.Be(t, name, got, tt.want)
	}
	f := External(&Reply{Program: "/opt/hv", Named: true, Exit: 7, Unknown: "did not end within 10s"}, nil)
	must.Be(t, "a program that was killed", f[0].Unknown, "/opt/hv did not end within 10s")
}

// Whatever a program writes, what is kept of it is short and plain, and no fault without the word or the status.
func FuzzExternal(f *testing.F) {
	for _, severity := range []string{"PASS", "CRITICAL", "UNKNOWN"} {
		f.Add([]byte(verdictOf(severity)), 1)
	}
	f.Fuzz(func(t *testing.T, output []byte, exit int) {
		found := External(&Reply{Program: "/x", Exit: exit, Output: output}, nil)
		if len(found) == 0 {
			must.Not(t, exit != 0, "exit %d says nothing", exit)
			return
		}
		text := found[0].Observed + found[0].Unknown
		must.Not(t, len(text) > 600 || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }), "%q", text)
		sure := found[0].Unknown == "" && len(found[0].Doubts) == 0
		must.Not(t, sure && !strings.Contains(strings.ToUpper(string(output)), "CRITICAL") && !strings.Contains(string(output), `\u`),
			"a fault of %q", output)
	})
}
