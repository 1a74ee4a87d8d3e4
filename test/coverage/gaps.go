package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// sometimes begins the reason of a block that some runs reach and others do not.
const sometimes = "sometimes: "

// gap is an entry of the list: blocks that are not reached, and why. All blocks of a function that begin alike share it.
type gap struct {
	key    string // "internal/state Store.write: if err != nil { return err"
	reason string
	line   int
}

func (b block) key() string { return b.pkg() + " " + b.function + ": " + b.text }

// parseGaps reads the list: an entry is a line with the block and indented lines with the reason; "#" is a comment.
func parseGaps(text string) ([]gap, error) {
	var gaps []gap
	for i, line := range strings.Split(text, "\n") {
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "" || strings.HasPrefix(line, "#"):
		case trimmed == strings.TrimRight(line, " \t"):
			gaps = append(gaps, gap{key: trimmed, line: i + 1})
		case len(gaps) == 0:
			return nil, fmt.Errorf("line %d: a reason without a block", i+1)
		default:
			last := &gaps[len(gaps)-1]
			last.reason = strings.TrimSpace(last.reason + " " + trimmed)
		}
	}
	var all []error
	for i, g := range gaps {
		if g.reason == "" || g.reason == strings.TrimSpace(sometimes) {
			all = append(all, fmt.Errorf("line %d: no reason for %q", g.line, g.key))
		}
		if slices.ContainsFunc(gaps[:i], func(o gap) bool { return o.key == g.key }) {
			all = append(all, fmt.Errorf("line %d: %q stands there twice", g.line, g.key))
		}
	}
	return gaps, errors.Join(all...)
}

// compare says which gaps are not explained, and which explanations are of nothing.
func compare(blocks []block, gaps []gap) (complaints []string) {
	unreached, reached := map[string]bool{}, map[string]bool{}
	for _, b := range blocks {
		if b.reached {
			reached[b.key()] = true
			continue
		}
		if unreached[b.key()] = true; !explained(gaps, b) {
			complaints = append(complaints, fmt.Sprintf("%s:%d: not reached and not explained: %s", b.file, b.line, b.key()))
		}
	}
	for _, g := range gaps {
		where := fmt.Sprintf("%s:%d: ", gapsFile, g.line)
		switch {
		case unreached[g.key]:
		case !reached[g.key]:
			complaints = append(complaints, where+"there is no such block: "+g.key)
		case !strings.HasPrefix(g.reason, sometimes):
			complaints = append(complaints, where+"this is reached: remove the entry, or begin its reason with \""+sometimes+"\": "+g.key)
		}
	}
	return complaints
}

func explained(gaps []gap, b block) bool {
	return slices.ContainsFunc(gaps, func(g gap) bool { return g.key == b.key() })
}

// drafted are the missing entries of the list.
func drafted(blocks []block, gaps []gap) string {
	var text strings.Builder
	for _, b := range blocks {
		if !b.reached && !explained(gaps, b) {
			fmt.Fprintf(&text, "%s\n    \n", b.key())
			gaps = append(gaps, gap{key: b.key()})
		}
	}
	return text.String()
}
