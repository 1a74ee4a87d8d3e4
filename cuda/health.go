package main

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"bookend/internal/backendkit"
	"bookend/internal/child"
	"bookend/internal/gpu"
)

// healthLeast is the time that must be left before the end of sampling to read any health. The calls take some 4 ms
// together, but one that met another process's teardown was measured to block for 380 ms.
const healthLeast = 300 * time.Millisecond

// tellHealth reads the health of the requested devices, if time is left. The samples are already sent.
func (s *session) tellHealth() error {
	if !s.Req.Health || s.Left() < healthLeast {
		return nil
	}
	devices, _ := s.gather()
	all, err := child.Parallel(len(devices), func(i int) gpu.Health { return s.checkUp(devices[i]) })
	return cmp.Or(err, s.TellHealth(all))
}

// checkUp reads a GPU's facts, without those that the driver does not offer. After the driver has reported the GPU as
// lost nothing more is read: each further call may wait for a timeout of the driver.
func (s *session) checkUp(d device) gpu.Health {
	h, lost := gpu.Health{Device: d.ID}, s.lost(d)
	asked := examinations
	if s.Req.Identity {
		asked = slices.Concat(examinations, identities)
	}
	for _, e := range asked {
		_, remaps := h.Fact(gpu.RemapRows)
		if s.Req.Brief && e.slow || remaps && e.codes[0] == gpu.RetiredPending {
			continue
		}
		var values []string
		why := backendkit.Bounded("not asked: " + lost)
		if lost == "" {
			var failed *failure
			values, failed = ask(func() ([]string, nvml.Return) { return e.read(d.card) }, s.lib, e.source)
			switch {
			case failed == nil:
				why = e.source + ": an answer that cannot be"
			case optional(failed.ret):
				continue
			default:
				why = s.lib.describe(*failed)
			}
			if failed != nil && failed.ret == nvml.ERROR_GPU_IS_LOST {
				lost = why
			}
		}
		for i, code := range e.codes {
			fact := gpu.Fact{Code: code, Unknown: why, Source: e.source}
			if values != nil {
				fact.Value, fact.Unknown = values[i], ""
			}
			h.Facts = append(h.Facts, fact)
		}
	}
	return h
}

// lost returns the driver's message in the newest sample that a GPU is lost, or nothing.
func (s *session) lost(d device) string {
	for _, f := range s.last.Faults {
		if f.Code == gpu.FaultLost && (f.Device == d.ID || f.BusID != "" && f.BusID == d.BusID) {
			return f.Detail
		}
	}
	return ""
}

type examination struct {
	source string
	slow   bool // takes more than a millisecond, under a lock of the driver (measured: 3.2, then 1.2)
	codes  []gpu.FactCode
	// read returns a value for each code, or none if the driver's answer is impossible.
	read func(nvml.Device) ([]string, nvml.Return)
}

// examinations are the facts read, in this order. GPUs before Ampere retire pages instead of remapping rows.
var examinations = []examination{
	{"nvmlDeviceGetTotalEccErrors", true, []gpu.FactCode{gpu.ECCUncorrected},
		func(card nvml.Device) ([]string, nvml.Return) {
			n, ret := card.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
			return []string{decimal(n)}, ret
		}},
	{"nvmlDeviceGetRemappedRows", true, []gpu.FactCode{gpu.RemapRows, gpu.RemapPending, gpu.RemapFailed},
		func(card nvml.Device) ([]string, nvml.Return) {
			_, uncorrected, pending, failed, ret := card.GetRemappedRows()
			return []string{strconv.Itoa(uncorrected), yesNo(pending), yesNo(failed)}, ret
		}},
	{"nvmlDeviceGetRetiredPagesPendingStatus", true, []gpu.FactCode{gpu.RetiredPending},
		func(card nvml.Device) ([]string, nvml.Return) {
			status, ret := card.GetRetiredPagesPendingStatus()
			return []string{yesNo(status == nvml.FEATURE_ENABLED)}, ret
		}},
	{"nvmlDeviceGetFieldValues", false, []gpu.FactCode{gpu.RecoveryAction}, recoveryAction},
	{"nvmlDeviceGetGpuFabricInfoV", false, []gpu.FactCode{gpu.FabricState}, fabricState},
	{"nvmlDeviceGetPersistenceMode", false, []gpu.FactCode{gpu.PersistenceMode},
		func(card nvml.Device) ([]string, nvml.Return) {
			mode, ret := card.GetPersistenceMode()
			return []string{map[bool]string{true: "on", false: "off"}[mode == nvml.FEATURE_ENABLED]}, ret
		}},
	{"nvmlDeviceGetComputeMode", false, []gpu.FactCode{gpu.ComputeMode},
		func(card nvml.Device) ([]string, nvml.Return) {
			mode, ret := card.GetComputeMode()
			return []string{wordOr(computeModes, uint64(uint32(mode)))}, ret
		}},
	{"nvmlDeviceGetCurrentClocksEventReasons", true, []gpu.FactCode{gpu.Throttled},
		func(card nvml.Device) ([]string, nvml.Return) {
			mask, ret := card.GetCurrentClocksEventReasons()
			return []string{slowdown(mask)}, ret
		}},
}

