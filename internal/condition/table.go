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

	judge     judge // of facts
	counter   bool  // of facts: the value is compared with the last sample's
	ofProgram bool  // of Xids: a program's own error, or its end, causes them; for others the cause is unknown
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
	r, _ := XidRow(number)
	return r.ofProgram
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
	counter(gpu.ECCUncorrected, catalog.ECC, "uncorrectable memory errors", "what recovery action and remapping say"),
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

func counter(f gpu.FactCode, c catalog.Code, meaning, asks string) Row {
	r := fact(f, "more than in the last sample", c, counted, meaning, asks, "")
	r.counter = true
	return r
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

func fatalXid(meaning, asks, doubt string, numbers ...int) Row {
	return Row{Code: catalog.XidFatal, Meaning: meaning, Asks: asks, Doubt: doubt, Xids: numbers}
}

// programXid is for errors that a program's own error, or its end, causes: they are no evidence against the GPU.
func programXid(meaning, asks string, numbers ...int) Row {
	return Row{Code: catalog.Xid, Meaning: meaning, Asks: asks, Xids: numbers, ofProgram: true}
}

// otherXid is for errors after which the GPU goes on and whose cause the number alone does not prove.
func otherXid(meaning, asks string, numbers ...int) Row {
	return Row{Code: catalog.Xid, Meaning: meaning, Asks: asks, Xids: numbers}
}

// xidRows are NVIDIA's numbers that data center users meet. The immediate action for XidFatal is a reset or more.
var xidRows = []Row{
	fatalXid("the GPU stopped processing", reset, "", 46),
	fatalXid("uncorrectable (double bit) memory error", "reset the GPU; with 63 or 64, drain and reset", "", 48),
	fatalXid("a micro-controller of the GPU halted", reset, "", 62),
	fatalXid("remapping or retiring bad memory failed", reset, "", 64),
	fatalXid("the GPU has fallen off the bus", "restart the machine", "", 79),
	fatalXid("uncontained memory error: it may have reached several programs", reset, "", 95),
	fatalXid("security fault", reset, "", 110),
	fatalXid("the GPU's own processor (GSP) did not answer", reset, "", 119),
	fatalXid("error in the GPU's own processor (GSP)", reset, "", 120),
	fatalXid("training of an NVLink failed", reset, "", 136),
	fatalXid("uncorrectable memory error that was not recovered", reset, "", 140),
	fatalXid("the GPU could not be initialised", reset, "", 143),
	fatalXid("NVLink error defined by software", reset, "", 155),
	fatalXid("a part of the GPU was retired", reset, "", 156),
	fatalXid("fatal timeout of the GPU", reset, "", 158),
	fatalXid("context switch timeout: the GPU could not be taken from a program", reset, hungDoubt, 109),
	fatalXid("NVLink error", "NVLink workflow", nvlinkDoubt, 74),
	fatalXid("NVLink 5 error", "NVLink 5 workflow", nvlinkDoubt, 144, 145, 146, 149, 150),
	fatalXid("auxiliary power is not connected", "check cables and seating",
		"what is unplugged, no reset mends: look at the machine", 54),
	fatalXid("key rotation of confidential computing failed", "restart the virtual machine",
		"NVIDIA asks for a restart of the virtual machine only", 151),

	programXid("the GPU stopped processing for this program", restartApp, 8),
	programXid("broken command stream of a program", restartApp, 11, 25),
	otherXid("broken command stream of a program", restartApp, 32, 80),
	programXid("error in a program's kernel: wrong address, illegal instruction", restartApp, 13),
	programXid("memory page fault: a program's kernel used an address that is not its own", restartApp, 31),
	programXid("a program's work was stopped after an error of its own; the GPU goes on", ignore, 43),
	programXid("clean-up of a program after an earlier error, or because it was ended", "follow the Xid before it", 45),
	otherXid("bad memory was remapped or retired: no program's fault", ignore, 63),
	programXid("wrong use of the graphics or compute engine by a program", restartApp, 69),
	otherXid("many corrected memory errors: no program's fault", ignore, 92),
	otherXid("contained memory error: it hit one program, which was ended; no program's fault",
		restartApp+"; reset when convenient", 94),
	otherXid("access through NVLink that the other GPU refused", "see what the other GPU says", 108, 137),
	otherXid("the driver changed what recovery it asks for", "what the recovery action says", 154),
	otherXid("a part of the GPU could not be retired", ignore+"; "+support, 157),

	fatalXid("uncorrectable hardware error", "see amd-smi's RAS counters, reset", gpu.AMD.Untried,
		gpu.AMDUncorrected),
	otherXid("the driver reset the GPU and those linked with it: programs on them were ended",
		"what came before it", gpu.AMDReset),
	programXid("memory page fault: a program's kernel used an address that is not its own", restartApp,
		gpu.AMDPageFault),
	otherXid("the driver counts memory of an ended program that was not given back", ignore, gpu.AMDNotGivenBack),
}
