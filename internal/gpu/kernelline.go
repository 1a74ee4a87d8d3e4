package gpu

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	AMDDriverFault // a page fault in work of the driver's own
)

const (
	BusLost    = maxXid + 21 + iota // what Xid 79 says, without a number
	NotStarted                      // RmInitAdapter failed
	Removed                         // taken out while in use
	PortDown                        // a PCIe port lost its link or had a fatal error: the line has the port's address
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

// NamedXid returns the code of an error that a text only names: "xid79", "Xid: 79", "SXid 20034".
func NamedXid(text string) (code int, ok bool) {
	name, digits, _ := strings.Cut(strings.ToLower(strings.TrimSpace(text)), "xid")
	code, ok = Decimal(strings.TrimLeft(digits, " :_-"), FirstSXid-1)
	if name == "s" {
		code += FirstSXid
	}
	return code, ok && (name == "" || name == "s")
}

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
	return parseForms(entry)
}

// OwnerPID returns the process whose work an error ended or concerns, 0 if none is known. Many lines name the process
// that happened to call the driver at that moment, perhaps nvidia-smi or another job's.
func (x Xid) OwnerPID() int {
	owned := []int{8, 11, 13, 25, 31, 32, 39, 40, 41, 42, 43, 44, 45, 69, 94}
	bystander := []int{48, 62, 63, 64, 79, 95, 119, 120, recoveryChanged}
	hasChannel := strings.HasPrefix(x.Text, "Ch ") || strings.HasPrefix(x.Text, "channel 0x") // since 590
	if hasChannel && !slices.Contains(bystander, x.Code) || slices.Contains(owned, x.Code) {
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
	n, _ := Decimal(strings.TrimRight(x.Text[at+len(words):], "]"), maxXid) // syslog: "message repeated 2 times: [...]"
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

// forms are the lines with an address and without an Xid, by what begins them: NVIDIA's about a GPU, the SXids of an
// NVSwitch without the lines that only have their details, and the kernel's own about PCIe. The address of an
// uncorrected PCIe error is that of the device that reported it.
var forms = []struct {
	begin, form string
	code        int
}{
	{"NVRM: ", `GPU (?<bus>\S+?):? (?<text>.*GPU has fallen off the bus.*)`, BusLost},
	{"NVRM: ", `The NVIDIA GPU (?<bus>\S+?):? (?<text>.*fallen off the bus and is not responding.*)`, BusLost},
	{"NVRM: ", `GPU (?<bus>\S+?):? (?<text>.*(RmInitAdapter|rm_init_adapter) failed.*)`, NotStarted},
	{"NVRM: ", `Attempting to remove device (?<bus>\S+?):? (?<text>.*with non-zero usage count.*)`, Removed},
	{"nvidia-nvswitch", `\d+: SXid \(PCI:(?<bus>\S+)\): (?<code>\d{1,5})(, (?<text>.*))?`, FirstSXid},
	{"pcieport ", `\S+: (?<text>AER: .*Uncorrect(ed|able) \(Fatal\) error.* (?<bus>[0-9a-f]+:\S+)( .*)?)`, PCIeFatal},
	{"pcieport ", `(?<bus>\S+): (?<text>AER: .*Uncorrect(ed|able) \(Fatal\) error.*)`, PortDown}, // able: since 6.8
	{"pcieport ", `(?<bus>\S+): (?<text>DPC: containment event.*)`, PortDown},
	{"pcieport ", `(?<bus>\S+): (?<text>pciehp: Slot\(.*\): Link Down)`, PortDown},
}

var formPatterns = sync.OnceValue(func() (all []*regexp.Regexp) {
	for _, f := range forms {
		all = append(all, regexp.MustCompile("(?s)^"+f.begin+f.form+"$"))
	}
	return all
})

func parseForms(entry string) (Xid, bool) {
	for i, f := range forms {
		if !strings.HasPrefix(entry, f.begin) {
			continue
		}
		form := formPatterns()[i]
		found := form.FindStringSubmatch(strings.ReplaceAll(entry, "\nNVRM:", "")) // an entry of several lines
		if found == nil {
			continue
		}
		bus, err := ParseBusID(found[form.SubexpIndex("bus")])
		text := strings.TrimSpace(found[form.SubexpIndex("text")])
		if err != nil || strings.HasPrefix(text, "Severity ") || strings.HasPrefix(text, "Data {") {
			continue
		}
		x := Xid{BusID: bus, Code: f.code, Text: text}
		if n := form.SubexpIndex("code"); n > 0 {
			number, _ := Decimal(found[n], 99_999)
			x.Code += number
		}
		if x.Code == PCIeFatal && strings.HasPrefix(entry, f.begin+found[form.SubexpIndex("bus")]+":") {
			x.Code = PortDown // it reports itself
		}
		return x, true
	}
	return Xid{}, false
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
	{"MES", "failed to respon", AMDHang}, // "se msg=" before 6.9
	{"MES ", "in unrecoverable state", AMDHang},
	{"Failed to evict queue", "", AMDHang},
	{"qcm fence wait loop timeout expired", "", AMDHang},
	{"The cp might be in an unrecoverable state", "", AMDHang},
	{"SMU: ", "0xFFFFFFFF", AMDGone},
	{"RAS EEPROM: ", "exceeds threshold", AMDReplace},
}

// unplaced begins AMD's lines without an address. A process's name of 15 bytes may begin so too.
const unplaced = "amdgpu: "

// amdForm is "amdgpu 0000:e3:00.0: amdgpu: text", whose first 21 bytes are longer than a process name, so that none can
// imitate them, or a line without an address: "amdgpu: text" and "[drm:function [amdgpu]] *ERROR* text", or both. Newer
// kernels number RAS events: "{1}text".
var amdForm = sync.OnceValue(func() *regexp.Regexp {
	const by = `\[drm(?::[\w.]+ \[amdgpu\])?\] \*ERROR\* `
	return regexp.MustCompile(`^(?:amdgpu (\S+): (?:amdgpu: |` + by + `)?|amdgpu: |` + by + `)((?:\{[^}]*\})?(.*))`)
})

func parseAMD(entry string) (Xid, bool) {
	if !strings.HasPrefix(entry, "amdgpu") && !strings.HasPrefix(entry, "[drm:") {
		return Xid{}, false
	}
	found := amdForm().FindStringSubmatch(entry)
	none := regexp.MustCompile(`[ }]0 (new )?(un)?correctable hardware error`)
	if found == nil || none.MatchString(entry) { // the driver counts each die if one has an error
		return Xid{}, false
	}
	bus, err := ParseBusID(found[1])
	chosen := 0 // bytes of the text that a process may have chosen
	if strings.HasPrefix(entry, unplaced) {
		chosen = 15 - len(unplaced)
	}
	for _, w := range amdWords {
		after, begins := strings.CutPrefix(found[3], w.begin)
		if begins && strings.Contains(after, w.words) && (err == nil || found[1] == "") &&
			(chosen == 0 || len(w.begin) > chosen || ofHub(found[3])) {
			if w.code == AMDPageFault && regexp.MustCompile(`fault \(src_id:\d+ ring:\d+ vmid:0 `).MatchString(after) {
				w.code = AMDDriverFault // a program's address space has another number
			}
			return Xid{BusID: bus, Code: w.code, Text: found[2]}, true
		}
	}
	return Xid{}, false
}

// ofHub reports whether a line begins as the driver's about page faults do: no process's name looks like that.
func ofHub(text string) bool {
	return regexp.MustCompile(`^\[(gfx|mm)hub[0-9.]*\] (no-)?retry page fault \(src_id:`).MatchString(text)
}

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
