package health

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

const (
	gpuA = gpu.ID("GPU-a")
	busA = gpu.BusID("0000:1b:00.0")
)

var cardA = finding.Card{Index: 0, Device: gpu.Device{ID: gpuA, BusID: busA}}

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

// What could not be read is no finding.
func TestUnknownFacts(t *testing.T) {
	for _, r := range factRows {
		unknown := gpu.Fact{Code: r.Fact, Value: r.Value, Unknown: "no permission", Source: "x"}
		if found := Judge(look(unknown, seen(r.Fact, ""))); len(found) != 0 {
			t.Errorf("%s unknown or empty: %+v", r.Fact, found)
		}
	}
}

// What is known of a job's cards, by default of one, and each finding: its card, what the shipped policy does, and why
// it is not known or not certain.
func TestJudge(t *testing.T) {
	golden.Archive(t, *update, "testdata/inputs.txtar", func(given string) (said string) {
		var in Input
		must.Do(t, json.Unmarshal([]byte(given), &in))
		if in.Cards == nil && in.Unseen == nil {
			in.Cards = []finding.Card{cardA}
		}
		for _, f := range Judge(in) {
			where := string(f.GPU)
			if f.Index != nil {
				where += fmt.Sprintf(" (%d)", *f.Index)
			}
			said += fmt.Sprintf("%s %s, %s: %s\n", f.Code, where, action(f), f.Observed)
			if f.Unknown != "" {
				said += "  unknown: " + f.Unknown + "\n"
			}
			for _, doubt := range f.Doubts {
				said += "  doubt: " + doubt + "\n"
			}
		}
		return said
	})
}

func logged(xids ...gpu.Xid) Input {
	in := look()
	in.Kernel = &gpu.KernelLog{Xids: xids}
	return in
}

// Every number of the table gives its row's code, and drains if NVIDIA calls for a reset without a doubt.
func TestEveryXid(t *testing.T) {
	fatal := map[int]bool{}
	for _, n := range xidRows {
		for _, number := range n.Xids {
			found := Judge(logged(gpu.Xid{BusID: busA, Code: number}))
			if len(found) != 1 || found[0].Code != n.Code || found[0].Xid != number ||
				!strings.Contains(found[0].Observed, n.Meaning) {
				t.Errorf("Xid %d: %+v", number, found)
				continue
			}
			fatal[number] = drains(found[0])
			if want := n.Code == code.XidFatal && n.Doubt == ""; fatal[number] != want {
				t.Errorf("Xid %d: drains %v", number, fatal[number])
			}
		}
	}
	for number, want := range map[int]bool{
		48: true, 64: true, 79: true, 95: true, 119: true, 140: true,
		13: false, 31: false, 43: false, 45: false, 63: false, 74: false, 92: false, 94: false, 109: false, 154: false,
	} {
		if got, known := fatal[number]; got != want || !known {
			t.Errorf("Xid %d: drains %v", number, got)
		}
	}
}

// All lines of one number are one finding: testdata/xids.txtar has what it says.
func TestXidsOfOneNumberAreOneFinding(t *testing.T) {
	golden.Archive(t, *update, "testdata/xids.txtar", func(given string) (said string) {
		var log []gpu.Xid
		for line := range strings.Lines(given) {
			seconds, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			x, is := gpu.NVIDIA.Fault("NVRM: Xid " + text)
			x.At = must.Have(time.ParseDuration(seconds + "s"))(t)
			if log = append(log, x); !is {
				t.Errorf("no Xid: %s", line)
			}
		}
		in := logged(log...)
		for _, f := range Judge(in) {
			if said += string(f.Code) + ": " + f.Observed + "\n"; f.Unknown != "" || f.GPU != gpuA {
				t.Errorf("%+v", f)
			}
		}
		return said
	})
}
