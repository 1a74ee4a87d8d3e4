package main

/*
#include <stdint.h>

typedef int (*retired_pages)(void *device, int cause, unsigned int *count, unsigned long long *addresses);

static int count_retired_pages(void *function, uintptr_t device, int cause, unsigned int *count) {
	return ((retired_pages)function)((void *)device, cause, count, 0);
}
*/
import "C"

import (
	"encoding/binary"
	"strconv"
	"strings"

	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// examination is one call and the facts that it gives.
type examination struct {
	source string
	codes  []gpu.FactCode
	// read returns a value for each code, none where what the driver said cannot be.
	read    func(*library, nvml.Device) ([]string, nvml.Return)
	instead []examination // where the driver does not offer this one
}

// facts are the values told, or why there are none.
func (e examination) facts(values []string, why string) []gpu.Fact {
	facts := make([]gpu.Fact, len(e.codes))
	for i, code := range e.codes {
		facts[i] = gpu.Fact{Code: code, Unknown: why, Source: e.source}
		if why == "" {
			facts[i].Value = values[i]
		}
	}
	return facts
}

// one is the examination of a call that gives one value.
func one[T any](code gpu.FactCode, source string, call func(nvml.Device) (T, nvml.Return),
	word func(T) string) examination {
	return examination{source: source, codes: []gpu.FactCode{code},
		read: func(_ *library, d nvml.Device) ([]string, nvml.Return) {
			value, ret := call(d)
			return []string{word(value)}, ret
		}}
}

// or is an examination with others in its place where the driver does not offer it.
func (e examination) or(instead ...examination) examination {
	e.instead = instead
	return e
}

// ofCard is what is asked of a whole card, in this order. Cards before Ampere do not remap rows but retire pages;
// drivers before 535 have the reasons for low clocks under their older name.
var ofCard = []examination{
	one(gpu.ECCUncorrected, "nvmlDeviceGetTotalEccErrors", eccErrors, decimal),
	examination{source: "nvmlDeviceGetRemappedRows",
		codes: []gpu.FactCode{gpu.RemapRows, gpu.RemapPending, gpu.RemapFailed},
		read:  remappedRows}.or(
		examination{source: "nvmlDeviceGetRetiredPages", codes: []gpu.FactCode{gpu.RetiredPages}, read: retiredPages},
		one(gpu.RetiredPending, "nvmlDeviceGetRetiredPagesPendingStatus", nvml.Device.GetRetiredPagesPendingStatus,
			func(s nvml.EnableState) string { return yesNo(s == nvml.FEATURE_ENABLED) })),
	{source: "nvmlDeviceGetFieldValues", codes: []gpu.FactCode{gpu.RecoveryAction}, read: recoveryAction},
	{source: "nvmlDeviceGetGpuFabricInfoV", codes: []gpu.FactCode{gpu.FabricState}, read: fabricState},
	{source: "nvmlDeviceGetBAR1MemoryInfo", codes: []gpu.FactCode{gpu.BAR1Used, gpu.BAR1Total}, read: bar1},
	one(gpu.PersistenceMode, "nvmlDeviceGetPersistenceMode", nvml.Device.GetPersistenceMode, onOff),
	one(gpu.Throttled, "nvmlDeviceGetCurrentClocksEventReasons", nvml.Device.GetCurrentClocksEventReasons, reasons).or(
		one(gpu.Throttled, "nvmlDeviceGetCurrentClocksThrottleReasons", nvml.Device.GetCurrentClocksThrottleReasons,
			reasons)),
}

// ofDevice is what is asked of a card, or of an instance where that is what was asked for: in MIG mode the card has
// none.
var ofDevice = []examination{
	one(gpu.ComputeMode, "nvmlDeviceGetComputeMode", nvml.Device.GetComputeMode,
		func(m nvml.ComputeMode) string { return wordOr(computeModes, uint64(uint32(m))) }),
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func onOff(s nvml.EnableState) string {
	if s == nvml.FEATURE_ENABLED {
		return "on"
	}
	return "off"
}

func eccErrors(card nvml.Device) (uint64, nvml.Return) {
	return card.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
}

func remappedRows(_ *library, card nvml.Device) ([]string, nvml.Return) {
	_, uncorrected, pending, failed, ret := card.GetRemappedRows()
	return []string{strconv.Itoa(uncorrected), yesNo(pending), yesNo(failed)}, ret
}

// retiredPages asks for the number alone, directly: go-nvml offers room for one address and doubles it without end.
func retiredPages(l *library, card nvml.Device) ([]string, nvml.Return) {
	var count C.uint
	ret := nvml.Return(C.count_retired_pages(l.symbol("nvmlDeviceGetRetiredPages"), C.uintptr_t(rawHandle(card)),
		C.int(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR), &count))
	if ret == nvml.ERROR_INSUFFICIENT_SIZE {
		ret = nvml.SUCCESS
	}
	return []string{decimal(uint64(count))}, ret
}

// recoveryActions are nvml.h's nvmlDeviceGpuRecoveryAction_t.
var recoveryActions = []string{"none", "reset", "reboot", "drain_p2p", "drain_reset", "recover_imex"}

// recoveryAction reads a field's first bytes, which every type of whole number begins with on the machines there are.
func recoveryAction(_ *library, card nvml.Device) ([]string, nvml.Return) {
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := card.GetFieldValues(values); ret != nvml.SUCCESS {
		return nil, ret
	}
	field := values[0]
	switch ret := nvml.Return(field.NvmlReturn); {
	case ret == nvml.ERROR_INVALID_ARGUMENT: // a driver that does not know this field
		return nil, nvml.ERROR_NOT_SUPPORTED
	case ret != nvml.SUCCESS || nvml.ValueType(field.ValueType) == nvml.VALUE_TYPE_DOUBLE:
		return nil, ret
	default:
		return []string{wordOr(recoveryActions, uint64(binary.LittleEndian.Uint32(field.Value[:])))}, ret
	}
}

// wordOr returns the word for a number, or the number where there is none yet.
func wordOr(words []string, n uint64) string {
	if n < uint64(len(words)) {
		return words[n]
	}
	return decimal(n)
}

// fabricStates are nvml.h's NVML_GPU_FABRIC_STATE_*.
var fabricStates = []string{"not_supported", "not_started", "in_progress", "completed"}

// fabricState asks in version 2, and where a driver has dropped that in version 3.
func fabricState(_ *library, card nvml.Device) ([]string, nvml.Return) {
	v2, ret := card.GetGpuFabricInfoV().V2()
	if ret != nvml.ERROR_ARGUMENT_VERSION_MISMATCH {
		return []string{fabricWord(v2.State, v2.Status)}, ret
	}
	v3, ret := card.GetGpuFabricInfoV().V3()
	return []string{fabricWord(v3.State, v3.Status)}, ret
}

// fabricWord heeds the status only where the state is final: nvml.h says that it means nothing before.
func fabricWord(state uint8, status uint32) string {
	if state == nvml.GPU_FABRIC_STATE_COMPLETED && nvml.Return(status) != nvml.SUCCESS {
		return "failed"
	}
	return wordOr(fabricStates, uint64(state))
}

func bar1(_ *library, card nvml.Device) ([]string, nvml.Return) {
	memory, ret := card.GetBAR1MemoryInfo()
	if impossible(memory.Bar1Total, memory.Bar1Used) != "" {
		return nil, ret
	}
	return []string{decimal(memory.Bar1Used), decimal(memory.Bar1Total)}, ret
}

// computeModes are nvml.h's nvmlComputeMode_t.
var computeModes = []string{"default", "exclusive_thread", "prohibited", "exclusive_process"}

// slowdowns are the reasons for lower clocks that say something of the machine. Idleness, clocks that somebody has set,
// and a card at its power limit are how it is meant to be.
var slowdowns = []struct {
	bit  uint64
	name string
}{
	{nvml.ClocksThrottleReasonHwSlowdown, "hw_slowdown"},
	{nvml.ClocksEventReasonSwThermalSlowdown, "sw_thermal"},
	{nvml.ClocksThrottleReasonHwThermalSlowdown, "hw_thermal"},
	{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "hw_power_brake"},
}

func reasons(mask uint64) string {
	var names []string
	for _, s := range slowdowns {
		if mask&s.bit != 0 {
			names = append(names, s.name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, "+")
}