// identities are what a vendor's ticket asks for.
var identities = []examination{
	{"nvmlDeviceGetSerial", true, []gpu.FactCode{gpu.Serial}, reported(nvml.Device.GetSerial)},
	{"nvmlDeviceGetBoardPartNumber", true, []gpu.FactCode{gpu.PartNumber}, reported(nvml.Device.GetBoardPartNumber)},
	{"nvmlDeviceGetVbiosVersion", true, []gpu.FactCode{gpu.VBIOS}, reported(nvml.Device.GetVbiosVersion)},
	{"nvmlDeviceGetInforomImageVersion", true, []gpu.FactCode{gpu.InfoROM},
		reported(nvml.Device.GetInforomImageVersion)},
	{"nvmlDeviceGetTotalEccErrors", true, []gpu.FactCode{gpu.ECCEver}, eccEver(nvml.MEMORY_ERROR_TYPE_UNCORRECTED)},
	{"nvmlDeviceGetTotalEccErrors", true, []gpu.FactCode{gpu.CorrectedEver}, eccEver(nvml.MEMORY_ERROR_TYPE_CORRECTED)},
	{"nvmlDeviceGetRemappedRows", true, []gpu.FactCode{gpu.RemapCorrected},
		func(card nvml.Device) ([]string, nvml.Return) {
			corrected, _, _, _, ret := card.GetRemappedRows()
			return []string{strconv.Itoa(corrected)}, ret
		}},
}

func reported(get func(nvml.Device) (string, nvml.Return)) func(nvml.Device) ([]string, nvml.Return) {
	return func(card nvml.Device) ([]string, nvml.Return) {
		value, ret := get(card)
		return []string{strings.TrimSpace(value)}, ret
	}
}

func eccEver(kind nvml.MemoryErrorType) func(nvml.Device) ([]string, nvml.Return) {
	return func(card nvml.Device) ([]string, nvml.Return) {
		n, ret := card.GetTotalEccErrors(kind, nvml.AGGREGATE_ECC)
		return []string{decimal(n)}, ret
	}
}

// Words for nvml.h's NVML_GPU_FABRIC_STATE_* and nvmlComputeMode_t.
var (
	fabricStates = []string{"not_supported", "not_started", "in_progress", "completed"}
	computeModes = []string{"default", "exclusive_thread", "prohibited", "exclusive_process"}
)

// wordOr returns the word for a number, or the number if there is no word yet.
func wordOr(words []string, n uint64) string {
	if n < uint64(len(words)) {
		return words[n]
	}
	return decimal(n)
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

func yesNo(yes bool) string { return map[bool]string{true: "yes", false: "no"}[yes] }

// recoveryAction reads a field's first bytes, with which every integer type begins on little-endian machines.
func recoveryAction(card nvml.Device) ([]string, nvml.Return) {
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := card.GetFieldValues(values); ret != nvml.SUCCESS {
		return nil, ret
	}
	field := values[0]
	switch ret := nvml.Return(field.NvmlReturn); {
	case ret == nvml.ERROR_INVALID_ARGUMENT: // the driver does not know this field
		return nil, nvml.ERROR_NOT_SUPPORTED
	case ret != nvml.SUCCESS || nvml.ValueType(field.ValueType) == nvml.VALUE_TYPE_DOUBLE:
		return nil, ret
	default:
		return []string{wordOr(gpu.RecoveryActions[:], uint64(binary.LittleEndian.Uint32(field.Value[:])))}, ret
	}
}

// fabricState uses the status only if the state is final; nvml.h says that it has no meaning before.
func fabricState(card nvml.Device) ([]string, nvml.Return) {
	info, ret := card.GetGpuFabricInfoV().V2()
	if info.State == nvml.GPU_FABRIC_STATE_COMPLETED && nvml.Return(info.Status) != nvml.SUCCESS {
		return []string{"failed"}, ret
	}
	return []string{wordOr(fabricStates, uint64(info.State))}, ret
}

// slowdown names the reasons for lower clocks that concern the machine: not idleness, fixed clocks or the power limit.
func slowdown(mask uint64) string {
	var names []string
	for _, s := range []struct {
		bit  uint64
		name string
	}{
		{nvml.ClocksThrottleReasonHwSlowdown, "hw_slowdown"},
		{nvml.ClocksEventReasonSwThermalSlowdown, "sw_thermal"},
		{nvml.ClocksThrottleReasonHwThermalSlowdown, "hw_thermal"},
		{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "hw_power_brake"},
	} {
		if mask&s.bit != 0 {
			names = append(names, s.name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, "+")
}
