package catalog

import "slices"

// DriverError is what is known of some of the errors that a driver writes to the kernel log: of NVIDIA's Xids what
// NVIDIA's guidance makes of them.
type DriverError struct {
	Numbers []int
	Code    Code
	Meaning string // for an admin, or for the user if the program is meant
	Asks    string // what NVIDIA calls for
	Doubt   string // why it never proves a GPU unusable; empty if it may
}

// DriverErrors returns the whole table.
func DriverErrors() []DriverError { return driverErrors }

// LookupXid returns what is known of an error by its number, false if it is not in the table.
func LookupXid(number int) (DriverError, bool) {
	for _, e := range driverErrors {
		if slices.Contains(e.Numbers, number) {
			return e, true
		}
	}
	return DriverError{Code: Xid, Meaning: "not in the table of this release"}, false
}

// OfProgram reports whether a program's own error, or its end, causes an error. For others the cause is unknown.
func OfProgram(number int) bool {
	return slices.Contains([]int{8, 11, 13, 25, 31, 43, 45, 69, amdPageFault}, number)
}

// AMD does not number its errors: these are package gpu's codes for them, and its doubt about them.
const (
	amdUncorrected = 10_000 + iota
	amdReset
	amdPageFault
	amdNotGivenBack

	amdUntried = "Bookend was never tried on AMD's hardware"
)

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
	hungDoubt   = "a program's own kernel can hang a GPU so; that the GPU needs a reset, drivers of 570 and " +
		"later say as recovery action"
)

// driverErrors are NVIDIA's numbers that data center users meet. The immediate action for XidFatal is a reset or more.
var driverErrors = []DriverError{
	{[]int{46}, XidFatal, "the GPU stopped processing", reset, ""},
	{[]int{48}, XidFatal, "uncorrectable (double bit) memory error",
		"reset the GPU; with 63 or 64, drain and reset", ""},
	{[]int{62}, XidFatal, "a micro-controller of the GPU halted", reset, ""},
	{[]int{64}, XidFatal, "remapping or retiring bad memory failed", reset, ""},
	{[]int{79}, XidFatal, "the GPU has fallen off the bus", "restart the machine", ""},
	{[]int{95}, XidFatal, "uncontained memory error: it may have reached several programs", reset, ""},
	{[]int{110}, XidFatal, "security fault", reset, ""},
	{[]int{119}, XidFatal, "the GPU's own processor (GSP) did not answer", reset, ""},
	{[]int{120}, XidFatal, "error in the GPU's own processor (GSP)", reset, ""},
	{[]int{136}, XidFatal, "training of an NVLink failed", reset, ""},
	{[]int{140}, XidFatal, "uncorrectable memory error that was not recovered", reset, ""},
	{[]int{143}, XidFatal, "the GPU could not be initialised", reset, ""},
	{[]int{155}, XidFatal, "NVLink error defined by software", reset, ""},
	{[]int{156}, XidFatal, "a part of the GPU was retired", reset, ""},
	{[]int{158}, XidFatal, "fatal timeout of the GPU", reset, ""},
	{[]int{109}, XidFatal, "context switch timeout: the GPU could not be taken from a program", reset, hungDoubt},
	{[]int{74}, XidFatal, "NVLink error", "NVLink workflow", nvlinkDoubt},
	{[]int{144, 145, 146, 149, 150}, XidFatal, "NVLink 5 error", "NVLink 5 workflow", nvlinkDoubt},
	{[]int{54}, XidFatal, "auxiliary power is not connected",
		"check cables and seating", "what is unplugged, no reset mends: look at the machine"},
	{[]int{151}, XidFatal, "key rotation of confidential computing failed",
		"restart the virtual machine", "NVIDIA asks for a restart of the virtual machine only"},

	{[]int{8}, Xid, "the GPU stopped processing for this program", restartApp, ""},
	{[]int{11, 25}, Xid, "broken command stream of a program", restartApp, ""},
	{[]int{32, 80}, Xid, "broken command stream of a program", restartApp, ""},
	{[]int{13}, Xid, "error in a program's kernel: wrong address, illegal instruction", restartApp, ""},
	{[]int{31}, Xid, "memory page fault: a program's kernel used an address that is not its own", restartApp, ""},
	{[]int{43}, Xid, "a program's work was stopped after an error of its own; the GPU goes on", ignore, ""},
	{[]int{45}, Xid, "clean-up of a program after an earlier error, or because it was ended",
		"follow the Xid before it", ""},
	{[]int{63}, Xid, "bad memory was remapped or retired: no program's fault", ignore, ""},
	{[]int{69}, Xid, "wrong use of the graphics or compute engine by a program", restartApp, ""},
	{[]int{92}, Xid, "many corrected memory errors: no program's fault", ignore, ""},
	{[]int{94}, Xid, "contained memory error: it hit one program, which was ended; no program's fault",
		restartApp + "; reset when convenient", ""},
	{[]int{108, 137}, Xid, "access through NVLink that the other GPU refused", "see what the other GPU says", ""},
	{[]int{154}, Xid, "the driver changed what recovery it asks for", "what the recovery action says", ""},
	{[]int{157}, Xid, "a part of the GPU could not be retired", ignore + "; " + support, ""},

	{[]int{amdUncorrected}, XidFatal, "uncorrectable hardware error",
		"see amd-smi's RAS counters, reset", amdUntried},
	{[]int{amdReset}, Xid, "the driver reset the GPU and those linked with it: programs on them were ended",
		"what came before it", ""},
	{[]int{amdPageFault}, Xid, "memory page fault: a program's kernel used an address that is not its own",
		restartApp, ""},
	{[]int{amdNotGivenBack}, Xid, "the driver counts memory of an ended program that was not given back",
		ignore, ""},
}
