package gpu

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bookend's codes for errors that have no number. They exceed NVIDIA's Xids, and are in records: they never change.
const (
	AMDUncorrected = maxXid + 1 + iota
	AMDReset
	AMDPageFault
	AMDNotGivenBack
	AMDHang
	AMDGone      // all of its registers read as ones
	AMDHung      // it hangs, and was not reset
	AMDRecovered // it works again
	AMDReplace
	AMDCorrected
)

const (
	BusLost    = maxXid + 21 + iota // what Xid 79 says, without a number
	NotStarted                      // RmInitAdapter failed
	Removed                         // taken out while in use
	PortDown                        // a PCIe port lost its link: the line has the port's address
	PCIeFatal                       // uncorrected PCIe error: the line has the address of the device that reported it
)

// Codes of NVML's events that carry no number.
const (
	EventDRAMRetired = maxXid + 10_002 + iota
	EventDRAMNotRetired
	EventPoison
	EventFatalPoison
	EventUnavailable
	EventRecovery
)

// UnknownXid is the number that NVML reports for an error whose number it does not know.
const UnknownXid = 999

// IsEvent reports whether a code is that of an event without the number of its error.
func IsEvent(code int) bool {
	return code == UnknownXid || code >= EventDRAMRetired && code <= EventRecovery
}

// FirstSXid is added to the number of an SXid, an error of an NVSwitch, so that none equals another code.
const FirstSXid = 100_000

// Error names an error by its number, or by the part of the kernel that reported it if it has none.
func Error(code int) string {
	switch {
	case code > FirstSXid:
		return fmt.Sprintf("SXid %d", code-FirstSXid)
	case code >= EventDRAMRetired:
		return "driver event"
	case code >= PortDown:
		return "PCIe"
	case code >= BusLost:
		return NVIDIA.Module
	case code > maxXid:
		return AMD.Module
	}
	return fmt.Sprintf("Xid %d", code)
}

// ParseKernelLine parses an entry of the kernel log, without its stamp, about an error of a GPU or of what links it to
// others. It trusts no name that a process may choose: these have at most 15 bytes.
func ParseKernelLine(entry string) (Xid, bool) {
	for _, v := range Vendors {
		if x, ok := v.Fault(entry); ok {
			return x, true
		}
	}
	return parsePort(entry)
}

// ParsePastedLine is ParseKernelLine for text that a person pasted: with the stamps of dmesg, syslog or the journal,
// and perhaps as several lines. The first that is known counts. Such text proves nothing.
func ParsePastedLine(text string) (Xid, bool) {
	const form, longest, most = `(?m)(?:^|[\s>"'])((?:NVRM: |nvidia-nvswitch|amdgpu:? |\[drm:|pcieport ).*)$`, 3, 64
	var lines []string
	for _, found := range regexp.MustCompile(form).FindAllStringSubmatch(text, most) {
		lines = append(lines, strings.TrimRight(found[1], "\r\"' "))
	}
	for i := range lines {
		for n := 1; n <= min(longest, len(lines)-i); n++ {
			if x, ok := ParseKernelLine(strings.Join(lines[i:i+n], "\n")); ok {
				return x, true
			}
		}
	}
	return Xid{}, false
}

// OwnerPID returns the process whose work an error ended or concerns, 0 if none is known. Many lines name the process
// that happened to call the driver at that moment, perhaps nvidia-smi or another job's.
func (x Xid) OwnerPID() int {
	owned := []int{8, 11, 13, 25, 31, 32, 39, 40, 41, 42, 43, 44, 45, 69, 94}
	bystander := []int{48, 62, 63, 64, 79, 95, 119, 120, recoveryChanged}
	hasChannel := strings.HasPrefix(x.Text, "Ch ") && !slices.Contains(bystander, x.Code)
	if hasChannel || slices.Contains(owned, x.Code) {
		return x.PID
	}
	return 0
}

