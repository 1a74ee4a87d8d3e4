package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/test/fakegpu"
)

const impossibleBAR1 = "?nvmlDeviceGetBAR1MemoryInfo:ananswerthatcannotbe"

// factCases are the facts' values: what the world is made to say, and what is to be heard.
var factCases = map[string]struct {
	set  map[string]string
	want string // facts that are not as on an idle card; "-code" where one is gone
}{
	"ECC errors":           {map[string]string{"gpu0.ecc_uncorrected": "3"}, "ecc_uncorrected=3"},
	"ECC errors of before": {map[string]string{"gpu0.ecc_uncorrected_ever": "7", "gpu0.ecc_corrected": "9"}, ""},
	"rows remapped": {map[string]string{"gpu0.remapped_uncorrected": "2", "gpu0.remapped_corrected": "5"},
		"remap_uncorrected=2"},
	"remap pending": {map[string]string{"gpu0.remap_pending": "1"}, "remap_pending=yes"},
	"remap failed":  {map[string]string{"gpu0.remap_failure": "1"}, "remap_failed=yes"},
	"BAR1": {map[string]string{"gpu0.bar1_used_mib": "64", "gpu0.bar1_mib": "128"},
		"bar1_used=67108864 bar1_total=134217728"},
	"BAR1 without size": {map[string]string{"gpu0.bar1_used_mib": "0", "gpu0.bar1_mib": "0"},
		"bar1_used" + impossibleBAR1 + " bar1_total" + impossibleBAR1},
	"persistence off":   {map[string]string{"gpu0.persistence": "0"}, "persistence=off"},
	"exclusive process": {map[string]string{"gpu0.compute_mode": "3"}, "compute_mode=exclusive_process"},
	"unknown mode":      {map[string]string{"gpu0.compute_mode": "4"}, "compute_mode=4"},
	"reset":             {map[string]string{"gpu0.recovery_action": "1"}, "recovery_action=reset"},
	"exclusive thread":  {map[string]string{"gpu0.compute_mode": "1"}, "compute_mode=exclusive_thread"},
	"prohibited":        {map[string]string{"gpu0.compute_mode": "2"}, "compute_mode=prohibited"},
	"drain P2P":         {map[string]string{"gpu0.recovery_action": "3"}, "recovery_action=drain_p2p"},
	"drain and reset":   {map[string]string{"gpu0.recovery_action": "4"}, "recovery_action=drain_reset"},
	"IMEX":              {map[string]string{"gpu0.recovery_action": "5"}, "recovery_action=recover_imex"},
	"unknown action":    {map[string]string{"gpu0.recovery_action": "6"}, "recovery_action=6"},
	"another type": {map[string]string{"gpu0.recovery_action": "2", "gpu0.recovery_action_type": "3"},
		"recovery_action=reboot"},
	"a double": {map[string]string{"gpu0.recovery_action_type": "0"},
		"recovery_action?nvmlDeviceGetFieldValues:ananswerthatcannotbe"},
	"field not supported": {map[string]string{"gpu0.recovery_action_rc": "3"}, "-recovery_action"},
	"field not known":     {map[string]string{"gpu0.recovery_action_rc": "2"}, "-recovery_action"},
	"field fails": {map[string]string{"gpu0.recovery_action_rc": "4"},
		"recovery_action?nvmlDeviceGetFieldValues:InsufficientPermissions(4)"},
	"fabric in progress": {map[string]string{"gpu0.fabric_state": "2"}, "fabric_state=in_progress"},
	"fabric not started": {map[string]string{"gpu0.fabric_state": "1"}, "fabric_state=not_started"},
	"fabric failed": {map[string]string{"gpu0.fabric_state": "3", "gpu0.fabric_status": "999"},
		"fabric_state=failed"},
	"fabric status early": {map[string]string{"gpu0.fabric_state": "2", "gpu0.fabric_status": "999"},
		"fabric_state=in_progress"},
	"fabric unknown": {map[string]string{"gpu0.fabric_state": "9"}, "fabric_state=9"},
	"fabric without v2": {map[string]string{"gpu0.fabric_state": "3",
		"on.nvmlDeviceGetGpuFabricInfoV.gpu0": "rc 25 times 1"},
		"fabric_state=completed"},
	"fabric without v3": {map[string]string{"on.nvmlDeviceGetGpuFabricInfoV.gpu0": "rc 25"},
		"fabric_state?nvmlDeviceGetGpuFabricInfoV:UnknownError(25)"},
	"as it is meant to be": {map[string]string{"gpu0.clocks_event_reasons": "0x117"}, ""},
	"hot and slow": {map[string]string{"gpu0.clocks_event_reasons": "0x48"},
		"throttled=hw_slowdown+hw_thermal"},
	"power brake": {map[string]string{"gpu0.clocks_event_reasons": "0x80"}, "throttled=hw_power_brake"},
	"before Ampere": {map[string]string{"gpu0.retired_pages": "0", "gpu0.retired_single_bit": "40"},
		"-remap_uncorrected -remap_pending -remap_failed retired_pages=0 retired_pending=no"},
	"pages that cannot be read": {map[string]string{"gpu0.retired_pages": "4",
		"on.nvmlDeviceGetRetiredPages.gpu0": "rc 999"},
		"-remap_uncorrected -remap_pending -remap_failed retired_pages?nvmlDeviceGetRetiredPages:UnknownError(999) retired_pending=no"},
	"pages retired": {map[string]string{"gpu0.retired_pages": "63", "gpu0.retired_single_bit": "40",
		"gpu0.retired_pending": "1"},
		"-remap_uncorrected -remap_pending -remap_failed retired_pages=63 retired_pending=yes"},
}

