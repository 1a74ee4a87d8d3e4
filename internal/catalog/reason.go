package catalog

import (
	_ "embed"
	"regexp"
	"strings"
)

// SlurmReason is a reason that Slurm itself sets on a node.
type SlurmReason struct {
	Form    string // # stands for what varies within a word, a last ... for further words
	Meaning string
	Remedy  string
}

//go:embed reasons.txt
var reasonsFile string

// SlurmReasons returns the reasons of Slurm's own that a text is, as sinfo -R or scontrol shows it: with its author
// and time, cut to the width of a column, or several joined. A text that only mentions a reason has none.
func SlurmReasons(text string) (found []SlurmReason) {
	text = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "reason=")
	// What Slurm shows behind it: "[root@2026-11-29T12:00:00]", or sinfo's columns for user, time and nodes.
	setBy := regexp.MustCompile(`\[\S*@.*|\s\S+\s+\d{4}-\d\d-\d\dt\d\d:\d\d:\d\d.*`)
	for part := range strings.SplitSeq(strings.ReplaceAll(text, ", ", " : "), " : ") {
		part = strings.Join(strings.Fields(setBy.ReplaceAllString(part, "")), " ")
		of := matching(func(form string) bool { return isForm(part, form) })
		if len(of) == 0 {
			of = matching(func(form string) bool { return isCut(part, form) })
		}
		found = append(found, of...)
	}
	return found
}

func matching(is func(form string) bool) (found []SlurmReason) {
	for _, row := range Rows(reasonsFile, 3) {
		for form := range strings.SplitSeq(row[0], "; ") {
			if is(strings.ToLower(form)) {
				found = append(found, SlurmReason{form, row[1], row[2]})
			}
		}
	}
	return found
}

// SlurmForms returns the reasons of Slurm's own in which nothing varies.
func SlurmForms() (all []string) {
	for _, r := range matching(func(form string) bool { return !strings.ContainsAny(form, "#.") }) {
		all = append(all, r.Form)
	}
	return all
}

// isForm reports whether a text is a form of a reason, perhaps with details in parentheses after it.
func isForm(text, form string) bool {
	pattern := strings.NewReplacer("#", `\S+`, ` \.\.\.`, `( .*)?`).Replace(regexp.QuoteMeta(form))
	return regexp.MustCompile(`^` + pattern + `( \(.*)?$`).MatchString(text)
}

// isCut reports whether a text is what a column left of a form: sinfo -R shows 20 bytes, and 10 are enough to know it.
func isCut(text, form string) bool {
	const fewest = 10
	text = regexp.MustCompile(`^gres/\S+`).ReplaceAllString(text, "gres/#")
	return len(text) >= fewest && strings.HasPrefix(form, text)
}
