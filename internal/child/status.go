package child

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseStatus returns the real uid in the text of /proc/PID/status, and whether the process has a PID in another
// namespace too: NSpid then has several numbers. Linux before 4.1 has no NSpid.
func ParseStatus(text string) (uid uint32, otherPIDs bool, err error) {
	otherPIDs = len(strings.Fields(statusLine(text, "NSpid"))) > 1
	line := statusLine(text, "Uid")
	if fields := strings.Fields(line); len(fields) == 4 {
		if uid, err := strconv.ParseUint(fields[0], 10, 32); err == nil {
			return uint32(uid), otherPIDs, nil
		}
	}
	return 0, otherPIDs, fmt.Errorf("parse status: Uid line %.80q", line)
}

// statusLine returns the value of a key in the text of /proc/PID/status. Threat: a kernel may not escape the name in
// the first line, which lets a process write lines of its own. The last line with the key is the kernel's.
func statusLine(text, key string) string {
	at := strings.LastIndex(text, "\n"+key+":")
	if at < 0 {
		return ""
	}
	line, _, _ := strings.Cut(text[at+len(key)+len("\n:"):], "\n")
	return line
}
