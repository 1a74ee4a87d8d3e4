package catalog

import (
	"cmp"
	"slices"
	"strconv"
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

// sxid is package gpu's FirstSXid, amdUntried its doubt about AMD.
const (
	sxid       = 100_000
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
	row(XidFatal, ByHardware, "46", "the GPU stopped processing", reset),
	row(XidFatal, ByHardware, "48", "uncorrectable (double bit) memory error",
		"reset the GPU; with 63 or 64, drain and reset"),
	row(XidFatal, ByHardware, "62", "a micro-controller of the GPU halted", reset),
	row(XidFatal, ByHardware, "64", "remapping or retiring bad memory failed", reset),
	row(XidFatal, ByHardware, "79", "the GPU has fallen off the bus", "restart the machine"),
	row(XidFatal, ByHardware, "95", "uncontained memory error: it may have reached several programs", reset),
	row(XidFatal, ByHardware, "110", "security fault", reset),
	row(XidFatal, ByDriver, "119", "the GPU's own processor (GSP) did not answer", reset),
	row(XidFatal, ByDriver, "120", "error in the GPU's own processor (GSP)", reset),
	row(XidFatal, ByLink, "136", "training of an NVLink failed", reset),
	row(XidFatal, ByHardware, "140", "uncorrectable memory error that was not recovered", reset),
	row(XidFatal, ByHardware, "143", "the GPU could not be initialised", reset),
	row(XidFatal, ByHardware, "156", "a part of the GPU was retired", reset),
	row(XidFatal, ByHardware, "158", "fatal timeout of the GPU", reset),
	row(XidFatal, ByHardware, "167", "fatal timeout on PCIe", "reset the GPU; look at its seating"),
	row(XidFatal, ByHardware, "169", "the GPU's security processor (SEC2) halted", reset),
	row(XidFatal, ByHardware, "171", "uncorrectable error of the GPU's memory (DRAM)", reset),
	row(XidFatal, ByHardware, "172", "uncorrectable error of memory on the GPU's chip (SRAM)", reset),
	row(XidFatal, ByHardware, "54", "auxiliary power is not connected", "check cables and seating",
		"what is unplugged, no reset mends: look at the machine"),
	row(XidFatal, Unclear, "109", "context switch timeout: the GPU could not be taken from a program", reset,
		hungDoubt),
	row(XidFatal, ByLink, "74", "NVLink error", "NVLink workflow", nvlinkDoubt),
	row(XidFatal, ByLink, "144 145 146 149 150", "NVLink 5 error", "NVLink 5 workflow", nvlinkDoubt),
	row(XidFatal, ByLink, "155", "NVLink error defined by software", reset,
		"a link that an admin turned off is logged like this too"),
	row(XidFatal, ByLink, "159", "error of the link between CPU and GPU (CHI)",
		"reset the GPU if it uses unified memory", "NVIDIA asks for a reset only if unified memory is in use"),
	row(XidFatal, ByDriver, "151", "key rotation of confidential computing failed", "restart the virtual machine",
		"NVIDIA asks for a restart of the virtual machine only"),

	row(Xid, ByProgram, "13", "error in a program's kernel: wrong address, illegal instruction", restartApp),
	row(Xid, ByProgram, "31", "memory page fault: a program's kernel used an address that is not its own", restartApp),
	row(Xid, ByProgram, "43", "a program's work was stopped after an error of its own; the GPU goes on", ignore),
	row(Xid, ByProgram, "45", "clean-up of a program after an earlier error, or because it was ended",
		"follow the Xid before it"),
	row(Xid, Unclear, "8", "the GPU stopped processing for a program: an error of the program or the driver",
		restartApp),
	row(Xid, Unclear, "11 25", "broken command stream: an error of a program or the driver", restartApp),
	row(Xid, Unclear, "69", "wrong use of the graphics or compute engine, by a program or the driver", restartApp),
	row(Xid, ByLink, "32 80", "broken command stream: rather the quality of PCIe than a program", restartApp),
	row(Xid, ByHardware, "63", "bad memory was remapped or retired", reset+" when convenient"),
	row(Xid, ByHardware, "92", "many corrected memory errors", ignore+"; "+support),
	row(Xid, ByHardware, "94", "contained memory error: it hit one program, which was ended",
		restartApp+"; reset when convenient"),
	row(Xid, ByHardware, "157", "a part of the GPU could not be retired", ignore+"; "+support),
	row(Xid, ByHardware, "162 163 164 165", "a notice about power smoothing", ignore),
	row(Xid, ByHardware, "168", "errors in the protected part of memory while ECC is off: less memory is used",
		"turn ECC on, or reboot"),
	row(Xid, ByHardware, "175", "error of the memory subsystem", support),
	row(Xid, ByDriver, "37 38 66 67", "error in the firmware that switches contexts (FECS)", ignore+"; "+support),
	row(Xid, ByDriver, "44", "error while contexts were switched", ignore+"; "+support),
	row(Xid, ByDriver, "60", "error of the video processor (SEC2)", restartApp),
	row(Xid, ByDriver, "78", "a virtual GPU could not be started", "update software and firmware"),
	row(Xid, ByDriver, "93", "the store of settings on the GPU (InfoROM) is written too often",
		ignore+"; "+support),
	row(Xid, ByDriver, "141", "error in a fast path of CUDA", ignore+"; "+support),
	row(Xid, ByDriver, "147 148", "NVLink 5 error that NVIDIA says to ignore", ignore),
	row(Xid, ByDriver, "166 170", "error of confidential computing", support),
	row(Xid, ByLink, "121", "corrected errors of the link between CPU and GPU (C2C)", reset+" when convenient"),
	row(Xid, ByLink, "173", "fatal error of the link between CPU and GPU (C2C)", support),
	row(Xid, ByLink, "176", "corrected error on PCIe", ignore),
	row(Xid, Unclear, "108 137", "access through NVLink that the other GPU refused", "see what the other GPU says"),
	row(Xid, Unclear, "154", "the driver changed what recovery it asks for", "what the recovery action says"),
	row(Xid, Unclear, "160 161", "a channel of the GPU was retired, or could not be", ignore+"; "+support),
	row(Xid, Unclear, "174", "a program was ended as a consequence of another error", "follow the Xid before it"),
	row(Xid, Unclear, "14 106 107", "a test message", ignore),
	row(Xid, Unclear, "39-41 70-72 75-77 85 126-135", "error of a copy engine", restartApp+"; "+support),
	row(Xid, Unclear, "68 83 84 88 89 96-98", "error of a video decoder", restartApp+"; "+support),
	row(Xid, Unclear, "82 99-105", "error of a JPEG decoder", restartApp+"; "+support),
	row(Xid, Unclear, "86 139", "error of the optical flow engine", restartApp+"; "+support),
	row(Xid, Unclear, "142", "error of a video encoder", support),
	row(Xid, Unclear, "152 153", "error of a deep learning accelerator, which no data center GPU has",
		ignore+"; "+support),
	row(Xid, Unclear, "1-7 9 10 12 15-24 26-30 33-36 42 47 49-53 55-59 61 65 73 81 87 90 91 111-118 122-125 138",
		oldXid, support),

	// NVML's events without a number, by package gpu's codes for them
	row(Xid, ByHardware, "20001", "bad memory was remapped or retired", reset+" when convenient"),
	row(XidFatal, ByHardware, "20002", "remapping or retiring bad memory failed", reset, eventDoubt),
	row(Xid, ByHardware, "20003", "contained memory error: it hit one program", restartApp),
	row(XidFatal, ByHardware, "20004", "uncontained memory error: it may have reached several programs", reset,
		eventDoubt),
	row(XidFatal, Unclear, "20005", "the GPU became unavailable", reset, eventDoubt),
	row(Xid, Unclear, "20006", "the driver changed what recovery it asks for", "what the recovery action says"),

	// AMD's errors and lines without a number, by package gpu's codes for them
	row(XidFatal, ByHardware, "10000", "uncorrectable hardware error", "see amd-smi's RAS counters, reset", amdUntried),
	row(Xid, Unclear, "10001", "the driver reset the GPU and those linked with it: programs on them were ended",
		"what came before it"),
	row(Xid, ByProgram, "10002", "memory page fault: a program's kernel used an address that is not its own",
		restartApp),
	row(Xid, Unclear, "10003", "the driver counts memory of an ended program that was not given back",
		"see what memory is in use"),
	row(Xid, Unclear, "10004", "the GPU hung: work on it did not end, because of a program or of the GPU",
		"what came after it", amdUntried),
	row(XidFatal, Unclear, "10005", "the GPU's power controller answers all ones, as a device does that is gone",
		"reboot; look at its seating", amdUntried),
	row(XidFatal, Unclear, "10006", "the GPU hung, and the driver did not reset it, or the reset failed", "reboot",
		amdUntried),
	row(Xid, Unclear, "10007", "the GPU works again after a hang or reset", ignore),
	row(XidFatal, ByHardware, "10008", "more bad memory pages than allowed", "replace the GPU", amdUntried),
	row(Xid, ByHardware, "10009", "corrected memory error: nothing is lost", ignore),

	row(XidFatal, ByHardware, "10020", "the GPU has fallen off the bus", "restart the machine"),
	row(XidFatal, Unclear, "10021", "the driver could not start the GPU: no job can use it",
		"reset the GPU or restart the machine", startDoubt),
	row(XidFatal, Unclear, "10022", "the GPU was taken out of the system while it was in use", "restart the machine",
		removeDoubt),
	row(XidFatal, ByHardware, "10024", "uncorrected PCIe error of the GPU", "check its seating and slot", pcieDoubt),
	row(KernelLog, ByHardware, "10023", "a PCIe slot lost its link: a GPU or another device behind it is gone",
		"see which device it was"),

	// SXids, by the guide of the fabric manager.
	row(KernelLog, ByLink, "S10003 12020 22003 22011 23001-23017", "fatal error of a whole NVSwitch",
		"restart the machine"),
	row(KernelLog, ByLink,
		"S11001 11009 11013 11018-11020 12001 12002 12022 12024-12027 12030-12032 14017 15001 15006 15009 15010 15012 "+
			"15013 19047 19048 19054 19056 19058 19060 19061 19063 19064 19066 19067 19069 19070 20034 22012 24004-24007",
		"fatal error of an NVSwitch link: GPUs behind it lose their work",
		"reset the GPUs behind it, or all with the switches", switchDoubt),
	row(KernelLog, ByLink, "S19084", "an NVSwitch link does not answer, after another error",
		"reset all GPUs and switches", switchDoubt),
	row(KernelLog, ByLink, "S20012", "bad connection of an NVSwitch link", "check its seating", switchDoubt),
	row(KernelLog, ByLink, "S11004 12028", "access through an NVSwitch that it refused: other jobs go on", ignore),
	row(KernelLog, ByLink, "S10001 10002 10004 10005 20001 20009 22013", "a notice of an NVSwitch: jobs go on", ignore),
	row(KernelLog, ByLink,
		"S11012 11021-11023 12021 12023 15008 15011 19049 19055 19057 19059 19062 19065 19068 19071 24001-24003",
		"corrected error of an NVSwitch: nothing is lost", ignore),
}

// row makes a row of the table. Its numbers are single or "first-last"; with S before them they are SXids'.
func row(code Code, cause Cause, numbers, meaning, asks string, doubt ...string) DriverError {
	e := DriverError{Code: code, Cause: cause, Meaning: meaning, Asks: asks, Doubt: strings.Join(doubt, "")}
	list, isSwitch := strings.CutPrefix(numbers, "S")
	for _, field := range strings.Fields(list) {
		from, to, _ := strings.Cut(field, "-")
		first, _ := strconv.Atoi(from)
		last, _ := strconv.Atoi(cmp.Or(to, from))
		for n := first; n <= last; n++ {
			e.Numbers = append(e.Numbers, n)
			if isSwitch {
				e.Numbers[len(e.Numbers)-1] += sxid
			}
		}
	}
	return e
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
