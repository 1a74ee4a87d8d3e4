package report

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/diagnosis"
)

// asked reports whether the text has to say why the job may have run out of memory. To one that ended well, what was
// found says it already.
func (s Scene) asked() bool {
	if s.Why == nil || s.Why.Reason == diagnosis.ByCause && len(s.told()) > 0 {
		return false
	}
	return s.Why.Reason != ""
}

// withWhy puts the answer to "why out of memory" between what was found and what to do about it. Where there is no room
// for all of it, the causes that are ruled out give way first, then what was found; never a yes, nor what to try.
func (s Scene) withWhy(body, closing []Safe) []Safe {
	if !s.asked() {
		return append(body, closing...)
	}
	var table []Safe
	for _, rows := range s.tables(len(closing) > 0) {
		table = rows
		if len(body)+len(table)+len(closing) <= MaxLines {
			break
		}
	}
	least := min(len(body), 2) // the title of what was found, or the one line of a clean card, is never cut away
	if room := MaxLines - len(closing) - least; len(table) > room {
		table = table[:room]
	}
	if room := MaxLines - len(closing) - len(table); len(body) > room {
		body = s.cut(body, room)
	}
	return append(append(body, table...), closing...)
}

// tables are the ways to tell it, the fullest first. A job that failed with nothing that speaks of memory gets the
// headline alone, one that ended well no more than what was there. Where a closing follows, that tells where an
// admin finds more.
func (s Scene) tables(closed bool) [][]Safe {
	head, tail := wrap(prefix, string(Clean(s.Why.Headline, 3*Width))), s.trying(closed)
	table := func(rows ...[]Safe) []Safe {
		out := head
		for _, r := range append(rows, tail) {
			out = append(out[:len(out):len(out)], r...)
		}
		return out
	}
	yes, unknown := s.rows(diagnosis.Yes), s.rows(diagnosis.Unknown)
	noShort, open := joined(diagnosis.No, s.answered(diagnosis.No)), s.answered(diagnosis.Unknown)
	all := [][]Safe{table(s.rows(diagnosis.Yes, diagnosis.Unknown, diagnosis.No)), table(yes, unknown, noShort)}
	for full := len(open) - 1; full >= 0; full-- {
		all = append(all, table(yes, s.unknowns(open, full), noShort))
	}
	all = append(all, table(yes, s.unknowns(open, 0)), table(yes))
	switch {
	case s.Why.Reason == diagnosis.ByShared:
		return [][]Safe{table()}
	case s.Why.Reason == diagnosis.ByCause:
		return [][]Safe{append(head, s.standing()...)}
	case s.Why.Reason == diagnosis.ByMessage:
		return all
	case len(yes) == 0 && s.Why.Reason == diagnosis.ByFailure:
		return [][]Safe{head} // that memory was the reason is nobody's guess
	case len(yes) == 0:
		return all[len(all)-3:]
	}
	return all[1:]
}

// answerWidth is the column of a row's text.
const answerWidth = len(diagnosis.Unknown) + 2

// rows are the causes with one of these answers, in order, a row each.
func (s Scene) rows(answers ...diagnosis.Answer) []Safe {
	var out []Safe
	for _, c := range s.Why.Causes {
		for _, a := range answers {
			if c.Answer == a {
				out = append(out, row(a, c.Name.Title()+": "+s.evidence(c))...)
			}
		}
	}
	return out
}

// standing are the causes that apply, less those that are another side of one.
func (s Scene) standing() []Safe {
	var out []Safe
	for _, c := range s.Why.Causes {
		if c.Answer == diagnosis.Yes && c.With == "" {
			out = append(out, row(c.Answer, c.Name.Title()+": "+s.evidence(c))...)
		}
	}
	return out
}

// evidence says of which card it is, where the job has several.
func (s Scene) evidence(c diagnosis.Cause) string {
	text := string(Clean(c.Evidence, 2*Width))
	if c.Index != nil && len(s.Cards) > 1 {
		return fmt.Sprintf("GPU %d: %s", *c.Index, text)
	}
	return text
}

// answered are the causes with one answer, the job's own use first.
func (s Scene) answered(a diagnosis.Answer) []diagnosis.Cause {
	all := slices.DeleteFunc(slices.Clone(s.Why.Causes), func(c diagnosis.Cause) bool { return c.Answer != a })
	if i := slices.IndexFunc(all, func(c diagnosis.Cause) bool { return c.Name == diagnosis.Own }); i > 0 {
		own := all[i]
		all = slices.Insert(slices.Delete(all, i, i+1), 0, own)
	}
	return all
}

// unknowns are so many of the causes that cannot be told with what would tell, and the names of the others.
func (s Scene) unknowns(open []diagnosis.Cause, full int) []Safe {
	var out []Safe
	for _, c := range open[:full] {
		out = append(out, row(c.Answer, c.Name.Title()+": "+s.evidence(c))...)
	}
	return append(out, joined(diagnosis.Unknown, open[full:])...)
}

// joined names causes with one answer, without their evidence.
func joined(a diagnosis.Answer, causes []diagnosis.Cause) []Safe {
	var names []string
	for _, c := range causes {
		names = append(names, strings.ReplaceAll(c.Name.Title(), ", ", " or "))
	}
	if len(names) == 0 {
		return nil
	}
	return row(a, strings.Join(names, ", "))
}

// row lays out one answer; what does not fit goes on below its text.
func row(a diagnosis.Answer, text string) []Safe {
	word := string(a)
	if a == diagnosis.Yes {
		word = "YES"
	}
	line := fmt.Sprintf("%s  %-*s", prefix, answerWidth, word)
	below := strings.Repeat(" ", len(line)-len(prefix))
	var out []Safe
	for i, w := range strings.Fields(text) {
		if len(line)+len(w) > Width && i > 0 {
			out = append(out, Keep(strings.TrimRight(line, " "), Width))
			line = prefix + below
		}
		line += w + " "
	}
	return append(out, Keep(strings.TrimRight(line, " "), Width))
}

// trying says how much processes had, where that was measured, and what to try.
func (s Scene) trying(closed bool) []Safe {
	var text []string
	if len(s.Why.Peaks) > 0 {
		peaks := make([]string, len(s.Why.Peaks))
		for i, p := range s.Why.Peaks {
			peaks[i] = fmt.Sprintf("%s (process %d)", diagnosis.Size(p.Peak.Bytes), p.PID)
		}
		text = append(text, "  Peak: "+strings.Join(peaks, ", "))
	}
	for _, t := range s.Why.Try {
		if closed && strings.HasPrefix(t, diagnosis.TellAdmin) {
			continue
		}
		text = append(text, "  Try: "+string(Clean(t, 2*Width)))
	}
	return s.lines(text)
}
