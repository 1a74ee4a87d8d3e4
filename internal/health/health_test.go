package health

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/golden"
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

func told(id gpu.ID, facts ...gpu.Fact) gpu.Health { return gpu.Health{Device: id, Facts: facts} }

func seen(c gpu.FactCode, value string) gpu.Fact {
	return gpu.Fact{Code: c, Value: value, Source: "nvmlX"}
}

// look is a job's end with one card, on which the driver said this.
func look(facts ...gpu.Fact) Input {
	return Input{Cards: []finding.Card{cardA}, Now: []gpu.Health{told(gpuA, facts...)}}
}

// drains reports whether the shipped policy of an end, enforced, drains for a finding.
func drains(f finding.Finding) bool { return action(f) == config.Drain }

func action(f finding.Finding) config.Action {
	c := config.Default()
	c.Mode = config.Enforce
	return finding.Decide(c, slurm.Epilog, slurm.Job{}, []finding.Finding{f}).Judged[0].Action
}

// A fact, its value at the last look ("-": not known) and its value now, and what follows, for every row.
func TestFacts(t *testing.T) {
	all := ""
	golden.Lines(t, *update, "testdata/facts.txt", func(given string) string {
		words := strings.SplitN(given, ", ", 3)
		in, said := look(seen(gpu.FactCode(words[0]), words[2])), "nothing"
		if words[1] != "-" {
			in.Before = map[gpu.ID]gpu.Health{gpuA: told(gpuA, seen(gpu.FactCode(words[0]), words[1]))}
		}
		for i, f := range Judge(in) {
			if i > 0 || f.GPU != gpuA || f.Index == nil || *f.Index != 0 || f.Expected == "" {
				t.Errorf("%s: %+v", given, f)
			}
			said = fmt.Sprintf("%s, %s: %s", f.Code, action(f), cmp.Or(f.Unknown, f.Observed))
			if f.Unknown != "" {
				said = "unknown: " + said
			}
		}
		all += said
		return said
	})
	for _, r := range factRows {
		if !strings.Contains(all, r.Meaning) {
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
	in.Before = map[gpu.ID]gpu.Health{gpuA: told(gpuA,
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
			told(gpuA, seen(gpu.ECCUncorrected, "4"), seen(gpu.PersistenceMode, "off")),
			told(gpuB, seen(gpu.ECCUncorrected, "4"), seen(gpu.RemapFailed, "yes")),
			told("GPU-other", seen(gpu.RecoveryAction, "reset")),
		},
		Before: map[gpu.ID]gpu.Health{gpuA: told(gpuA, seen(gpu.ECCUncorrected, "4")),
			gpuB: told(gpuB, seen(gpu.ECCUncorrected, "3"))},
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
	in.Now = append(in.Now, told("MIG-1", seen(gpu.RecoveryAction, "none")))
	if found = Judge(in); len(found) != 1 || found[0].Code != code.XidFatal || len(found[0].Doubts) != 2 {
		t.Errorf("the instance's own facts come first: %+v", found)
	}
}
