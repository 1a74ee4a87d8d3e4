package kmsg

import (
	"strconv"
	"strings"

	"bookend/internal/gpu"
)

// xidBegins begins each Xid line. It has 11 bytes, fewer than a process's name may have; what follows, a bus id and
// "): ", does not fit in one.
const xidBegins = "NVRM: Xid ("

// parseXid parses "NVRM: Xid (PCI:0000:1b:00 GPU-I:01 GPU-CI:00): 31, pid=1234, name=python3, text". The parts of a MIG
// instance, the process and the text may be missing; drivers before 2013 had no "PCI:".
func parseXid(text string) (gpu.Xid, bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), xidBegins)
	if !ok {
		return gpu.Xid{}, false
	}
	place, rest, ok := strings.Cut(rest, "):")
	if !ok {
		return gpu.Xid{}, false
	}
	var x gpu.Xid
	number, rest, _ := strings.Cut(strings.TrimSpace(rest), ",")
	if x.Code, ok = decimal(strings.TrimSpace(number), maxXid); !ok || !parsePlace(place, &x) {
		return gpu.Xid{}, false
	}
	x.Text = parseProcess(strings.TrimSpace(rest), &x)
	x.After = parseCause(x.Text)
	return x, true
}

// maxXid is larger than any number in use: 185 is the largest by early 2026.
const maxXid = 9999

// maxPID is Linux's PID_MAX_LIMIT.
const maxPID = 4 << 20

// parsePlace parses the bus id, which has no function, and the parts of a MIG instance.
func parsePlace(place string, x *gpu.Xid) bool {
	fields := strings.Fields(place)
	if len(fields) == 0 {
		return false
	}
	id := strings.TrimPrefix(fields[0], "PCI:")
	if !strings.Contains(id, ".") {
		id += ".0"
	}
	var err error
	if x.BusID, err = gpu.ParseBusID(id); err != nil {
		return false
	}
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, ":")
		n, ok := decimal(value, 255)
		switch {
		case ok && key == "GPU-I":
			x.GI = &n
		case ok && key == "GPU-CI":
			x.CI = &n
		}
	}
	return true
}

// parseProcess takes "pid=..., name=..., " off the front. The number is the driver's own; the name is what the process
// calls itself.
func parseProcess(rest string, x *gpu.Xid) (text string) {
	if after, ok := strings.CutPrefix(rest, "pid="); ok {
		pid, more, _ := strings.Cut(after, ",")
		if n, ok := decimal(strings.Trim(pid, "'"), maxPID); ok {
			x.PID = n
		}
		rest = strings.TrimSpace(more)
	}
	if after, ok := strings.CutPrefix(rest, "name="); ok {
		name, more := cutName(after)
		if name != "<unknown>" {
			x.Name = name
		}
		rest = strings.TrimSpace(more)
	}
	return rest
}

// maxName is how long a process's name can be: TASK_COMM_LEN less its end.
const maxName = 15

// cutName cuts a process's name off the front. One may have a comma in it, and what a process calls itself must not pass
// for the driver's words: the last comma that can end the name does, unless a channel's number follows an earlier one.
func cutName(s string) (name, rest string) {
	end := strings.Index(s, ", ")
	if end < 0 {
		return strings.TrimSuffix(s, ","), ""
	}
	for !channel(s[end+2:]) {
		next := strings.Index(s[end+1:], ", ")
		if next < 0 || end+1+next > maxName {
			break
		}
		end += 1 + next
	}
	return s[:end], s[end+2:]
}

// channel: "Ch 0000000a", the one short thing that the driver says before another comma.
func channel(s string) bool {
	digits, ok := strings.CutPrefix(s, "Ch ")
	if !ok || len(digits) < 8 {
		return false
	}
	_, err := strconv.ParseUint(digits[:8], 16, 32)
	return err == nil
}

// parseCause finds "caused by previous Xid N" at the end.
func parseCause(text string) int {
	const by = "caused by previous Xid "
	i := strings.LastIndex(text, by)
	if i < 0 {
		return 0
	}
	n, ok := decimal(text[i+len(by):], maxXid)
	if !ok {
		return 0
	}
	return n
}

// decimal parses digits only.
func decimal(s string, most int) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n > uint64(most) {
		return 0, false
	}
	return int(n), true
}
