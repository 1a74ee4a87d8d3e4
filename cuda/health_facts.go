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
	"fmt"
	"strconv"
	"strings"

	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// examination is one call and the facts that it gives.
type examination struct {
	source string
	codes  []gpu.FactCode
	// read returns a value for each code, or why what the driver said is none.
	read    func(*library, nvml.Device) (values []string, doubt string, failed *failure)
	instead []examination // where the driver does not offer this one
}

func (e examination) told(values []string) []gpu.Fact {
	facts := make([]gpu.Fact, len(e.codes))
	for i, code := range e.codes {
		facts[i] = gpu.Fact{Code: code, Value: values[i], Source: e.source}
	}
	return facts
}

func (e examination) unknown(why string) []gpu.Fact {
	facts := make([]gpu.Fact, len(e.codes))
	for i, code := range e.codes {
		facts[i] = gpu.Fact{Code: code, Unknown: why, Source: e.source}
	}
	return facts
}

// ofCard is what is asked of a whole card, in this order.
var ofCard = []examination{
	{source: "nvmlDeviceGetTotalEccErrors", codes: []gpu.FactCode{gpu.ECCUncorrected}, read: eccErrors},
	{source: "nvmlDeviceGetRemappedRows", codes: []gpu.FactCode{gpu.RemapRows, gpu.RemapPending, gpu.RemapFailed},
		read: remappedRows, instead: beforeAmpere},
	{source: "nvmlDeviceGetFieldValues", codes: []gpu.FactCode{gpu.RecoveryAction}, read: recoveryAction},
	{source: "nvmlDeviceGetGpuFabricInfoV", codes: []gpu.FactCode{gpu.FabricState}, read: fabricState},
	{source: "nvmlDeviceGetBAR1MemoryInfo", codes: []gpu.FactCode{gpu.BAR1Used, gpu.BAR1Total}, read: bar1},
	{source: "nvmlDeviceGetPersistenceMode", codes: []gpu.FactCode{gpu.PersistenceMode}, read: persistence},
	{source: "nvmlDeviceGetCurrentClocksEventReasons", codes: []gpu.FactCode{gpu.Throttled}, read: throttled,
		instead: before535},
}

// ofDevice is what is asked of a card, or of an instance where that is what was asked for: in MIG mode the card has none.
var ofDevice = []examination{
	{source: "nvmlDeviceGetComputeMode", codes: []gpu.FactCode{gpu.ComputeMode}, read: computeMode},
}

// Cards that do not remap rows retire pages.
var beforeAmpere = []examination{
	{source: "nvmlDeviceGetRetiredPages", codes: []gpu.FactCode{gpu.RetiredPages}, read: retiredPages},
	{source: "nvmlDeviceGetRetiredPagesPendingStatus", codes: []gpu.FactCode{gpu.RetiredPending}, read: retiredPending},
}

// Drivers before 535 have the reasons under their older name.
var before535 = []examination{
	{source: "nvmlDeviceGetCurrentClocksThrottleReasons", codes: []gpu.FactCode{gpu.Throttled}, read: throttledOld},
}

// one makes the only value of an examination out of one call's answer.
func one[T any](call func() (T, nvml.Return), l *library, name string, word func(T) string) ([]string, string, *failure) {
	value, failed := ask(call, l, name)
	if failed != nil {
		return nil, "", failed
	}
	return []string{word(value)}, "", nil
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

func eccErrors(l *library, card nvml.Device) ([]string, string, *failure) {
	return one(func() (uint64, nvml.Return) {
		return card.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	}, l, "nvmlDeviceGetTotalEccErrors", decimal)
}

func remappedRows(l *library, card nvml.Device) ([]string, string, *failure) {
	values, failed := ask(func() ([]string, nvml.Return) {
		_, uncorrected, pending, failed, ret := card.GetRemappedRows()
		return []string{strconv.Itoa(uncorrected), yesNo(pending), yesNo(failed)}, ret
	}, l, "nvmlDeviceGetRemappedRows")
	return values, "", failed
}

// retiredPages asks for the number alone, directly: go-nvml offers room for one address and doubles it without end.
func retiredPages(l *library, card nvml.Device) ([]string, string, *failure) {
	const name = "nvmlDeviceGetRetiredPages"
	return one(func() (uint64, nvml.Return) {
		var count C.uint
		ret := nvml.Return(C.count_retired_pages(l.symbol(name), C.uintptr_t(rawHandle(card)),
			C.int(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR), &count))
		if ret == nvml.ERROR_INSUFFICIENT_SIZE {
			ret = nvml.SUCCESS
		}
		return uint64(count), ret
	}, l, name, decimal)
}

func retiredPending(l *library, card nvml.Device) ([]string, string, *failure) {
	return one(card.GetRetiredPagesPendingStatus, l, "nvmlDeviceGetRetiredPagesPendingStatus",
		func(s nvml.EnableState) string { return yesNo(s == nvml.FEATURE_ENABLED) })
}

// recoveryActions are nvml.h's nvmlDeviceGpuRecoveryAction_t.
var recoveryActions = []string{"none", "reset", "reboot", "drain_p2p", "drain_reset", "recover_imex"}

func recoveryAction(l *library, card nvml.Device) ([]string, string, *failure) {
	const name = "nvmlDeviceGetFieldValues"
	field, failed := ask(func() (nvml.FieldValue, nvml.Return) {
		values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
		ret := card.GetFieldValues(values)
		return values[0], ret
	}, l, name)
	if failed != nil {
		return nil, "", failed
	}
	switch ret := nvml.Return(field.NvmlReturn); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_INVALID_ARGUMENT: // a driver that does not know this field
		return nil, "", &failure{name, nvml.ERROR_NOT_SUPPORTED}
	default:
		return nil, "", &failure{name, ret}
	}
	n, ok := fieldNumber(field)
	if !ok {
		return nil, fmt.Sprintf("a recovery action of type %d", field.ValueType), nil
	}
	return []string{wordOr(recoveryActions, n)}, "", nil
}

