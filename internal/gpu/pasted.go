package gpu

import (
	"regexp"
	"slices"
	"strings"
)

// PastedErrors returns the errors in a pasted text of a kernel log, with the stamps of dmesg, syslog or the journal,
// each once. It is for explaining only: any text may look like the kernel's.
func PastedErrors(text string) (found []Xid) {
	const form = `(?m)(?:^|[\s>"'=;:\x60])((?:NVRM: |nvidia-nvswitch|amdgpu:? |\[drm:|pcieport ).*)$`
	const longest, mostLines, most = 3, 1024, 16 // lines of one entry, of the text, and errors
	var lines []string
	for _, l := range regexp.MustCompile(form).FindAllStringSubmatch(text, mostLines) {
		lines = append(lines, strings.TrimRight(l[1], "\r\"'` "))
	}
	for i := range lines {
		for n := 1; n <= min(longest, len(lines)-i); n++ {
			x, ok := ParseKernelLine(strings.Join(lines[i:i+n], "\n"))
			same := func(o Xid) bool { return o.BusID == x.BusID && o.Code == x.Code && o.Instance == x.Instance }
			if ok && len(found) < most && !slices.ContainsFunc(found, same) {
				found = append(found, x)
			}
			if ok {
				break
			}
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
