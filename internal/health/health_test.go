package health

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

const (
	gpuA = gpu.ID("GPU-a")
	gpuB = gpu.ID("GPU-b")
	busA = gpu.BusID("0000:1b:00.0")
	busB = gpu.BusID("0000:3b:00.0")
)

var (
	cardA = finding.Card{Index: 0, Device: gpu.Device{ID: gpuA, BusID: busA}}
	cardB = finding.Card{Index: 3, Device: gpu.Device{ID: gpuB, BusID: busB}}
)

func said(id gpu.ID, facts ...gpu.Fact) gpu.Health { return gpu.Health{Device: id, Facts: facts} }

func seen(c gpu.FactCode, value string) gpu.Fact {
	return gpu.Fact{Code: c, Value: value, Source: "nvmlX"}
}

// look is a job's end with one card, on which the driver said this.
func look(facts ...gpu.Fact) Input {
	return Input{Cards: []finding.Card{cardA}, Now: []gpu.Health{said(gpuA, facts...)}}
}

// drains reports whether the shipped policy of an end, enforced, drains for a finding.
func drains(f finding.Finding) bool { return action(f) == config.Drain }

func action(f finding.Finding) config.Action {
	c := config.Default()
	c.Mode = config.Enforce
	return finding.Decide(c, slurm.Epilog, slurm.Job{}, []finding.Finding{f}).Judged[0].Action
}

// Every row of facts, found and not found; the list must have them all.
func TestFacts(t *testing.T) {
	tests := []struct {
		fact         gpu.FactCode
		row          string // its Value
		before, now  string
		code         code.Code // "": no finding
		observed     string
		unknown, out bool // drains
	}{
		{gpu.RecoveryAction, "reset", "", "reset", code.Recovery, "asks for a reset of the GPU", false, true},
		{gpu.RecoveryAction, "reboot", "", "reboot", code.Recovery, "asks for a reboot of the node", false, true},
		{gpu.RecoveryAction, "drain_reset", "", "drain_reset", code.Recovery, "no new work and to reset it", false,
			true},
		{gpu.RecoveryAction, "drain_p2p", "", "drain_p2p", code.Recovery, "traffic between GPUs", false, false},
		{gpu.RecoveryAction, "recover_imex", "", "recover_imex", code.Recovery, "IMEX domain", false, false},
		{gpu.RecoveryAction, "another number", "", "6", code.Recovery, "action number 6", false, false},
		{gpu.RecoveryAction, "", "", "none", "", "", false, false},
		{gpu.RecoveryAction, "", "", "a word of tomorrow", "", "", false, false},
		{gpu.RemapFailed, "yes", "", "yes", code.RemapFailed, "has failed", false, true},
		{gpu.RemapPending, "yes", "", "yes", code.RemapPending, "wait for a reset", false, false},
		{gpu.RetiredPending, "yes", "", "yes", code.Pages, "to be retired", false, false},
		{gpu.ECCUncorrected, "more than at the last look", "2", "5", code.ECC,
			"3 uncorrectable memory errors more than at the last look (2 then, 5 now)", false, false},
		{gpu.ECCUncorrected, "", "5", "5", "", "", false, false},
		{gpu.ECCUncorrected, "", "", "0", "", "", false, false},
		{gpu.ECCUncorrected, "", "5", "0", "", "", false, false},
		{gpu.ECCUncorrected, "", "", "5", code.ECC, "5 uncorrectable memory errors since the driver was loaded", true,
			false},
		{gpu.ECCUncorrected, "", "7", "5", code.ECC, "5 uncorrectable memory errors since the driver was loaded", true,
			false},
		{gpu.ECCUncorrected, "", "many", "5", code.ECC, "5 uncorrectable memory errors since the driver was loaded",
			true, false},
		{gpu.ECCUncorrected, "", "0", "many", "", "", false, false},
		{gpu.FabricState, "failed", "", "failed", code.Fabric, "has failed", false, false},
		{gpu.FabricState, "not_started", "", "not_started", code.Fabric, "not begun", false, false},
		{gpu.FabricState, "in_progress", "", "in_progress", code.Fabric, "still joining", true, false},
		{gpu.FabricState, "", "", "completed", "", "", false, false},
		{gpu.PersistenceMode, "off", "", "off", code.Persistence, "is off", false, false},
		{gpu.PersistenceMode, "", "", "on", "", "", false, false},
		{gpu.Throttled, "for heat, or by the power brake", "", "hw_thermal+sw_power_cap+hw_power_brake", code.Throttle,
			"held down: hw_thermal, hw_power_brake", false, false},
		{gpu.Throttled, "", "", "hw_slowdown", code.Throttle, "held down: hw_slowdown", false, false},
		{gpu.Throttled, "", "", "sw_power_cap", "", "", false, false},
	}
	tested := map[string]bool{}
	for _, tt := range tests {
		in := look(seen(tt.fact, tt.now))
		if tt.before != "" {
			in.Before = map[gpu.ID]gpu.Health{gpuA: said(gpuA, seen(tt.fact, tt.before))}
		}
		found := Judge(in)
		name := string(tt.fact) + " " + tt.before + " " + tt.now
		if tt.code == "" {
			if len(found) != 0 {
				t.Errorf("%s: %+v", name, found)
			}
			continue
		}
		tested[string(tt.fact)+tt.row] = true
		if len(found) != 1 {
			t.Errorf("%s: %d findings", name, len(found))
			continue
		}
		f := found[0]
		if f.Code != tt.code || f.GPU != gpuA || f.Index == nil || *f.Index != 0 || f.Expected == "" {
			t.Errorf("%s: %+v", name, f)
		}
		if !strings.Contains(f.Observed, tt.observed) || (f.Unknown != "") != tt.unknown || drains(f) != tt.out {
			t.Errorf("%s: observed %q, unknown %q, doubts %q, drains %v", name, f.Observed, f.Unknown, f.Doubts,
				drains(f))
		}
	}
	for _, r := range factRows {
		if !tested[string(r.Fact)+r.Value] {
			t.Errorf("no test of %s %s", r.Fact, r.Value)
		}
	}
}

