package main

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"bookend/internal/backendkit"
	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/protocol"
)

// healthLeast is the time that must be left before the end of sampling to read any health. The calls take some 4 ms
// together, but one that met another process's teardown was measured to block for 380 ms.
const healthLeast = 300 * time.Millisecond

// tellHealth reads the health of the requested devices, if time is left. The samples are already sent, so this costs
// them nothing; if they left no room in the answer, there is no health.
func (s *session) tellHealth(end time.Duration) error {
	if !s.Req.Health || end-s.Boot() < healthLeast {
		return nil
	}
	devices, _ := s.gather()
	all, err := child.Parallel(len(devices), func(i int) gpu.Health { return s.checkUp(devices[i]) })
	if err != nil || len(all) == 0 {
		return err
	}
	if err = s.Out.Write(protocol.Reply{Kind: protocol.KindHealth, Health: all}); backendkit.TooLong(err) {
		return nil
	}
	return err
}

type patient struct {
	device
	lib *library
	// lost is the driver's message that the GPU is lost, or empty. Each further call to a lost GPU may wait for a
	// timeout of the driver, so none is made.
	lost string
}

func (s *session) checkUp(d device) gpu.Health {
	p := &patient{device: d, lib: s.lib}
	for _, f := range s.last.Faults {
		if f.Code == gpu.FaultLost && (f.Device == d.ID || f.BusID != "" && f.BusID == d.BusID) {
			p.lost = f.Detail
		}
	}
	wanted := slices.DeleteFunc(slices.Clone(examinations), func(e examination) bool { return s.Req.Brief && e.slow })
	return gpu.Health{Device: d.ID, Facts: p.examine(wanted)}
}

func (p *patient) examine(all []examination) (facts []gpu.Fact) {
	for _, e := range all {
		var values []string
		why := backendkit.Bounded("not asked: " + p.lost)
		if p.lost == "" {
			var failed *failure
			values, failed = ask(func() ([]string, nvml.Return) { return e.read(p.card) }, p.lib, e.source)
			switch {
			case failed != nil && optional(failed.ret):
				facts = append(facts, p.examine(e.instead)...)
				continue
			case failed != nil:
				why = p.refused(*failed)
			default:
				why = e.source + ": an answer that cannot be"
			}
		}
		for i, code := range e.codes {
			fact := gpu.Fact{Code: code, Unknown: why, Source: e.source}
			if values != nil {
				fact.Value, fact.Unknown = values[i], ""
			}
			facts = append(facts, fact)
		}
	}
	return facts
}

// refused describes a failure in the driver's words. After ERROR_GPU_IS_LOST nothing more is read.
func (p *patient) refused(f failure) string {
	words := p.lib.describe(f)
	if f.ret == nvml.ERROR_GPU_IS_LOST {
		p.lost = words
	}
	return words
}

type examination struct {
	source string
	codes  []gpu.FactCode
	// read returns a value for each code, or none if the driver's answer is impossible.
	read    func(nvml.Device) ([]string, nvml.Return)
	instead []examination // used if the driver does not offer this one
	slow    bool          // takes more than a millisecond, under a lock of the driver (measured: 3.2, then 1.2)
}

func one[T any](code gpu.FactCode, source string, call func(nvml.Device) (T, nvml.Return),
	word func(T) string) examination {
	return examination{source: source, codes: []gpu.FactCode{code},
		read: func(d nvml.Device) ([]string, nvml.Return) {
			value, ret := call(d)
			return []string{word(value)}, ret
		}}
}

// examinations are the facts read, in this order. GPUs before Ampere retire pages instead of remapping rows.
var examinations = []examination{
	slowly(one(gpu.ECCUncorrected, "nvmlDeviceGetTotalEccErrors", func(card nvml.Device) (uint64, nvml.Return) {
		return card.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	}, decimal)),
	{source: "nvmlDeviceGetRemappedRows", slow: true,
		codes: []gpu.FactCode{gpu.RemapRows, gpu.RemapPending, gpu.RemapFailed},
		read: func(card nvml.Device) ([]string, nvml.Return) {
			_, uncorrected, pending, failed, ret := card.GetRemappedRows()
			return []string{strconv.Itoa(uncorrected), yesNo(pending), yesNo(failed)}, ret
		},
		instead: []examination{
			one(gpu.RetiredPending, "nvmlDeviceGetRetiredPagesPendingStatus", nvml.Device.GetRetiredPagesPendingStatus,
				func(s nvml.EnableState) string { return yesNo(s == nvml.FEATURE_ENABLED) }),
		}},
	{source: "nvmlDeviceGetFieldValues", codes: []gpu.FactCode{gpu.RecoveryAction}, read: recoveryAction},
	{source: "nvmlDeviceGetGpuFabricInfoV", codes: []gpu.FactCode{gpu.FabricState}, read: fabricState},
	one(gpu.PersistenceMode, "nvmlDeviceGetPersistenceMode", nvml.Device.GetPersistenceMode, onOff),
	slowly(one(gpu.Throttled, "nvmlDeviceGetCurrentClocksEventReasons", nvml.Device.GetCurrentClocksEventReasons,
		slowdown)),
}

func slowly(e examination) examination {
	e.slow = true
	return e
}

// Words for nvml.h's nvmlDeviceGpuRecoveryAction_t and NVML_GPU_FABRIC_STATE_*.
var (
	recoveryActions = []string{"none", "reset", "reboot", "drain_p2p", "drain_reset", "recover_imex"}
	fabricStates    = []string{"not_supported", "not_started", "in_progress", "completed"}
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

func onOff(s nvml.EnableState) string {
	return map[bool]string{true: "on", false: "off"}[s == nvml.FEATURE_ENABLED]
}

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
		return []string{wordOr(recoveryActions, uint64(binary.LittleEndian.Uint32(field.Value[:])))}, ret
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
