package condition

import (
	"slices"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
)

// Row is one line of the table: a fact with a value, or some Xids, and what follows from it.
type Row struct {
	Fact    gpu.FactCode // empty for Xids
	Value   string       // of the fact: the word itself, or a description if it is compared
	Xids    []int
	Code    catalog.Code
	Meaning string // for an admin, or for the user if the program is meant; of a fact also what was observed
	Asks    string // what NVIDIA calls for
	Doubt   string // why it never proves a GPU unusable; empty if it may

	judge judge // of facts
}

func table() []Row { return slices.Concat(factRows, xidRows) }

// XidRow returns the row of an Xid, false for one that the table does not have.
func XidRow(number int) (Row, bool) {
	for _, r := range xidRows {
		if slices.Contains(r.Xids, number) {
			return r, true
		}
	}
	return Row{Code: catalog.Xid, Meaning: "not in the table of this release"}, false
}

// OfProgram reports whether an Xid is caused by a program's own error, or by its end. For others, and for numbers that
// are not in the table, the cause is unknown.
func OfProgram(number int) bool {
	return slices.Contains([]int{8, 11, 13, 25, 31, 43, 45, 69, gpu.AMDPageFault}, number)
}

var expected = map[catalog.Code]string{
	catalog.Recovery: "no recovery asked for", catalog.RemapFailed: "no failed remapping",
	catalog.RemapPending: "no pending remapping", catalog.Pages: "no pages waiting",
	catalog.ECC:    "no uncorrectable memory errors",
	catalog.Fabric: "a GPU in its NVLink fabric", catalog.Persistence: "persistence mode on",
	catalog.Throttle: "full clocks",
	catalog.Xid:      "no Xid on the GPU during the job", catalog.XidFatal: "no Xid on the GPU during the job",
}

// A recovery action is the driver's verdict. It is trusted if NVIDIA's text says not to give the GPU out as it is.
var factRows = []Row{
	fact(gpu.RecoveryAction, "reset", catalog.Recovery, equal, "the driver asks for a reset of the GPU",
		"end its processes, reset the GPU", ""),
	fact(gpu.RecoveryAction, "reboot", catalog.Recovery, equal, "the driver asks for a reboot of the node",
		"reboot the node", ""),
	fact(gpu.RecoveryAction, "drain_reset", catalog.Recovery, equal,
		"the driver asks to give the GPU no new work and to reset it",
		"no new work; reset the GPU once what runs has ended", ""),
	fact(gpu.RecoveryAction, "drain_p2p", catalog.Recovery, equal, "the driver asks for an end of traffic between GPUs",
		"end the processes that use several GPUs, ask again",
		"the driver asks for an end of traffic between GPUs only, and says later what is next"),
	fact(gpu.RecoveryAction, "recover_imex", catalog.Recovery, equal, "the driver asks for recovery of the IMEX domain",
		"recover the IMEX domain", "the driver asks for recovery of the IMEX domain only, which is not this GPU"),
	// newer NVML has 6, reset of the PCIe bus, and 7, reboot of the system
	fact(gpu.RecoveryAction, "another number", catalog.Recovery, another, "the driver asks for recovery action number ",
		"see the guide of this driver", "what this recovery action asks for is not known to this release"),
	fact(gpu.RemapFailed, "yes", catalog.RemapFailed, equal, "the remapping of a memory row has failed",
		"field diagnostics, replace the GPU", ""),
	fact(gpu.RemapPending, "yes", catalog.RemapPending, equal, "memory rows wait for a reset to be remapped",
		"reset when convenient", ""),
	fact(gpu.RetiredPending, "yes", catalog.Pages, equal, "memory pages wait for a reset to be retired",
		"reset when convenient", ""),
	fact(gpu.ECCUncorrected, "more than in the last sample", catalog.ECC, counted, "uncorrectable memory errors",
		"what recovery action and remapping say", ""),
	fact(gpu.FabricState, "failed", catalog.Fabric, equal, "joining the NVLink fabric has failed", fabric, ""),
	fact(gpu.FabricState, "not_started", catalog.Fabric, equal, "the GPU has not begun to join the NVLink fabric",
		fabric, ""),
	fact(gpu.FabricState, "in_progress", catalog.Fabric, underWay, "the GPU is still joining the NVLink fabric",
		"wait", ""),
	fact(gpu.PersistenceMode, "off", catalog.Persistence, equal, "persistence mode is off", "run nvidia-persistenced",
		""),
	fact(gpu.Throttled, "for heat, or by the power brake", catalog.Throttle, slowed, "clocks are held down: ",
		"check cooling and power", ""),
}

const fabric = "see to nvidia-fabricmanager"

