package slurm

import "strings"

// FirstHost returns the first node of a node list as Slurm writes it ("n[001-010,020],m3", "rack[0-1]n[2-3]"): the
// node that runs a batch job's script. It returns "" for a list it cannot read.
func FirstHost(list string) string {
	var host strings.Builder
	for {
		end := strings.IndexAny(list, ",[")
		if end < 0 {
			end = len(list)
		}
		host.WriteString(list[:end])
		if end == len(list) || list[end] == ',' {
			break
		}
		ranges, rest, closed := strings.Cut(list[end+1:], "]")
		number := ranges
		if i := strings.IndexAny(ranges, "-,"); i >= 0 {
			number = ranges[:i]
		}
		if !closed || !allDigits(number) {
			return ""
		}
		host.WriteString(number)
		list = rest
	}
	if !ValidNode(host.String()) {
		return ""
	}
	return host.String()
}

func allDigits(s string) bool {
	for _, c := range []byte(s) {
		if !isDigit(c) {
			return false
		}
	}
	return s != ""
}
