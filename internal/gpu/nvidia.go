package gpu

import (
	"fmt"
	"strconv"
	"strings"
)

// NVIDIA is NVIDIA's driver. A context was measured on an H200.
var NVIDIA = Vendor{
	Name: "nvidia", PCI: "0x10de", Classes: []string{"0x03"}, Module: "nvidia", Library: "libnvidia-ml.so.1",
	Nodes: Nodes{
		Card: "nvidia", Control: "nvidiactl", Shared: []string{"nvidia-uvm", "nvidia-uvm-tools"},
		Caps: "nvidia-caps", Cap: "nvidia-cap",
	},
	MPS:     "nvidia-cuda-mps", // -control and -server
	Context: 530 << 20,
	Surroundings: []int{
		2,   // OUT_OF_MEMORY: of cuInit under ulimit -v (measured); of an allocation it would be no error
		34,  // STUB_LIBRARY
		35,  // INSUFFICIENT_DRIVER
		100, // NO_DEVICE
		101, // INVALID_DEVICE
		304, // OPERATING_SYSTEM
	},
	Fault:    parseXid,
	Mismatch: parseMismatch,
}

// parseMismatch joins the lines of one entry of the driver's, each of which begins with its name. A process's name, of
// 15 bytes at most, can begin a line of the kernel's: what lines are known by is longer.
func parseMismatch(entry string) (line string, ok bool) {
	if !strings.HasPrefix(entry, "NVRM: API mismatch: ") {
		return "", false
	}
	return strings.Join(strings.Fields(strings.ReplaceAll(entry, "\nNVRM: ", " ")), " "), true
}

// xidBegins begins each Xid line. It has 11 bytes, fewer than a process's name may have; what follows, a bus id and
// "): ", does not fit in one.
const xidBegins = "NVRM: Xid ("

// parseXid parses "NVRM: Xid (PCI:0000:1b:00 GPU-I:01 GPU-CI:00): 31, pid=1234, name=python3, text". The parts of a MIG
// instance, the process and the text may be missing; drivers before 2013 had no "PCI:".
func parseXid(text string) (Xid, bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), xidBegins)
	if !ok {
		return Xid{}, false
	}
	place, rest, ok := strings.Cut(rest, "):")
	if !ok {
		return Xid{}, false
	}
	var x Xid
	number, rest, _ := strings.Cut(strings.TrimSpace(rest), ",")
	if x.Code, ok = Decimal(strings.TrimSpace(number), maxXid); !ok || !parsePlace(place, &x) {
		return Xid{}, false
	}
	x.Text = parseProcess(strings.TrimSpace(rest), &x)
	return x, true
}

// maxXid is larger than any number in use: 185 is the largest by early 2026.
const maxXid = 9999

// MaxPID is Linux's PID_MAX_LIMIT.
const MaxPID = 4 << 20

// parsePlace parses the bus id, which has no function, and the parts of a MIG instance.
func parsePlace(place string, x *Xid) bool {
	fields := strings.Fields(place)
	if len(fields) == 0 {
		return false
	}
	id := strings.TrimPrefix(fields[0], "PCI:")
	if !strings.Contains(id, ".") {
		id += ".0"
	}
	var err error
	if x.BusID, err = ParseBusID(id); err != nil {
		return false
	}
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, ":")
		if n, ok := Decimal(value, 255); ok && (key == "GPU-I" || key == "GPU-CI") {
			x.Instance = strings.TrimSpace(fmt.Sprintf("%s %s %d", x.Instance, key, n))
		}
	}
	return true
}

// parseProcess takes "pid=..., name=..., " off the front. The number is the driver's own; the name is what the process
// calls itself.
func parseProcess(rest string, x *Xid) (text string) {
	if after, ok := strings.CutPrefix(rest, "pid="); ok {
		pid, more, _ := strings.Cut(after, ",")
		if n, ok := Decimal(strings.Trim(pid, "'"), MaxPID); ok {
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

// MaxName is how long a process's name can be: TASK_COMM_LEN less its end.
const MaxName = 15

// cutName cuts a process's name off the front. One may have a comma in it, and what a process calls itself must not
// pass for the driver's words: the last comma that can end the name does, unless a channel's number follows an earlier
// one.
func cutName(s string) (name, rest string) {
	end := strings.Index(s, ", ")
	if end < 0 {
		return strings.TrimSuffix(s, ","), ""
	}
	for !channel(s[end+2:]) {
		next := strings.Index(s[end+1:], ", ")
		if next < 0 || end+1+next > MaxName {
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

// Decimal parses digits only.
func Decimal(s string, most int) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n > uint64(most) {
		return 0, false
	}
	return int(n), true
}