func fact(f gpu.FactCode, value string, c catalog.Code, judge judge, meaning, asks, doubt string) Row {
	return Row{Fact: f, Value: value, Code: c, judge: judge, Meaning: meaning, Asks: asks, Doubt: doubt}
}

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

func xid(c catalog.Code, meaning, asks, doubt string, numbers ...int) Row {
	return Row{Code: c, Meaning: meaning, Asks: asks, Doubt: doubt, Xids: numbers}
}

// xidRows are NVIDIA's numbers that data center users meet. The immediate action for XidFatal is a reset or more.
var xidRows = []Row{
	xid(catalog.XidFatal, "the GPU stopped processing", reset, "", 46),
	xid(catalog.XidFatal, "uncorrectable (double bit) memory error", "reset the GPU; with 63 or 64, drain and reset",
		"",
		48),
	xid(catalog.XidFatal, "a micro-controller of the GPU halted", reset, "", 62),
	xid(catalog.XidFatal, "remapping or retiring bad memory failed", reset, "", 64),
	xid(catalog.XidFatal, "the GPU has fallen off the bus", "restart the machine", "", 79),
	xid(catalog.XidFatal, "uncontained memory error: it may have reached several programs", reset, "", 95),
	xid(catalog.XidFatal, "security fault", reset, "", 110),
	xid(catalog.XidFatal, "the GPU's own processor (GSP) did not answer", reset, "", 119),
	xid(catalog.XidFatal, "error in the GPU's own processor (GSP)", reset, "", 120),
	xid(catalog.XidFatal, "training of an NVLink failed", reset, "", 136),
	xid(catalog.XidFatal, "uncorrectable memory error that was not recovered", reset, "", 140),
	xid(catalog.XidFatal, "the GPU could not be initialised", reset, "", 143),
	xid(catalog.XidFatal, "NVLink error defined by software", reset, "", 155),
	xid(catalog.XidFatal, "a part of the GPU was retired", reset, "", 156),
	xid(catalog.XidFatal, "fatal timeout of the GPU", reset, "", 158),
	xid(catalog.XidFatal, "context switch timeout: the GPU could not be taken from a program", reset, hungDoubt, 109),
	xid(catalog.XidFatal, "NVLink error", "NVLink workflow", nvlinkDoubt, 74),
	xid(catalog.XidFatal, "NVLink 5 error", "NVLink 5 workflow", nvlinkDoubt, 144, 145, 146, 149, 150),
	xid(catalog.XidFatal, "auxiliary power is not connected", "check cables and seating",
		"what is unplugged, no reset mends: look at the machine", 54),
	xid(catalog.XidFatal, "key rotation of confidential computing failed", "restart the virtual machine",
		"NVIDIA asks for a restart of the virtual machine only", 151),

	xid(catalog.Xid, "the GPU stopped processing for this program", restartApp, "", 8),
	xid(catalog.Xid, "broken command stream of a program", restartApp, "", 11, 25, 32, 80),
	xid(catalog.Xid, "error in a program's kernel: wrong address, illegal instruction", restartApp, "", 13),
	xid(catalog.Xid, "memory page fault: a program's kernel used an address that is not its own", restartApp, "", 31),
	xid(catalog.Xid, "a program's work was stopped after an error of its own; the GPU goes on", ignore, "", 43),
	xid(catalog.Xid, "clean-up of a program after an earlier error, or because it was ended",
		"follow the Xid before it", "",
		45),
	xid(catalog.Xid, "bad memory was remapped or retired: no program's fault", ignore, "", 63),
	xid(catalog.Xid, "wrong use of the graphics or compute engine by a program", restartApp, "", 69),
	xid(catalog.Xid, "many corrected memory errors: no program's fault", ignore, "", 92),
	xid(catalog.Xid, "contained memory error: it hit one program, which was ended; no program's fault",
		restartApp+"; reset when convenient", "", 94),
	xid(catalog.Xid, "access through NVLink that the other GPU refused", "see what the other GPU says", "",
		108, 137),
	xid(catalog.Xid, "the driver changed what recovery it asks for", "what the recovery action says", "", 154),
	xid(catalog.Xid, "a part of the GPU could not be retired", ignore+"; "+support, "", 157),

	xid(catalog.XidFatal, "uncorrectable hardware error", "see amd-smi's RAS counters, reset", gpu.AMD.Untried,
		gpu.AMDUncorrected),
	xid(catalog.Xid, "the driver reset the GPU and those linked with it: programs on them were ended",
		"what came before it", "", gpu.AMDReset),
	xid(catalog.Xid, "memory page fault: a program's kernel used an address that is not its own", restartApp, "",
		gpu.AMDPageFault),
	xid(catalog.Xid, "the driver counts memory of an ended program that was not given back", ignore, "",
		gpu.AMDNotGivenBack),
}
