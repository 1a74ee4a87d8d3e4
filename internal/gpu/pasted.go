package gpu

import (
	"slices"
	"strings"
)

// PastedErrors returns the errors in a pasted text of a kernel log, each once. It is for explaining only: any text may
// look like the kernel's.
func PastedErrors(text string) (found []Xid) {
	const most, entry = 16, 4 // errors, and lines of one entry
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		x, ok := ParsePastedLine(line)
		if !ok {
			x, ok = ParsePastedLine(strings.Join(lines[i:min(i+entry, len(lines))], "\n"))
		}
		same := func(o Xid) bool { return o.BusID == x.BusID && o.Code == x.Code && o.Instance == x.Instance }
		if ok && len(found) < most && !slices.ContainsFunc(found, same) {
			found = append(found, x)
		}
	}
	return found
}

// PastedMismatch reports whether a text has a kernel-log entry about a library of another version than the module's.
func PastedMismatch(text string) bool {
	i := strings.Index(text, "NVRM: API mismatch: ")
	if i < 0 {
		return false
	}
	_, ok := NVIDIA.Mismatch(text[i:])
	return ok
}
