package condition

import (
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
)

// Row is one line of the table: a fact with a value, and what follows from it.
type Row struct {
	Fact    gpu.FactCode
	Value   string // the word itself, or a description if it is compared
	Code    catalog.Code
	Meaning string // for an admin: also what was observed
	Asks    string // what NVIDIA calls for
	Doubt   string // why it never proves a GPU unusable; empty if it may

	judge judge
}

var expected = map[catalog.Code]string{
	catalog.Recovery: "no recovery asked for", catalog.RemapFailed: "no failed remapping",
	catalog.RemapPending: "no pending remapping", catalog.Pages: "no pages waiting",
	catalog.ECC:    "no uncorrectable memory errors",
	catalog.Fabric: "a GPU in its NVLink fabric", catalog.Persistence: "persistence mode on",
	catalog.Throttle: "full clocks", catalog.Blocked: "a compute mode that lets programs in",
	catalog.Exclusive: "the default compute mode",
	catalog.Xid:       "no Xid on the GPU during the job", catalog.XidFatal: "no Xid on the GPU during the job",
	catalog.KernelLog: "no fault of GPUs and their links in the kernel log",
}

// A recovery action is the driver's verdict. It is trusted if NVIDIA's text says not to give the GPU out as it is.
var factRows = []Row{
	fact(gpu.RecoveryAction, "reset", catalog.Recovery, equal, "the driver asks for a reset of the GPU",
		"end its processes, reset the GPU"),
	fact(gpu.RecoveryAction, "reboot", catalog.Recovery, equal, "the driver asks for a reboot of the node",
		"reboot the node"),
	fact(gpu.RecoveryAction, "drain_reset", catalog.Recovery, equal,
		"the driver asks to give the GPU no new work and to reset it",
		"no new work; reset the GPU once what runs has ended"),
	fact(gpu.RecoveryAction, "drain_p2p", catalog.Recovery, equal, "the driver asks for an end of traffic between GPUs",
		"end the processes that use several GPUs, ask again",
		"the driver asks for an end of traffic between GPUs only, and says later what is next"),
	fact(gpu.RecoveryAction, "recover_imex", catalog.Recovery, equal, "the driver asks for recovery of the IMEX domain",
		"recover the IMEX domain", "the driver asks for recovery of the IMEX domain only, which is not this GPU"),
	fact(gpu.RecoveryAction, "bus_reset", catalog.Recovery, equal, "the driver asks for a reset of the GPU's PCIe bus",
		"end its processes, reset the GPU by its bus", newAction),
	fact(gpu.RecoveryAction, "system_reboot", catalog.Recovery, equal,
		"the driver asks for a reboot of the whole system", "reboot the node", newAction),
	fact(gpu.RecoveryAction, "another number", catalog.Recovery, another, "the driver asks for recovery action number ",
		"see the guide of this driver", "what this recovery action asks for is not known to this release"),
	fact(gpu.RemapFailed, "yes", catalog.RemapFailed, equal, "the remapping of a memory row has failed",
		"field diagnostics, replace the GPU"),
	fact(gpu.RemapPending, "yes", catalog.RemapPending, equal, "memory rows wait for a reset to be remapped",
		"reset when convenient"),
	fact(gpu.RetiredPending, "yes", catalog.Pages, equal, "memory pages wait for a reset to be retired",
		"reset when convenient"),
	fact(gpu.ECCUncorrected, "more than in the last sample", catalog.ECC, counted, "uncorrectable memory errors",
		"what recovery action and remapping say"),
	fact(gpu.FabricState, "failed", catalog.Fabric, equal, "joining the NVLink fabric has failed", fabric),
	fact(gpu.FabricState, "not_started", catalog.Fabric, equal,
		"the GPU has not begun to join the NVLink fabric", fabric),
	fact(gpu.FabricState, "in_progress", catalog.Fabric, underWay,
		"the GPU is still joining the NVLink fabric", "wait"),
	fact(gpu.PersistenceMode, "off", catalog.Persistence, equal, "persistence mode is off", "run nvidia-persistenced"),
	fact(gpu.ComputeMode, "prohibited", catalog.Blocked, equal,
		"compute mode PROHIBITED: no program can use the GPU; nvidia-smi -c 0 sets the default",
		"set the default mode"),
	fact(gpu.ComputeMode, "exclusive_process", catalog.Exclusive, equal,
		"compute mode EXCLUSIVE_PROCESS: one process at a time", "nothing, if it is intended"),
	fact(gpu.ComputeMode, "exclusive_thread", catalog.Exclusive, equal,
		"compute mode EXCLUSIVE_THREAD: one process at a time", "nothing, if it is intended"),
	fact(gpu.Throttled, "for heat, or by the power brake", catalog.Throttle, slowed, "clocks are held down: ",
		"check cooling and power"),
}

const (
	newAction = "only one source of NVIDIA's names this recovery action" // without a guide to it
	fabric    = "see to nvidia-fabricmanager"
)

func fact(f gpu.FactCode, value string, c catalog.Code, judge judge, meaning, asks string, doubt ...string) Row {
	return Row{f, value, c, meaning, asks, strings.Join(doubt, ""), judge}
}
