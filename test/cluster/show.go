package cluster

import "strings"

// whole are the fields of `scontrol show` that have a line of their own and may hold blanks.
var whole = map[string]bool{
	"Command": true, "WorkDir": true, "StdErr": true, "StdIn": true, "StdOut": true, "Comment": true,
	"Reason": true, "OS": true,
}

// parseShow reads the multi-line form of `scontrol show job` or `show node`: one map an entry. The one-line
// form would not do: it leaves patterns in StdOut unexpanded, and blanks in paths make it ambiguous.
func parseShow(text string) []map[string]string {
	var entries []map[string]string
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "JobId=") || strings.HasPrefix(line, "NodeName=") {
			entries = append(entries, map[string]string{})
		}
		if len(entries) > 0 {
			parseLine(strings.TrimSpace(line), entries[len(entries)-1])
		}
	}
	return entries
}

func parseLine(line string, into map[string]string) {
	key, value, ok := strings.Cut(line, "=")
	if ok && whole[key] {
		into[key] = value
		return
	}
	key = ""
	for _, word := range strings.Fields(line) {
		if k, v, ok := strings.Cut(word, "="); ok {
			key = k
			into[key] = v
		} else if key != "" {
			into[key] += " " + word
		}
	}
}