const (
	cleanUp         = 45  // of a program, as the driver ends it
	recoveryChanged = 154 // "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
)

// parseCause parses what a clean-up line may end with. It is longer than any process name, so none can imitate it.
func parseCause(x Xid) int {
	const words = " caused by previous Xid "
	at := strings.LastIndex(x.Text, words)
	if x.Code != cleanUp || at < 0 {
		return 0
	}
	n, _ := Decimal(x.Text[at+len(words):], maxXid)
	return n
}

// parseRecovery parses the number that the driver's line ends with; the words after it differ between drivers.
func parseRecovery(x Xid) string {
	_, after, ok := strings.Cut(x.Text, "recovery action changed from 0x")
	_, to, found := strings.Cut(after, " to 0x")
	digits, _, _ := strings.Cut(to, " ")
	n, err := strconv.ParseUint(digits, 16, 32)
	switch {
	case x.Code != recoveryChanged || !ok || !found || err != nil:
		return ""
	case n < uint64(len(RecoveryActions)):
		return RecoveryActions[n]
	}
	return strconv.FormatUint(n, 10)
}

// parseNVIDIA parses what NVIDIA's modules write about a GPU or an NVSwitch.
func parseNVIDIA(entry string) (Xid, bool) {
	if x, ok := parseXid(entry); ok {
		return x, true
	}
	if strings.HasPrefix(entry, "nvidia-nvswitch") {
		return parseSXid(entry)
	}
	line := strings.ReplaceAll(entry, "\nNVRM:", "")
	for _, l := range nvidiaLines {
		after, ok := strings.CutPrefix(line, l.before)
		place, text, found := strings.Cut(after, " ")
		bus, err := ParseBusID(strings.TrimSuffix(place, ":"))
		if ok && found && err == nil && strings.Contains(text, l.words) {
			return Xid{BusID: bus, Code: l.code, Text: text}, true
		}
	}
	return Xid{}, false
}

// nvidiaLines are lines without a number: what is before the GPU's address, and words after it.
var nvidiaLines = []struct {
	before, words string
	code          int
}{
	{"NVRM: GPU ", "GPU has fallen off the bus", BusLost},
	{"NVRM: The NVIDIA GPU ", "fallen off the bus and is not responding", BusLost}, // several lines
	{"NVRM: GPU ", "RmInitAdapter failed", NotStarted},
	{"NVRM: GPU ", "rm_init_adapter failed", NotStarted},
	{"NVRM: Attempting to remove device ", "with non-zero usage count", Removed},
}

// parseSXid parses "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up". Lines of the same
// number that only have its details are left out.
func parseSXid(entry string) (x Xid, ok bool) {
	name, rest, ok := strings.Cut(entry, ": SXid (PCI:")
	place, rest, found := strings.Cut(rest, "): ")
	number, text, _ := strings.Cut(rest, ", ")
	if _, numbered := ParseMinor(name, "nvidia-nvswitch"); !ok || !found || !numbered {
		return Xid{}, false
	}
	var err error
	x.BusID, err = ParseBusID(place)
	x.Code, ok = Decimal(number, 99_999)
	if err != nil || !ok || strings.HasPrefix(text, "Severity ") || strings.HasPrefix(text, "Data {") {
		return Xid{}, false
	}
	x.Code, x.Text = x.Code+FirstSXid, strings.TrimSpace(text)
	return x, true
}

// amdWords are AMD's messages: what begins them, and what they contain after it.
var amdWords = []struct {
	begin, words string
	code         int
}{
	{"VM memory stats for proc ", "", AMDNotGivenBack}, // process names follow
	{"", "uncorrectable hardware error", AMDUncorrected},
	{"", "correctable hardware error", AMDCorrected},
	{"", "page fault (src_id:", AMDPageFault},
	{"GPU reset begin", "", AMDReset},
	{"GPU reset(", "succeeded", AMDRecovered},
	{"GPU reset(", "failed", AMDHung},
	{"GPU reset end with ret = -", "", AMDHung},
	{"GPU recovery disabled", "", AMDHung},
	{"ring ", " timeout, but soft recovered", AMDRecovered},
	{"ring ", " timeout, signaled seq=", AMDHang},
	{"MES", "failed to respond to msg=", AMDHang},
	{"Failed to evict queue", "", AMDHang},
	{"qcm fence wait loop timeout expired", "", AMDHang},
	{"The cp might be in an unrecoverable state", "", AMDHang},
	{"SMU: ", "0xFFFFFFFF", AMDGone},
	{"RAS EEPROM: ", "exceeds threshold", AMDReplace},
}

