package catalog

import (
	"cmp"
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// DriverError is what is known of an error that a driver writes to the kernel log: for Xids, NVIDIA's guidance.
type DriverError struct {
	Numbers []int
	Code    Code
	Cause   Cause
	Meaning string // for an admin, or for the user if the program is meant
	Asks    string // what NVIDIA calls for
	Doubt   string // why it never proves a GPU unusable; empty if it may
}

// Cause is what causes an error, as far as its number tells.
type Cause string

// The causes. A fault of the GPU's own firmware is the driver's if the driver loads that firmware.
const (
	Unclear    Cause = "cannot be told"
	ByProgram  Cause = "a program"
	ByHardware Cause = "the GPU's hardware"
	ByDriver   Cause = "the driver or its firmware"
	ByLink     Cause = "a link: NVLink, C2C or PCIe"
)

//go:embed xids.txt
var xidTable string

// DriverErrors returns the whole table.
var DriverErrors = sync.OnceValue(func() (all []DriverError) {
	codes := map[string]Code{"fatal": XidFatal, "error": Xid, "log": KernelLog}
	causes := map[string]Cause{
		"program": ByProgram, "hardware": ByHardware, "driver": ByDriver, "link": ByLink, "unclear": Unclear,
	}
	for _, f := range Rows(xidTable, 5) {
		all = append(all, DriverError{Numbers: numbers(f[2]), Code: codes[f[0]], Cause: causes[f[1]], Meaning: f[3],
			Asks: f[4], Doubt: strings.Join(f[5:], "")})
	}
	return all
})

// numbers parses single numbers and "first-last"; behind S they are SXids.
func numbers(text string) (all []int) {
	list, isSwitch := strings.CutPrefix(text, "S")
	for _, field := range strings.Fields(list) {
		from, to, _ := strings.Cut(field, "-")
		first, _ := strconv.Atoi(from)
		last, _ := strconv.Atoi(cmp.Or(to, from))
		for n := first; n <= last; n++ {
			if isSwitch {
				all = append(all, sxid+n)
			} else {
				all = append(all, n)
			}
		}
	}
	return all
}

func LookupXid(number int) (DriverError, bool) {
	for _, e := range DriverErrors() {
		if slices.Contains(e.Numbers, number) {
			return e, true
		}
	}
	if number > sxid {
		return DriverError{Code: KernelLog, Cause: ByLink, Doubt: switchDoubt,
			Meaning: "an NVSwitch error that is not known to this release"}, false
	}
	return DriverError{Code: Xid, Cause: Unclear, Meaning: "not known to this release"}, false
}

// OfProgram reports whether a program's own error, or its end, causes an error.
func OfProgram(number int) bool {
	e, _ := LookupXid(number)
	return e.Cause == ByProgram
}

// Words of the table that rules depend on. sxid is package gpu's FirstSXid.
const (
	sxid        = 100_000
	oldXid      = "an error that no GPU since Ampere logs"
	restartApp  = "restart the program"
	ignore      = "nothing"
	switchDoubt = "the line has the address of the NVSwitch: which GPUs lost their work is not known"
)

// Noted reports whether the error calls for nothing and is no program's: a note is enough.
func (e DriverError) Noted() bool {
	return e.Asks == ignore && e.Cause != ByProgram || e.Old()
}

// OfGPU reports whether an error speaks against the GPU that logs it: its hardware or a link failed or, if that takes a
// reset, its firmware. Notices, and what only ends a program, do not count: a program may have caused it.
func (e DriverError) OfGPU() bool {
	minor := strings.HasPrefix(e.Asks, ignore) || e.Asks == restartApp
	return e.Cause == ByHardware && !minor || e.Cause == ByLink && !minor || e.Cause == ByDriver && e.Code == XidFatal
}

// Old reports whether only GPUs before Ampere log the error.
func (e DriverError) Old() bool { return e.Meaning == oldXid }
