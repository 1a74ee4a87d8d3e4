package catalog

import (
	"slices"
	"strings"
)

// DriverError is what is known of some of the errors that a driver writes to the kernel log: of NVIDIA's Xids what
// NVIDIA's guidance makes of them.
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

// DriverErrors returns the whole table.
func DriverErrors() []DriverError { return driverErrors }

// LookupXid returns what is known of an error by its number, false if it is not in the table.
func LookupXid(number int) (DriverError, bool) {
	for _, e := range driverErrors {
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

// Errors without a number, and SXids: these are package gpu's codes for them, and its doubt about AMD.
const (
	amdUncorrected = 10_000 + iota
	amdReset
	amdPageFault
	amdNotGivenBack
	amdHang
	amdGone
	amdHung
	amdRecovered
	amdReplace
	amdCorrected

	busLost    = 10_020
	notStarted = 10_021
	removed    = 10_022
	portDown   = 10_023
	pcieFatal  = 10_024

	sxid = 100_000

	amdUntried = "Bookend was never tried on AMD's hardware"
)

// oldXid is the meaning of numbers that only old GPUs log.
const oldXid = "an error that no GPU since Ampere logs"

// Immediate actions in NVIDIA's catalog.
const (
	restartApp = "restart the program"
	reset      = "reset the GPU"
	ignore     = "nothing"
	support    = "contact support"
)

// Doubts about Xids that may or may not need a reset.
const (
	nvlinkDoubt = "whether an NVLink error needs a reset depends on details that only NVIDIA's workflow decodes"
	eventDoubt  = "an event tells neither details nor whether the GPU has recovered: " +
		"the GPU's condition and its Xids do"
	hungDoubt = "a program's own kernel can hang a GPU so; that the GPU needs a reset, drivers of 570 and " +
		"later say as recovery action"
	startDoubt  = "the driver may have started the GPU since"
	removeDoubt = "an admin may have taken the GPU out"
	pcieDoubt   = "PCIe may have recovered: whether the GPU works, its driver says"
	switchDoubt = "the line has the address of the NVSwitch: which GPUs lost their work is not known"
)

// driverErrors are NVIDIA's numbers by its catalogue of Xids (of driver 610), and from 173 those that only its open
// kernel module names. Of XidFatal the immediate action is a reset or more.
var driverErrors = []DriverError{
	{[]int{46}, XidFatal, ByHardware, "the GPU stopped processing", reset, ""},
	{[]int{48}, XidFatal, ByHardware, "uncorrectable (double bit) memory error",
		"reset the GPU; with 63 or 64, drain and reset", ""},
	{[]int{62}, XidFatal, ByHardware, "a micro-controller of the GPU halted", reset, ""},
	{[]int{64}, XidFatal, ByHardware, "remapping or retiring bad memory failed", reset, ""},
	{[]int{79}, XidFatal, ByHardware, "the GPU has fallen off the bus", "restart the machine", ""},
	{[]int{95}, XidFatal, ByHardware, "uncontained memory error: it may have reached several programs", reset, ""},
	{[]int{110}, XidFatal, ByHardware, "security fault", reset, ""},
	{[]int{119}, XidFatal, ByDriver, "the GPU's own processor (GSP) did not answer", reset, ""},
	{[]int{120}, XidFatal, ByDriver, "error in the GPU's own processor (GSP)", reset, ""},
	{[]int{136}, XidFatal, ByLink, "training of an NVLink failed", reset, ""},
	{[]int{140}, XidFatal, ByHardware, "uncorrectable memory error that was not recovered", reset, ""},
	{[]int{143}, XidFatal, ByHardware, "the GPU could not be initialised", reset, ""},
	{[]int{156}, XidFatal, ByHardware, "a part of the GPU was retired", reset, ""},
	{[]int{158}, XidFatal, ByHardware, "fatal timeout of the GPU", reset, ""},
	{[]int{167}, XidFatal, ByHardware, "fatal timeout on PCIe", "reset the GPU; look at its seating", ""},
	{[]int{169}, XidFatal, ByHardware, "the GPU's security processor (SEC2) halted", reset, ""},
	{[]int{171}, XidFatal, ByHardware, "uncorrectable error of the GPU's memory (DRAM)", reset, ""},
	{[]int{172}, XidFatal, ByHardware, "uncorrectable error of memory on the GPU's chip (SRAM)", reset, ""},
	{[]int{54}, XidFatal, ByHardware, "auxiliary power is not connected",
		"check cables and seating", "what is unplugged, no reset mends: look at the machine"},
	{[]int{109}, XidFatal, Unclear, "context switch timeout: the GPU could not be taken from a program", reset,
		hungDoubt},
	{[]int{74}, XidFatal, ByLink, "NVLink error", "NVLink workflow", nvlinkDoubt},
	{[]int{144, 145, 146, 149, 150}, XidFatal, ByLink, "NVLink 5 error", "NVLink 5 workflow", nvlinkDoubt},
	{[]int{155}, XidFatal, ByLink, "NVLink error defined by software", reset,
		"a link that an admin turned off is logged like this too"},
	{[]int{159}, XidFatal, ByLink, "error of the link between CPU and GPU (CHI)",
		"reset the GPU if it uses unified memory", "NVIDIA asks for a reset only if unified memory is in use"},
	{[]int{151}, XidFatal, ByDriver, "key rotation of confidential computing failed",
		"restart the virtual machine", "NVIDIA asks for a restart of the virtual machine only"},

	{[]int{13}, Xid, ByProgram, "error in a program's kernel: wrong address, illegal instruction", restartApp, ""},
	{[]int{31}, Xid, ByProgram, "memory page fault: a program's kernel used an address that is not its own", restartApp,
		""},
	{[]int{43}, Xid, ByProgram, "a program's work was stopped after an error of its own; the GPU goes on", ignore, ""},
	{[]int{45}, Xid, ByProgram, "clean-up of a program after an earlier error, or because it was ended",
		"follow the Xid before it", ""},
	{[]int{8}, Xid, Unclear, "the GPU stopped processing for a program: an error of the program or the driver",
		restartApp, ""},
	{[]int{11, 25}, Xid, Unclear, "broken command stream: an error of a program or the driver", restartApp, ""},
	{[]int{69}, Xid, Unclear, "wrong use of the graphics or compute engine, by a program or the driver", restartApp,
		""},
	{[]int{32, 80}, Xid, ByLink, "broken command stream: rather the quality of PCIe than a program", restartApp, ""},
	{[]int{63}, Xid, ByHardware, "bad memory was remapped or retired", reset + " when convenient", ""},
	{[]int{92}, Xid, ByHardware, "many corrected memory errors", ignore + "; " + support, ""},
	{[]int{94}, Xid, ByHardware, "contained memory error: it hit one program, which was ended",
		restartApp + "; reset when convenient", ""},
	{[]int{157}, Xid, ByHardware, "a part of the GPU could not be retired", ignore + "; " + support, ""},
	{[]int{162, 163, 164, 165}, Xid, ByHardware, "a notice about power smoothing", ignore, ""},
	{[]int{168}, Xid, ByHardware, "errors in the protected part of memory while ECC is off: less memory is used",
		"turn ECC on, or reboot", ""},
	{[]int{175}, Xid, ByHardware, "error of the memory subsystem", support, ""},
	{[]int{37, 38, 66, 67}, Xid, ByDriver, "error in the firmware that switches contexts (FECS)",
		ignore + "; " + support, ""},
	{[]int{44}, Xid, ByDriver, "error while contexts were switched", ignore + "; " + support, ""},
	{[]int{60}, Xid, ByDriver, "error of the video processor (SEC2)", restartApp, ""},
	{[]int{78}, Xid, ByDriver, "a virtual GPU could not be started", "update software and firmware", ""},
	{[]int{93}, Xid, ByDriver, "the store of settings on the GPU (InfoROM) is written too often",
		ignore + "; " + support, ""},
	{[]int{141}, Xid, ByDriver, "error in a fast path of CUDA", ignore + "; " + support, ""},
	{[]int{147, 148}, Xid, ByDriver, "NVLink 5 error that NVIDIA says to ignore", ignore, ""},
	{[]int{166, 170}, Xid, ByDriver, "error of confidential computing", support, ""},
	{[]int{121}, Xid, ByLink, "corrected errors of the link between CPU and GPU (C2C)", reset + " when convenient", ""},
	{[]int{173}, Xid, ByLink, "fatal error of the link between CPU and GPU (C2C)", support, ""},
	{[]int{176}, Xid, ByLink, "corrected error on PCIe", ignore, ""},
	{[]int{108, 137}, Xid, Unclear, "access through NVLink that the other GPU refused",
		"see what the other GPU says", ""},
	{[]int{154}, Xid, Unclear, "the driver changed what recovery it asks for", "what the recovery action says", ""},
	{[]int{160, 161}, Xid, Unclear, "a channel of the GPU was retired, or could not be", ignore + "; " + support, ""},
	{[]int{174}, Xid, Unclear, "a program was ended as a consequence of another error", "follow the Xid before it", ""},
	{[]int{14, 106, 107}, Xid, Unclear, "a test message", ignore, ""},
	{slices.Concat(from(39, 41), from(70, 72), from(75, 77), []int{85}, from(126, 135)), Xid, Unclear,
		"error of a copy engine", restartApp + "; " + support, ""},
	{slices.Concat([]int{68, 83, 84, 88, 89}, from(96, 98)), Xid, Unclear, "error of a video decoder",
		restartApp + "; " + support, ""},
	{slices.Concat([]int{82}, from(99, 105)), Xid, Unclear, "error of a JPEG decoder", restartApp + "; " + support, ""},
	{[]int{86, 139}, Xid, Unclear, "error of the optical flow engine", restartApp + "; " + support, ""},
	{[]int{142}, Xid, Unclear, "error of a video encoder", support, ""},
	{[]int{152, 153}, Xid, Unclear, "error of a deep learning accelerator, which no data center GPU has",
		ignore + "; " + support, ""},
	{slices.Concat(from(1, 7), []int{9, 10, 12}, from(15, 24), from(26, 30), from(33, 36), []int{42, 47}, from(49, 53),
		from(55, 59), []int{61, 65, 73, 81, 87, 90, 91}, from(111, 118), from(122, 125), []int{138}), Xid, Unclear,
		oldXid, support, ""},

	// NVML's events without a number, by package gpu's codes for them
	{[]int{20_001}, Xid, ByHardware, "bad memory was remapped or retired", reset + " when convenient", ""},
	{[]int{20_002}, XidFatal, ByHardware, "remapping or retiring bad memory failed", reset, eventDoubt},
	{[]int{20_003}, Xid, ByHardware, "contained memory error: it hit one program", restartApp, ""},
	{[]int{20_004}, XidFatal, ByHardware, "uncontained memory error: it may have reached several programs",
		reset, eventDoubt},
	{[]int{20_005}, XidFatal, Unclear, "the GPU became unavailable", reset, eventDoubt},
	{[]int{20_006}, Xid, Unclear, "the driver changed what recovery it asks for",
		"what the recovery action says", ""},

	{[]int{amdUncorrected}, XidFatal, ByHardware, "uncorrectable hardware error",
		"see amd-smi's RAS counters, reset", amdUntried},
	{[]int{amdReset}, Xid, Unclear, "the driver reset the GPU and those linked with it: programs on them were ended",
		"what came before it", ""},
	{[]int{amdPageFault}, Xid, ByProgram, "memory page fault: a program's kernel used an address that is not its own",
		restartApp, ""},
	{[]int{amdNotGivenBack}, Xid, Unclear, "the driver counts memory of an ended program that was not given back",
		"see what memory is in use", ""},
	{[]int{amdHang}, Xid, Unclear, "the GPU hung: work on it did not end, because of a program or of the GPU",
		"what came after it", amdUntried},
	{[]int{amdGone}, XidFatal, Unclear, "the GPU's power controller answers all ones, as a device does that is gone",
		"reboot; look at its seating", amdUntried},
	{[]int{amdHung}, XidFatal, Unclear, "the GPU hung, and the driver did not reset it, or the reset failed", "reboot",
		amdUntried},
	{[]int{amdRecovered}, Xid, Unclear, "the GPU works again after a hang or reset", ignore, ""},
	{[]int{amdReplace}, XidFatal, ByHardware, "more bad memory pages than allowed", "replace the GPU", amdUntried},
	{[]int{amdCorrected}, Xid, ByHardware, "corrected memory error: nothing is lost", ignore, ""},

	{[]int{busLost}, XidFatal, ByHardware, "the GPU has fallen off the bus", "restart the machine", ""},
	{[]int{notStarted}, XidFatal, Unclear, "the driver could not start the GPU: no job can use it",
		"reset the GPU or restart the machine", startDoubt},
	{[]int{removed}, XidFatal, Unclear, "the GPU was taken out of the system while it was in use",
		"restart the machine", removeDoubt},
	{[]int{pcieFatal}, XidFatal, ByHardware, "uncorrected PCIe error of the GPU", "check its seating and slot",
		pcieDoubt},
	{[]int{portDown}, KernelLog, ByHardware, "a PCIe slot lost its link: a GPU or another device behind it is gone",
		"see which device it was", ""},

	// SXids, by the guide of the fabric manager.
	{sxids(from(23001, 23017), 10003, 12020, 22003, 22011), KernelLog, ByLink, "fatal error of a whole NVSwitch",
		"restart the machine", ""},
	{sxids(slices.Concat(from(11018, 11020), from(12024, 12027), from(12030, 12032), from(24004, 24007)), 11001, 11009,
		11013, 12001, 12002, 12022, 14017, 15001, 15006, 15009, 15010, 15012, 15013, 19047, 19048, 19054, 19056, 19058,
		19060, 19061, 19063, 19064, 19066, 19067, 19069, 19070, 20034, 22012), KernelLog, ByLink,
		"fatal error of an NVSwitch link: GPUs behind it lose their work",
		"reset the GPUs behind it, or all with the switches", switchDoubt},
	{sxids(nil, 19084), KernelLog, ByLink, "an NVSwitch link does not answer, after another error",
		"reset all GPUs and switches", switchDoubt},
	{sxids(nil, 20012), KernelLog, ByLink, "bad connection of an NVSwitch link", "check its seating", switchDoubt},
	{sxids(nil, 11004, 12028), KernelLog, ByLink, "access through an NVSwitch that it refused: other jobs go on",
		ignore, ""},
	{sxids(nil, 10001, 10002, 10004, 10005, 20001, 20009, 22013), KernelLog, ByLink,
		"a notice of an NVSwitch: jobs go on", ignore, ""},
	{sxids(slices.Concat(from(11021, 11023), from(24001, 24003)), 11012, 12021, 12023, 15008, 15011, 19049, 19055,
		19057, 19059, 19062, 19065, 19068, 19071), KernelLog, ByLink, "corrected error of an NVSwitch: nothing is lost",
		ignore, ""},
}

// sxids returns the codes of some SXids, in order.
func sxids(run []int, single ...int) []int {
	all := slices.Sorted(slices.Values(append(single, run...)))
	for i := range all {
		all[i] += sxid
	}
	return all
}

// from returns the numbers from first to last.
func from(first, last int) (all []int) {
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

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
