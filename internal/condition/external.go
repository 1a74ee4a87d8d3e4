package condition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/record"
)

// Reply is the answer of the site's own check (health.external). Its output is tainted.
type Reply struct {
	Program string
	Exit    int    // its exit status
	Named   bool   // the admin counts that status as CRITICAL
	Output  []byte // its whole standard output
	Unknown string // why there is no status and no output; empty if there is
}

// nodeVerdict is what is read of a NodeVerdict of NVIDIA Health Validation.
type nodeVerdict struct {
	Severity   string `json:"overall_severity"`
	Components []struct {
		Checks   []string `json:"check_ids"`
		Entities []string `json:"entities"`
		Severity string   `json:"max_severity"`
	} `json:"affected_components"`
}

// External returns what follows from the reply of the site's own check, nil for none: one finding or none. If the last
// health check, nil for none, drained the node for this, a reply without fault has to come before another drain.
func External(r *Reply, last *record.Check) []record.Finding {
	if r == nil {
		return nil
	}
	found := judgeReply(*r)
	if len(found) > 0 && last != nil && wasDrainedFor(*last) {
		found[0].AddDoubt(drainedBefore)
	}
	return found
}

// judgeReply trusts a verdict before the exit status: NVIDIA's program exits 1 for CRITICAL and for UNKNOWN.
func judgeReply(r Reply) []record.Finding {
	v, whole := readVerdict(r.Output)
	severity := strings.ToUpper(plain(v.Severity))
	saw := record.Saw(catalog.External, fmt.Sprintf("%s says %s%s", r.Program, severity, v.names()), "no fault")
	why := fmt.Sprintf("%s says %s and exits %d", r.Program, severity, r.Exit)
	switch {
	case r.Unknown != "":
		why = r.Program + " " + r.Unknown
	case !whole:
		why = fmt.Sprintf("the output of %s is not a whole verdict; it exits %d", r.Program, r.Exit)
	case r.Exit == 0 && slices.Contains([]string{"", "PASS", "INFO"}, severity):
		return nil
	case severity == "" && r.Named:
		saw.Observed = fmt.Sprintf("%s exits %d, which health.external.drain_on lists", r.Program, r.Exit)
		return []record.Finding{saw}
	case severity == "":
		why = fmt.Sprintf("%s exits %d and gives no verdict", r.Program, r.Exit)
	case severity == "WARNING":
		saw.AddDoubt("it is not CRITICAL")
		return []record.Finding{saw}
	case severity == "CRITICAL" && r.Exit != 0:
		return []record.Finding{saw}
	}
	return []record.Finding{record.Unsure(catalog.External, why)}
}

// readVerdict reads the verdict in an output, and reports whether it is whole. Text that is not JSON has no verdict.
func readVerdict(output []byte) (v nodeVerdict, whole bool) {
	text := bytes.TrimSpace(output)
	has := bytes.Contains(text, []byte("overall_severity"))
	if !has && !bytes.HasPrefix(text, []byte("{")) {
		return v, !bytes.Contains(text, []byte{0}) // not text, or UTF-16
	}
	err := json.Unmarshal(text, &v)
	return v, err == nil && has == (v.Severity != "")
}

// names lists the checks with the verdict's severity, each before what it is about.
func (v nodeVerdict) names() string {
	text := ""
	for _, c := range v.Components {
		if strings.EqualFold(c.Severity, v.Severity) {
			text += ", " + strings.Join(slices.Concat(c.Checks, c.Entities), ", ")
		}
	}
	return plain(strings.Replace(text, ",", ":", 1))
}

// plain returns the beginning of a text with a question mark for each character that no check or GPU has in its name.
func plain(text string) string {
	const most = 120
	return regexp.MustCompile(`[^-\w.:/, ]`).ReplaceAllString(text[:min(len(text), most)], "?")
}

const drainedBefore = "the node was drained for this before: since then an admin decides"

// wasDrainedFor reports whether a check drained the node for the site's own, and no reply was without fault since.
func wasDrainedFor(last record.Check) bool {
	for i, f := range last.Findings {
		drained := last.Verdict.Action == catalog.ToDrain && last.Verdict.Drains(i)
		if f.Code == catalog.External && (drained || slices.Contains(f.Doubts, drainedBefore)) {
			return true
		}
	}
	return false
}
