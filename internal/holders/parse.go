package holders

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/slurm"
)

// stat is what /proc/PID/stat says that attribution needs.
type stat struct {
	name  string // as the kernel writes it: newline and backslash come escaped since Linux 2.6.16, nothing else
	state string
	start time.Duration // since boot
}

// Fields of stat behind the name, counted from 0: proc(5) numbers them 3 and 22.
const (
	fieldState = 0
	fieldFlags = 6
	fieldStart = 19
)

// exiting is the kernel's PF_EXITING: a process on its way out says so by no state letter, and was seen to take half a
// second for 6 GiB of memory.
const exiting = 0x4

// parseStat reads a stat line. Threat: the process chose its name, which may hold brackets, blanks, newlines and
// a forged rest of the line; only what follows the last bracket is the kernel's.
func parseStat(text string) (stat, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("parse stat: no name in %.80q", text)
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) <= fieldStart || len(fields[fieldState]) != 1 {
		return stat{}, fmt.Errorf("parse stat: %d fields behind the name", len(fields))
	}
	ticks, err := strconv.ParseUint(fields[fieldStart], 10, 64)
	if err != nil || ticks > uint64(math.MaxInt64/attrib.Tick) {
		return stat{}, fmt.Errorf("parse stat: start time %.40q", fields[fieldStart])
	}
	state := fields[fieldState]
	if flags, err := strconv.ParseUint(fields[fieldFlags], 10, 32); err == nil && flags&exiting != 0 && state != ended {
		state = "X"
	}
	return stat{text[open+1 : end], state, time.Duration(ticks) * attrib.Tick}, nil
}

// parseUID reads the real uid from the text of /proc/PID/status. Threat: the name is the first line, and a
// kernel that does not escape it lets a process write a Uid line of its own; the kernel's is the last.
func parseUID(text string) (uint32, error) {
	line, ok := statusLine(text, "Uid")
	if !ok {
		return 0, fmt.Errorf("parse status: no Uid line")
	}
	fields := strings.Fields(line)
	if len(fields) != 4 {
		return 0, fmt.Errorf("parse status: Uid line %.80q", line)
	}
	uid, err := strconv.ParseUint(fields[0], 10, 32)
	if err != nil {
		return 0, fmt.Errorf("parse status: Uid line %.80q", line)
	}
	return uint32(uid), nil
}

// parseOtherPIDs reports whether the text of /proc/PID/status says that the process has a PID in another namespace
// than /proc's own: its NSpid line then has more than one number. Linux before 4.1 has no such line.
func parseOtherPIDs(text string) bool {
	line, _ := statusLine(text, "NSpid")
	return len(strings.Fields(line)) > 1
}

// statusLine returns what a line of /proc/PID/status says behind its key. The kernel's is the last of that key.
func statusLine(text, key string) (string, bool) {
	at := strings.LastIndex(text, "\n"+key+":")
	if at < 0 {
		return "", false
	}
	line, _, _ := strings.Cut(text[at+len(key)+len("\n:"):], "\n")
	return line, true
}

// parseEnviron finds the job id in an environment; 0 when there is none. Of a variable set twice the first
// counts, as it does for getenv. When the text was cut off, so may be its last entry, which then does not count.
func parseEnviron(text string, cut bool) slurm.JobID {
	if cut {
		text = text[:strings.LastIndexByte(text, 0)+1]
	}
	for entry := range strings.SplitSeq(text, "\x00") {
		if value, ok := strings.CutPrefix(entry, "SLURM_JOB_ID="); ok {
			if id, ok := slurm.ParseJobID(value); ok {
				return id
			}
			return 0
		}
	}
	return 0
}
