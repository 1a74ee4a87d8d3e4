package diagnosis

import (
	"fmt"
	"slices"

	"bookend/internal/oom"
)

// lastWord leaves of what was said what can have ended the job: a message about a card was survived if another one
// about memory follows in the same file; if that names no size, it may be the echo of the one before. Where several
// processes say so one after another at the end of a file, the first is what counts, the others went down with it.
// Files have no common order.
func lastWord(all []oom.Message) (left []oom.Message, first *oom.Message) {
	survived, files := map[int]bool{}, 0
	for file := range oom.MaxFiles {
		said := aboutMemory(all, file)
		end := lastBurst(all, said)
		for n, i := range said {
			echoed := n+len(end)+1 == len(said) && all[end[0]].Kind == oom.Device && !all[end[0]].Asked.Known()
			survived[i] = i != end[0] && !echoed
		}
		// the rest stands where it was said last
		once := !slices.ContainsFunc(end, func(i int) bool { return all[i].Count > 1 })
		if len(end) > 1 && once && len(all) < oom.MaxMessages {
			first = &all[end[0]]
		}
		if len(said) > 0 {
			files++
		}
	}
	for i, m := range all {
		if !survived[i] {
			left = append(left, m)
		}
	}
	if files > 1 {
		first = nil
	}
	return left, first
}

// aboutMemory finds the messages of a file about a card. Refusals of host memory are weighed beside them, one by one.
func aboutMemory(all []oom.Message, file int) (said []int) {
	for i, m := range all {
		if m.File == file && (m.Kind == oom.Device || m.Kind == oom.Init) {
			said = append(said, i)
		}
	}
	return said
}

// lastBurst is the end of what was said, as far back as each message is of another process.
func lastBurst(all []oom.Message, said []int) []int {
	heard := map[string]bool{}
	for n := len(said) - 1; n >= 0; n-- {
		one := speaker(all[said[n]])
		if n < len(said)-1 && (one == "" || heard[""] || heard[one]) {
			return said[n+1:]
		}
		heard[one] = true
	}
	return said
}

// speaker names the process that says a message; empty where it does not.
func speaker(m oom.Message) string {
	switch {
	case m.Rank != nil:
		return fmt.Sprintf("rank %d", *m.Rank)
	case m.PID != 0:
		return fmt.Sprintf("process %d", m.PID)
	}
	return ""
}

// ahead says which of several processes ran out first, and where, as far as that is known.
func (j judge) ahead() string {
	text := speaker(*j.first)
	if j.here(*j.first) {
		text += " on " + j.Job.Node
	}
	if c := j.card(*j.first); c != nil {
		text += fmt.Sprintf(" GPU %d", c.Index)
	}
	return text + " first"
}
