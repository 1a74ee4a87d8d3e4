package catalog

import (
	_ "embed"
	"slices"
	"strings"
	"time"
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
// and time, cut to the width of a column, or several joined, after an admin's or Bookend's too. A text in which a
// reason is only mentioned has none.
func SlurmReasons(text string) (found []SlurmReason) {
	text = strings.ToLower(strings.TrimSpace(text))
	text = strings.TrimPrefix(strings.TrimSpace(text), "reason=")
	for part := range strings.SplitSeq(strings.ReplaceAll(text, ", ", " : "), " : ") {
		words := withoutAuthor(strings.Fields(part))
		for _, cut := range []bool{false, true} {
			of := matching(words, cut)
			if found = append(found, of...); len(of) > 0 {
				break
			}
		}
	}
	return found
}

// matching returns the reasons that words are.
func matching(words []string, cut bool) (found []SlurmReason) {
	const fields = 3
	for line := range strings.SplitSeq(reasonsFile, "\n") {
		row := strings.Split(line, " | ")
		for form := range strings.SplitSeq(row[0], "; ") {
			if len(row) == fields && isForm(words, strings.ToLower(form), cut) {
				found = append(found, SlurmReason{form, row[1], row[2]})
			}
		}
	}
	return found
}

// withoutAuthor removes author and time: "[root@2026-11-29T12:00:00]", or sinfo's columns for user, time, nodes.
func withoutAuthor(words []string) []string {
	end := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "[") && strings.Contains(w, "@") })
	dated := slices.IndexFunc(words, func(w string) bool {
		_, err := time.Parse("2006-01-02t15:04:05", w)
		return err == nil
	})
	switch {
	case end >= 0:
		return words[:end]
	case dated > 1:
		return words[:dated-1]
	}
	return words
}

// fewest is how many bytes of a reason are enough to know it if a column has cut it; sinfo -R shows 20.
const fewest = 10

// isForm reports whether words are a form of a reason, perhaps with details in parentheses after it; or, if cut, that
// they are what a column left of it.
func isForm(words []string, form string, cut bool) bool {
	want := strings.Fields(form)
	for i, w := range want {
		last := i == len(words)-1
		switch {
		case w == "...":
			return !cut
		case i >= len(words):
			return cut && len(strings.Join(words, " ")) >= fewest
		case cut && last && strings.HasPrefix(w, words[i]):
			return len(strings.Join(words, " ")) >= fewest
		case !isWord(words[i], w):
			return false
		}
	}
	return !cut && (len(words) == len(want) || strings.HasPrefix(words[len(want)], "("))
}

// isWord reports whether a word is that of a form, in which # stands for at least one byte.
func isWord(word, form string) bool {
	begin, end, varies := strings.Cut(form, "#")
	if !varies {
		return word == form
	}
	return len(word) > len(begin)+len(end) && strings.HasPrefix(word, begin) && strings.HasSuffix(word, end)
}