// fieldNumber reads a field's value, of which the driver uses as many bytes as its type has.
func fieldNumber(f nvml.FieldValue) (uint64, bool) {
	signed := int64(0)
	switch nvml.ValueType(f.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return uint64(binary.NativeEndian.Uint16(f.Value[:])), true
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return uint64(binary.NativeEndian.Uint32(f.Value[:])), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return binary.NativeEndian.Uint64(f.Value[:]), true
	case nvml.VALUE_TYPE_SIGNED_INT:
		signed = int64(int32(binary.NativeEndian.Uint32(f.Value[:])))
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		signed = int64(binary.NativeEndian.Uint64(f.Value[:]))
	default:
		return 0, false
	}
	return uint64(signed), signed >= 0
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
func fabricState(l *library, card nvml.Device) ([]string, string, *failure) {
	const name = "nvmlDeviceGetGpuFabricInfoV"
	v2, failed := ask(func() (nvml.GpuFabricInfo_v2, nvml.Return) { return card.GetGpuFabricInfoV().V2() }, l, name)
	if failed == nil {
		return []string{fabricWord(v2.State, v2.Status)}, "", nil
	}
	if failed.ret != nvml.ERROR_ARGUMENT_VERSION_MISMATCH {
		return nil, "", failed
	}
	return one(func() (nvml.GpuFabricInfo_v3, nvml.Return) { return card.GetGpuFabricInfoV().V3() }, l, name,
		func(v3 nvml.GpuFabricInfo_v3) string { return fabricWord(v3.State, v3.Status) })
}

// fabricWord heeds the status only where the state is final: nvml.h says that it means nothing before.
func fabricWord(state uint8, status uint32) string {
	if state == nvml.GPU_FABRIC_STATE_COMPLETED && nvml.Return(status) != nvml.SUCCESS {
		return "failed"
	}
	return wordOr(fabricStates, uint64(state))
}

func bar1(l *library, card nvml.Device) ([]string, string, *failure) {
	memory, failed := ask(card.GetBAR1MemoryInfo, l, "nvmlDeviceGetBAR1MemoryInfo")
	if failed != nil {
		return nil, "", failed
	}
	if doubt := impossible(memory.Bar1Total, memory.Bar1Used); doubt != "" {
		return nil, doubt, nil
	}
	return []string{decimal(memory.Bar1Used), decimal(memory.Bar1Total)}, "", nil
}

func persistence(l *library, card nvml.Device) ([]string, string, *failure) {
	return one(card.GetPersistenceMode, l, "nvmlDeviceGetPersistenceMode", onOff)
}

// computeModes are nvml.h's nvmlComputeMode_t.
var computeModes = []string{"default", "exclusive_thread", "prohibited", "exclusive_process"}

func computeMode(l *library, card nvml.Device) ([]string, string, *failure) {
	return one(card.GetComputeMode, l, "nvmlDeviceGetComputeMode",
		func(m nvml.ComputeMode) string { return wordOr(computeModes, uint64(uint32(m))) })
}

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

func throttled(l *library, card nvml.Device) ([]string, string, *failure) {
	return one(card.GetCurrentClocksEventReasons, l, "nvmlDeviceGetCurrentClocksEventReasons", reasons)
}

func throttledOld(l *library, card nvml.Device) ([]string, string, *failure) {
	return one(card.GetCurrentClocksThrottleReasons, l, "nvmlDeviceGetCurrentClocksThrottleReasons", reasons)
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
