// Package safetext makes strings from outside safe to show: printable ASCII of bounded length.
package safetext

// Safe is text that may enter a report, log, drain reason, terminal or page: printable ASCII (0x20 to 0x7e), bounded,
// one line. Only Clean makes one from a string that came from outside; constants of this program may be converted.
//
// Safe does not restrict how a line begins: code that writes a line must put a fixed text of its own first, against a
// leading dash, "print " or "export ".
type Safe string

const dots = "..." // ends a text that was cut

// Clean makes a string from outside safe. It writes a byte that is not printable ASCII as \xNN and a backslash as \\,
// so that different names never look alike. A text longer than max bytes is cut, never within an escape, and ends in
// "...". The work is bounded by max, however long raw is.
func Clean(raw string, max int) Safe { return bounded(raw, max, appendVisible) }

// Keep is Clean for a line made of results of Clean and this program's own words, when it is joined or read back from a
// file: it bounds and escapes in the same way but does not escape backslashes again.
func Keep(line string, max int) Safe { return bounded(line, max, appendPrintable) }

func bounded(raw string, max int, visible func([]byte, byte) []byte) Safe {
	if max <= 0 {
		return ""
	}
	out := make([]byte, 0, min(len(raw), max)+len(dots))
	keep := 0 // length of out if it has to be cut: whole escapes, and room for the dots
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
