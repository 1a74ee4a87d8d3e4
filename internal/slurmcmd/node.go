package slurmcmd

import (
	"errors"
	"strings"
	"time"

	"bookend/internal/drain"
)

// scontrol's form of a node: "NodeName=n1 ..." and further lines of fields, indented by three blanks; reason, comment
// and the like have a line of their own each, and a reason of several lines goes on with ten blanks. In the one-line
// form a comment could pass for a reason.
const (
	field     = "\n   "
	goesOn    = "\n          "
	stateOf   = field + "State="
	reasonOf  = field + "Reason="
	timeForm  = "2006-01-02T15:04:05"
	notHeard  = "NOT_RESPONDING"
	stateMark = "*" // behind the state's first word: it does not respond
)

var (
	errNode   = errors.New("scontrol tells of no such node, or of several")
	errState  = errors.New("scontrol tells no state, or several")
	errReason = errors.New("scontrol tells several reasons: a comment of several lines may pass for one")
)

// parseNode reads what "scontrol show node" says of one node. An answer that could mean two things is an error.
func parseNode(text, name string) (drain.Node, error) {
	if !strings.HasPrefix(text, "NodeName="+name+" ") || strings.Contains(text, "\nNodeName=") {
		return drain.Node{}, errNode
	}
	if strings.Count(text, stateOf) != 1 {
		return drain.Node{}, errState
	}
	var n drain.Node
	_, rest, _ := strings.Cut(text, stateOf)
	state, _, _ := strings.Cut(strings.SplitN(rest, "\n", 2)[0], " ")
	for flag := range strings.SplitSeq(state, "+") {
		plain := strings.TrimRight(flag, stateMark)
		n.Silent = n.Silent || plain == notHeard || plain != flag
		if plain != notHeard {
			n.Flags = append(n.Flags, plain)
		}
	}
	if strings.TrimRight(state, stateMark) == "" {
		return drain.Node{}, errState
	}
	switch strings.Count(text, reasonOf) {
	case 0:
		return n, nil
	case 1:
		n.Reason, n.By, n.At = parseReason(text)
		return n, nil
	}
	return drain.Node{}, errReason
}

// parseReason reads the reason with who wrote it and when: " [user@time]" behind its first line.
func parseReason(text string) (reason, by string, at time.Time) {
	_, rest, _ := strings.Cut(text, reasonOf)
	first, rest, more := strings.Cut(rest, "\n")
	reason = first
	if i := strings.LastIndex(first, " ["); i >= 0 && strings.HasSuffix(first, "]") {
		who, when, stamped := strings.Cut(first[i+2:len(first)-1], "@")
		if t, err := time.Parse(timeForm, when); stamped && err == nil {
			reason, by, at = first[:i], who, t
		}
	}
	for more && strings.HasPrefix("\n"+rest, goesOn) {
		var line string
		line, rest, more = strings.Cut(rest, "\n")
		reason += "\n" + strings.TrimPrefix("\n"+line, goesOn)
	}
	return reason, by, at
}