// Each value of each fact, one after another on one card; the others' facts stay as they are.
func TestFacts(t *testing.T) {
	w := world(t, fakegpu.GPUs(2))
	for _, name := range slices.Sorted(maps.Keys(factCases)) { // in order: the world changes
		tt := factCases[name]
		t.Run(name, func(t *testing.T) {
			before := map[string]string{}
			for key, value := range tt.set {
				before[key] = w.Get(key)
				must(t, w.Set(key, value))
			}
			both := health(t, healthOf(w, cardOf(w, 0), cardOf(w, 1)), gpu.ID(w.UUID(0)), gpu.ID(w.UUID(1)))
			for key, value := range before {
				must(t, w.Set(key, value))
			}
			if got := unlike(atRest, both[0]); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if !slices.Equal(both[1].Facts, atRest) {
				t.Errorf("the other card: got %s", text(t, both[1]))
			}
		})
	}
}

// unlike writes what differs from these facts, without spaces in it: what is gone first.
func unlike(want []gpu.Fact, h gpu.Health) string {
	var words []string
	for _, f := range want {
		if _, ok := h.Fact(f.Code); !ok {
			words = append(words, "-"+string(f.Code))
		}
	}
	for _, f := range h.Facts {
		if !slices.Contains(want, f) {
			words = append(words, strings.ReplaceAll(said(f), " ", ""))
		}
	}
	return strings.Join(words, " ")
}

// A call that fails costs its own facts; what the driver does not offer is left out.
func TestHealthCallsThatFail(t *testing.T) {
	w := world(t, fakegpu.GPUs(2))
	for _, function := range []string{
		"nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetFieldValues",
		"nvmlDeviceGetGpuFabricInfoV",
		"nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetCurrentClocksEventReasons",
		"nvmlDeviceGetComputeMode",
	} {
		for rc, words := range map[int]string{3: "", 999: "Unknown Error"} {
			t.Run(fmt.Sprint(function, " ", rc), func(t *testing.T) {
				rule := "on." + function + ".gpu0"
				must(t, w.Set(rule, fmt.Sprint("rc ", rc)))
				both := health(t, healthOf(w, cardOf(w, 0), cardOf(w, 1)), gpu.ID(w.UUID(0)), gpu.ID(w.UUID(1)))
				must(t, w.Set(rule, ""))
				want := []gpu.Fact{}
				for _, f := range atRest {
					switch {
					case f.Source != function:
						want = append(want, f)
					case words != "":
						f.Value, f.Unknown = "", fmt.Sprintf("%s: %s (%d)", function, words, rc)
						want = append(want, f)
					case f.Code == gpu.Throttled: // under its older name
						f.Source = "nvmlDeviceGetCurrentClocksThrottleReasons"
						want = append(want, f)
					}
				}
				if !slices.Equal(both[0].Facts, want) {
					t.Errorf("got %s, want %s", text(t, both[0].Facts), text(t, want))
				}
				if !slices.Equal(both[1].Facts, atRest) {
					t.Errorf("the other card: got %s", text(t, both[1]))
				}
			})
		}
	}
}

// A driver from before 510 has neither field 230 nor the fabric, and an older name for why clocks are low.
func TestHealthOfAnOldDriver(t *testing.T) {
	w := world(t, fakegpu.GPUs(1), fakegpu.With("gpu0.clocks_event_reasons", "0x21"))
	req := healthOf(w, cardOf(w, 0))
	req.Options[optionNVML] = w.NVMLOld()
	h := health(t, req, gpu.ID(w.UUID(0)))[0]
	if got := unlike(atRest, h); got != "-recovery_action -fabric_state throttled=sw_thermal" {
		t.Errorf("got %q", got)
	}
	if f, _ := h.Fact(gpu.Throttled); f.Source != "nvmlDeviceGetCurrentClocksThrottleReasons" {
		t.Errorf("got %+v", f)
	}
}