// parseAMD parses "amdgpu 0000:e3:00.0: amdgpu: text", whose first 21 bytes are longer than a process name, so that
// none can imitate them, and lines without an address: "amdgpu: text" and "[drm:function [amdgpu]] *ERROR* text".
func parseAMD(entry string) (Xid, bool) {
	const unplaced = "amdgpu: "
	if text, ok := strings.CutPrefix(entry, unplaced); ok {
		return amdError("", text, maxName-len(unplaced))
	}
	if strings.HasPrefix(entry, "[drm:") {
		begin := regexp.MustCompile(`^\[drm:\w+ \[amdgpu\]\] \*ERROR\* `).FindString(entry)
		x, ok := amdError("", entry[len(begin):], 0)
		return x, ok && begin != ""
	}
	rest, ok := strings.CutPrefix(entry, "amdgpu ")
	place, text, found := strings.Cut(rest, ": ")
	bus, err := ParseBusID(place)
	if !ok || !found || err != nil {
		return Xid{}, false
	}
	return amdError(bus, strings.TrimPrefix(text, unplaced), 0)
}

// maxName is the length in bytes of the longest name of a process.
const maxName = 15

// amdError parses a message of AMD's driver. A process's name may be its first chosen bytes. Newer kernels number RAS
// events: "{1}text".
func amdError(bus BusID, text string, chosen int) (Xid, bool) {
	text, _, _ = strings.Cut(text, "\n")
	words := text
	if number, after, numbered := strings.Cut(words, "}"); numbered && strings.HasPrefix(number, "{") {
		words = after
	}
	for _, w := range amdWords {
		after, begins := strings.CutPrefix(words, w.begin)
		if begins && strings.Contains(after, w.words) && (chosen == 0 || len(w.begin) > chosen || amdHub(words)) {
			return Xid{BusID: bus, Code: w.code, Text: text}, true
		}
	}
	return Xid{}, false
}

// amdHub reports whether a line begins as the driver's about a page fault do: no process name makes this of the
// kernel's line about a process.
func amdHub(text string) bool {
	return regexp.MustCompile(`^\[(gfx|mm)hub[0-9.]*\] (no-)?retry page fault \(src_id:`).MatchString(text)
}

// parsePort parses what the kernel itself writes about PCIe ports: "pcieport 0000:64:01.0: pciehp: Slot(17): Link
// Down". Of an uncorrected error it returns the device that reported it.
func parsePort(entry string) (Xid, bool) {
	rest, ok := strings.CutPrefix(entry, "pcieport ")
	place, text, found := strings.Cut(rest, ": ")
	port, err := ParseBusID(place)
	if !ok || !found || err != nil {
		return Xid{}, false
	}
	x := Xid{BusID: port, Code: PortDown, Text: text}
	isFatal := strings.HasPrefix(text, "AER: ") && strings.Contains(text, "Uncorrected (Fatal) error")
	device, err := ParseBusID(text[strings.LastIndexByte(text, ' ')+1:])
	switch {
	case isFatal && err == nil:
		x.BusID, x.Code = device, PCIeFatal
	case isFatal, strings.HasPrefix(text, "DPC: containment event"):
	case !strings.HasPrefix(text, "pciehp: Slot(") || !strings.HasSuffix(text, "): Link Down"):
		return Xid{}, false
	}
	return x, true
}
