package health

import (
	"slices"

	"bookend/internal/code"
	"bookend/internal/gpu"
)

// Row is one line of the table: a fact with a value, or some Xids, and what follows.
type Row struct {
	Fact    gpu.FactCode // empty for Xids
	Value   string       // of the fact: the word itself, or in words where it is compared
	Xids    []int
	Code    code.Code
	Meaning string // for an admin, or for the user where the program is meant
	Asks    string // what NVIDIA calls for
	Doubt   string // why it never proves a card unusable; empty where it may

	observed, expected string
	judge              func(Row, question) answer // of facts
}

// table returns every row, facts first.
func table() []Row {
	all := slices.Clone(factRows)
	for _, n := range xidNumbers {
		all = append(all, n.row())
	}
	return all
}

// Xid is the row of an Xid; false for one that the table does not have.
func Xid(number int) (Row, bool) { return xidRow(number) }

// XidMeaning says what an Xid means, in a few words; false for one that the table does not have.
func XidMeaning(number int) (string, bool) {
	r, ok := xidRow(number)
	if !ok {
		return "", false
	}
	return r.Meaning, true
}

const noRecovery = "no recovery asked for"

// A recovery action is the driver's own verdict, so it is believed where NVIDIA's text says that the card is not to be
// given out as it is.
var factRows = []Row{
	{
		Fact: gpu.RecoveryAction, Value: "reset", Code: code.Recovery, judge: equal,
		Meaning: "a fault of the GPU that only a reset clears", Asks: "end its processes, reset the GPU",
		observed: "the driver asks for a reset of the GPU", expected: noRecovery,
	},
	{
		Fact: gpu.RecoveryAction, Value: "reboot", Code: code.Recovery, judge: equal,
		Meaning: "a fault that may have left the operating system inconsistent", Asks: "reboot the node",
		observed: "the driver asks for a reboot of the node", expected: noRecovery,
	},
	{
		Fact: gpu.RecoveryAction, Value: "drain_reset", Code: code.Recovery, judge: equal,
		Meaning:  "the GPU goes on with less than it has: memory set aside, or instances down",
		Asks:     "no new work; reset the GPU once what runs has ended",
		observed: "the driver asks to give the GPU no new work and to reset it", expected: noRecovery,
	},
	{
		Fact: gpu.RecoveryAction, Value: "drain_p2p", Code: code.Recovery, judge: equal,
		Meaning:  "a fault that needs all traffic between GPUs to end; then the driver says what is next",
		Asks:     "end the processes that use several GPUs, ask again",
		observed: "the driver asks for an end of traffic between GPUs", expected: noRecovery,
		Doubt: "the driver asks for an end of traffic between GPUs only, and says later what is next",
	},
	{
		Fact: gpu.RecoveryAction, Value: "recover_imex", Code: code.Recovery, judge: equal,
		Meaning: "the memory that several nodes share (IMEX domain) has a fault", Asks: "recover the IMEX domain",
		observed: "the driver asks for recovery of the IMEX domain", expected: noRecovery,
		Doubt: "the driver asks for recovery of the IMEX domain only, which is not this GPU",
	},
	{
		Fact: gpu.RecoveryAction, Value: "another number", Code: code.Recovery, judge: another,
		Meaning: "an action that this release has no word for; newer NVML has 6, reset of the PCIe bus, and 7, " +
			"reboot of the system",
		Asks:     "see the guide of this driver",
		observed: "the driver asks for recovery action number ", expected: noRecovery,
		Doubt: "what this recovery action asks for is not known to this release",
	},
	{
		Fact: gpu.RemapFailed, Value: "yes", Code: code.RemapFailed, judge: equal,
		Meaning:  "a row of memory with errors could not be replaced by a spare one",
		Asks:     "field diagnostics, replace the GPU",
		observed: "the remapping of a memory row has failed", expected: "no failed remapping",
	},
	{
		Fact: gpu.RemapPending, Value: "yes", Code: code.RemapPending, judge: equal,
		Meaning:  "rows of memory with errors will be replaced at the next reset; until then they are set aside",
		Asks:     "reset when convenient",
		observed: "memory rows wait for a reset to be remapped", expected: "no pending remapping",
	},
	{
		Fact: gpu.RetiredPending, Value: "yes", Code: code.Pages, judge: equal,
		Meaning:  "pages of memory with errors will be taken out of use at the next reset (GPUs before Ampere)",
		Asks:     "reset when convenient",
		observed: "memory pages wait for a reset to be retired", expected: "no pages waiting",
	},
	{
		Fact: gpu.ECCUncorrected, Value: "more than at the last look", Code: code.ECC,
		judge:    counted,
		Meaning:  "uncorrectable memory errors; the programs that met them were ended or read wrong data",
		Asks:     "what recovery action and remapping say",
		expected: "no uncorrectable memory errors",
	},
	{
		Fact: gpu.FabricState, Value: "failed", Code: code.Fabric, judge: equal,
		Meaning:  "the GPU could not join the NVLink fabric: CUDA may not start (error 802)",
		Asks:     "see to nvidia-fabricmanager",
		observed: "joining the NVLink fabric has failed", expected: "a GPU in its NVLink fabric",
	},
	{
		Fact: gpu.FabricState, Value: "not_started", Code: code.Fabric, judge: equal,
		Meaning:  "the GPU has not joined the NVLink fabric: CUDA may not start (error 802)",
		Asks:     "see to nvidia-fabricmanager",
		observed: "the GPU has not begun to join the NVLink fabric", expected: "a GPU in its NVLink fabric",
	},
	{
		Fact: gpu.FabricState, Value: "in_progress", Code: code.Fabric, judge: underWay,
		Meaning: "the GPU is about to join the NVLink fabric", Asks: "wait",
		observed: "the GPU is still joining the NVLink fabric", expected: "a GPU in its NVLink fabric",
	},
	{
		Fact: gpu.PersistenceMode, Value: "off", Code: code.Persistence, judge: equal,
		Meaning:  "the driver lets go of a GPU that no one uses: seconds to wake up, counters lost",
		Asks:     "run nvidia-persistenced",
		observed: "persistence mode is off", expected: "persistence mode on",
	},
	{
		Fact: gpu.Throttled, Value: "for heat, or by the power brake", Code: code.Throttle,
		judge:   slowed,
		Meaning: "clocks are held down; jobs are slower", Asks: "check cooling and power",
		observed: "clocks are held down: ", expected: "full clocks",
	},
}
