package report

// Safe is text that may enter a report, log, drain reason, terminal or page: printable ASCII (0x20 to 0x7e),
// bounded, one line. Only Clean makes one from a string that came from outside; constants of this program may
// be converted.
//
// Safe says nothing of how a line begins: a leading dash, "print " or "export " is the business of whoever
// writes the line, who puts a fixed text of its own first.
type Safe string

const dots = "..." // ends a text that was cut

// Clean makes a string from outside safe. A byte that is not printable ASCII is written as \xNN and a backslash
// as \\, so that different names never look alike; a text longer than max bytes is cut, never within an escape,
// and ends in "...". Its work is bounded by max, however long raw is.
func Clean(raw string, max int) Safe { return bounded(raw, max, appendVisible) }

// Keep is Clean for a line made of what Clean returned and of this program's own words, where it is joined, or
// read back from a file: it bounds and it escapes what does not belong, but it does not escape backslashes again.
func Keep(line string, max int) Safe { return bounded(line, max, appendPrintable) }

func bounded(raw string, max int, visible func([]byte, byte) []byte) Safe {
	if max <= 0 {
		return ""
	}
	out := make([]byte, 0, min(len(raw), max)+len(dots))
	keep := 0 // what is left of out if it has to be cut: whole escapes, and room for the dots
	for i := range len(raw) {
		if len(out)+len(dots) <= max {
			keep = len(out)
		}
		out = visible(out, raw[i])
		if len(out) > max {
			return Safe(append(out[:keep], dots[:min(len(dots), max)]...))
		}
	}
	return Safe(out)
}

func appendVisible(out []byte, c byte) []byte {
	if c == '\\' {
		out = append(out, '\\')
	}
	return appendPrintable(out, c)
}

func appendPrintable(out []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	if c < 0x20 || c > 0x7e {
		return append(out, '\\', 'x', hex[c>>4], hex[c&0xf])
	}
	return append(out, c)
}