// What could not be read is no finding, here or at the last look.
func TestUnknownFacts(t *testing.T) {
	for _, r := range factRows {
		if found := Judge(look(gpu.Fact{Code: r.Fact, Value: r.Value, Unknown: "no permission",
			Source: "x"})); len(found) != 0 {
			t.Errorf("%s unknown: %+v", r.Fact, found)
		}
		if found := Judge(look(seen(r.Fact, ""))); len(found) != 0 {
			t.Errorf("%s empty: %+v", r.Fact, found)
		}
	}
	in := look(seen(gpu.ECCUncorrected, "5"))
	in.Before = map[gpu.ID]gpu.Health{gpuA: said(gpuA,
		gpu.Fact{Code: gpu.ECCUncorrected, Value: "5", Unknown: "x"})}
	if found := Judge(in); len(found) != 1 || found[0].Unknown == "" {
		t.Errorf("the last look is unknown: %+v", found)
	}
	if found := Judge(Input{Cards: []finding.Card{cardA}}); len(found) != 0 {
		t.Errorf("nothing was read: %+v", found)
	}
}

// Each card is judged by its own figures, then and now.
func TestSeveralCards(t *testing.T) {
	in := Input{
		Cards: []finding.Card{cardB, cardA},
		Now: []gpu.Health{
			said(gpuA, seen(gpu.ECCUncorrected, "4"), seen(gpu.PersistenceMode, "off")),
			said(gpuB, seen(gpu.ECCUncorrected, "4"), seen(gpu.RemapFailed, "yes")),
			said("GPU-other", seen(gpu.RecoveryAction, "reset")),
		},
		Before: map[gpu.ID]gpu.Health{gpuA: said(gpuA, seen(gpu.ECCUncorrected, "4")),
			gpuB: said(gpuB, seen(gpu.ECCUncorrected, "3"))},
	}
	type seen struct {
		code  code.Code
		gpu   gpu.ID
		index int
	}
	var got []seen
	for _, f := range Judge(in) {
		got = append(got, seen{f.Code, f.GPU, *f.Index})
	}
	if want := []seen{{code.ECC, gpuB, 3}, {code.RemapFailed, gpuB, 3},
		{code.Persistence, gpuA, 0}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

// A doubt of the hook's, and an instance, make every finding uncertain.
func TestDoubts(t *testing.T) {
	in := look(seen(gpu.RecoveryAction, "reset"), seen(gpu.RemapFailed, "yes"))
	in.Kernel = &gpu.KernelLog{Xids: []gpu.Xid{{BusID: busA, Code: 79}}}
	in.Doubt = "inside the job"
	found := Judge(in)
	if len(found) != 3 {
		t.Fatalf("%+v", found)
	}
	for _, f := range found {
		if !slices.Equal(f.Doubts, []string{"inside the job"}) || drains(f) {
			t.Errorf("%s: %q", f.Code, f.Doubts)
		}
	}
	in.Doubt = ""
	in.Cards = []finding.Card{{Device: gpu.Device{ID: "MIG-1", Parent: gpuA, BusID: busA}}}
	found = Judge(in) // what is known of the whole card holds for its instance
	if len(found) != 3 {
		t.Fatalf("%+v", found)
	}
	for _, f := range found {
		if !slices.Equal(f.Doubts, []string{instance}) || drains(f) || f.GPU != "MIG-1" {
			t.Errorf("%s: %q", f.Code, f.Doubts)
		}
	}
	in.Now = append(in.Now, said("MIG-1", seen(gpu.RecoveryAction, "none")))
	if found = Judge(in); len(found) != 1 || found[0].Code != code.XidFatal || len(found[0].Doubts) != 2 {
		t.Errorf("the instance's own facts come first: %+v", found)
	}
}
