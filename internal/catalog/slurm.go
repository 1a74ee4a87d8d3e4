package catalog

import (
	_ "embed"
	"regexp"
	"strings"
)

const scriptsExit0 = "The scripts in /etc/bookend/slurm/hooks exit 0 instead; " +
	"a node drains only if slurm.conf names the program itself. "

// exitMeanings are exit codes of a hook that are not those of one finding.
var exitMeanings = []struct {
	first, last int
	meaning     string
}{
	{0, 0, "nothing to drain for"},
	{2, 2, "a crash of Go's runtime, which Bookend did not catch: no process or thread was available, for example. " +
		scriptsExit0 + "Raise the limit (pids cgroup, kernel.threads-max) or see syslog"},
	{ExitOther, ExitOther, "a finding without a number of its own that the policy drains for"},
	{126, 255, "not a verdict: the hook could not be started, or a signal ended it (128 and its number). " +
		scriptsExit0 + "See syslog and bookend doctor"},
}

// ExitMeaning returns what an exit code of a hook means, empty if no hook exits with it.
func ExitMeaning(exit int) string {
	for _, e := range exitMeanings {
		if exit >= e.first && exit <= e.last {
			return e.meaning
		}
	}
	if c, ok := OfExit(exit); ok {
		e, _ := Lookup(c)
		return "the node was drained: " + e.Title
	}
	return ""
}

// requeueFile says what an epilog's exit code decides about a job that is to be requeued at once.
//
//go:embed requeue.txt
var requeueFile string

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
