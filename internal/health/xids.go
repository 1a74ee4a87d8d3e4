package health

import (
	"slices"

	"bookend/internal/code"
)

// What NVIDIA's catalog calls for at once.
const (
	restartApp = "restart the program"
	reset      = "reset the GPU"
	ignore     = "nothing"
	support    = "contact support"
)

// Doubts of Xids that may need a reset, or not.
const (
	nvlinkDoubt = "whether an NVLink error needs a reset depends on details that only NVIDIA's workflow decodes"
	hungDoubt   = "a program's own kernel can hang a GPU so; that the GPU needs a reset, drivers of 570 and " +
		"later say as recovery action"
)

// numbers are some Xids that mean the same.
type numbers struct {
	code                 code.Code
	meaning, asks, doubt string
	xids                 []int
}

// xidNumbers are the numbers of NVIDIA's catalog that users of data center cards meet. One is a fault of the card if
// the catalog's immediate action is a reset or more; in doubt it is not.
var xidNumbers = []numbers{
	{code.XidFatal, "the GPU stopped processing", reset, "", []int{46}},
	{code.XidFatal, "uncorrectable (double bit) memory error", "reset the GPU; with 63 or 64, drain and reset", "",
		[]int{48}},
	{code.XidFatal, "a micro-controller of the GPU halted", reset, "", []int{62}},
	{code.XidFatal, "remapping or retiring bad memory failed", reset, "", []int{64}},
	{code.XidFatal, "the GPU has fallen off the bus", "restart the machine", "", []int{79}},
	{code.XidFatal, "uncontained memory error: it may have reached several programs", reset, "", []int{95}},
	{code.XidFatal, "security fault", reset, "", []int{110}},
	{code.XidFatal, "the GPU's own processor (GSP) did not answer", reset, "", []int{119}},
	{code.XidFatal, "error in the GPU's own processor (GSP)", reset, "", []int{120}},
	{code.XidFatal, "training of an NVLink failed", reset, "", []int{136}},
	{code.XidFatal, "uncorrectable memory error that was not recovered", reset, "", []int{140}},
	{code.XidFatal, "the GPU could not be initialised", reset, "", []int{143}},
	{code.XidFatal, "NVLink error defined by software", reset, "", []int{155}},
	{code.XidFatal, "a part of the GPU was retired", reset, "", []int{156}},
	{code.XidFatal, "fatal timeout of the GPU", reset, "", []int{158}},
	{code.XidFatal, "context switch timeout: the GPU could not be taken from a program", reset, hungDoubt, []int{109}},
	{code.XidFatal, "NVLink error", "NVLink workflow", nvlinkDoubt, []int{74}},
	{code.XidFatal, "NVLink 5 error", "NVLink 5 workflow", nvlinkDoubt, []int{144, 145, 146, 149, 150}},
	{code.XidFatal, "auxiliary power is not connected", "check cables and seating",
		"what is unplugged, no reset mends: look at the machine", []int{54}},
	{code.XidFatal, "key rotation of confidential computing failed", "restart the virtual machine",
		"NVIDIA asks for a restart of the virtual machine only", []int{151}},

	{code.Xid, "the GPU stopped processing for this program", restartApp, "", []int{8}},
	{code.Xid, "broken command stream of a program", restartApp, "", []int{11, 25, 32, 80}},
	{code.Xid, "error in a program's kernel: wrong address, illegal instruction", restartApp, "", []int{13}},
	{code.Xid, "memory page fault: a program's kernel used an address that is not its own", restartApp, "", []int{31}},
	{code.Xid, "a program's work was stopped after an error of its own; the GPU goes on", ignore, "", []int{43}},
	{code.Xid, "clean-up of a program after an earlier error, or because it was ended", "follow the Xid before it", "",
		[]int{45}},
	{code.Xid, "bad memory was remapped or retired: no program's fault", ignore, "", []int{63}},
	{code.Xid, "wrong use of the graphics or compute engine by a program", restartApp, "", []int{69}},
	{code.Xid, "many corrected memory errors: no program's fault", ignore, "", []int{92}},
	{code.Xid, "contained memory error: it hit one program, which was ended; no program's fault",
		restartApp + "; reset when convenient", "", []int{94}},
	{code.Xid, "access through NVLink that the other GPU refused", "see what the other GPU says", "",
		[]int{108, 137}},
	{code.Xid, "the driver changed what recovery it asks for", "what the recovery action says", "", []int{154}},
	{code.Xid, "a part of the GPU could not be retired", ignore + "; " + support, "", []int{157}},
}

// row makes the table's line.
func (n numbers) row() Row {
	return Row{
		Xids: n.xids, Code: n.code, Meaning: n.meaning, Asks: n.asks, Doubt: n.doubt,
		expected: "no Xid on the GPU during the job",
	}
}

// Fatal reports an Xid that the table calls a fault of the card, with a doubt or without one.
func Fatal(number int) bool {
	r, _ := xidRow(number)
	return r.Code == code.XidFatal
}

// xidRow returns the line of a number; false for one that has none.
func xidRow(number int) (Row, bool) {
	for _, n := range xidNumbers {
		if slices.Contains(n.xids, number) {
			return n.row(), true
		}
	}
	return numbers{code: code.Xid, meaning: "not in the table of this release"}.row(), false
}
