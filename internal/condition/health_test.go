package condition

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/policy"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

const (
	gpuA = gpu.ID("GPU-a")
	busA = gpu.BusID("0000:1b:00.0")
)

var cardA = record.Assigned{Index: 0, Device: gpu.Device{ID: gpuA, BusID: busA}}

func told(id gpu.ID, facts ...gpu.Fact) gpu.Health { return gpu.Health{Device: id, Facts: facts} }

func seen(c gpu.FactCode, value string) gpu.Fact {
	return gpu.Fact{Code: c, Value: value, Source: "nvmlX"}
}

// look is a job's end with one card, on which the driver said this.
func look(facts ...gpu.Fact) Input {
	return Input{Cards: []record.Assigned{cardA}, Now: []gpu.Health{told(gpuA, facts...)}}
}

// drains reports whether the shipped policy of an end, enforced, drains for a finding.
func drains(f record.Finding) bool { return action(f) == config.Drain }

func action(f record.Finding) config.Action {
	c := config.Default()
	c.Mode = config.Enforce
	return policy.Decide(c, slurm.Epilog, slurm.Job{}, []record.Finding{f}).Judged[0].Action
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
			t.Errorf("no test of %s, %s: put a line into testdata/facts.txt", r.Fact, r.Value)
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
			in.Cards = []record.Assigned{cardA}
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
	for _, n := range catalog.DriverErrors() {
		for _, number := range n.Numbers {
			found := Judge(logged(gpu.Xid{BusID: busA, Code: number}))
			if len(found) != 1 || found[0].Code != n.Code || found[0].Xid != number ||
				!strings.Contains(found[0].Observed, n.Meaning) {
				t.Errorf("Xid %d: %+v", number, found)
				continue
			}
			fatal[number] = drains(found[0])
			if want := n.Code == catalog.XidFatal && n.Doubt == ""; fatal[number] != want {
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
		if program := number == 13 || number == 31 || number == 43 || number == 45; catalog.OfProgram(number) != program {
			t.Errorf("Xid %d: of a program: %v", number, !program)
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

var update = flag.Bool("update", false, "rewrite docs/health.md and testdata/facts.txt")

const doc = "../../docs/health.md"

func TestTableIsSound(t *testing.T) {
	seen := map[string]bool{}
	once := func(key string) {
		if seen[key] {
			t.Errorf("%s stands twice in the table", key)
		}
		seen[key] = true
	}
	rows := slices.Clone(factRows)
	for _, e := range catalog.DriverErrors() {
		for _, n := range e.Numbers {
			once(fmt.Sprintf("Xid %d", n))
		}
		if e.Cause == "" {
			t.Errorf("Xids %v have no cause", e.Numbers)
		}
		rows = append(rows, row(e))
	}
	for _, r := range rows {
		key := fmt.Sprint(r.Fact, r.Value)
		once(key)
		if r.Meaning == "" || r.Asks == "" || expected[r.Code] == "" {
			t.Errorf("%s: fill in Meaning and Asks, and %s in the table expected: %+v", key, r.Code, r)
		}
		for _, c := range r.Value + r.Meaning + r.Asks + r.Doubt + expected[r.Code] {
			if c < ' ' || c > '~' || c == '|' {
				t.Errorf("%s: %q is not plain ASCII", key, c)
			}
		}
		if entry, ok := catalog.Lookup(r.Code); !ok || entry.Scope != catalog.Card {
			t.Errorf("%s: %s is no finding on a GPU", key, r.Code)
		}
	}
}

// The catalogue has AMD's codes without package gpu, which has them too.
func TestAMDCodes(t *testing.T) {
	for code, meaning := range map[int]string{
		gpu.AMDUncorrected: "uncorrectable hardware error", gpu.AMDReset: "the driver reset the GPU",
		gpu.AMDPageFault: "memory page fault", gpu.AMDNotGivenBack: "the driver counts memory of an ended program",
	} {
		if e, ok := catalog.LookupXid(code); !ok || !strings.HasPrefix(e.Meaning, meaning) {
			t.Errorf("%d: %+v", code, e)
		}
	}
	if e, _ := catalog.LookupXid(gpu.AMDUncorrected); e.Doubt != gpu.AMD.Untried {
		t.Errorf("doubt %q", e.Doubt)
	}
	if !catalog.OfProgram(gpu.AMDPageFault) || catalog.OfProgram(gpu.AMDReset) {
		t.Error("whose a page fault is")
	}
}

// The tables of docs/health.md are what the table that judges says; the text around them is the page's own.
func TestHealthDoc(t *testing.T) {
	got := must.Read(t, doc)
	var facts, xids string
	for _, r := range factRows {
		facts += fmt.Sprintf("| %s | %s %s\n", r.Fact, r.Value, columns(r))
	}
	for _, e := range slices.SortedFunc(slices.Values(catalog.DriverErrors()),
		func(a, b catalog.DriverError) int { return cmp.Compare(a.Numbers[0], b.Numbers[0]) }) {
		xids += fmt.Sprintf("| %s | %s %s\n", names(e), e.Cause, columns(row(e)))
	}
	want := got
	for start, rows := range map[string]string{"| fact | value |": facts, "| Xid | cause |": xids} {
		i := strings.Index(want, start)
		table, after, ok := strings.Cut(want[max(i, 0):], "\n\n")
		if i < 0 || !ok {
			t.Fatalf("%s has no table %q", doc, start)
		}
		head := strings.SplitAfterN(table, "\n", 3)
		want = want[:i] + head[0] + head[1] + rows + "\n" + after
	}
	if *update {
		must.Do(t, os.WriteFile(doc, []byte(want), 0o644))
	} else if got != want {
		t.Errorf("%s differs from the table: run go test ./internal/condition -update", doc)
	}
}

// names are the numbers of some errors or, if the vendor numbers none, the module that reports them.
func names(e catalog.DriverError) string {
	if name, numbered := strings.CutPrefix(gpu.Error(e.Numbers[0]), "Xid "); !numbered {
		return name
	}
	return ranges(e.Numbers)
}

// row is an error as a line of the table.
func row(e catalog.DriverError) Row {
	return Row{Fact: "Xid", Value: fmt.Sprint(e.Numbers), Code: e.Code, Meaning: e.Meaning, Asks: e.Asks, Doubt: e.Doubt}
}

// shipped is what the shipped policy of an end does with a row's finding in enforce mode: the policy itself is asked.
func shipped(r Row) string {
	a := action(finding(r.Code, "x", r.Doubt))
	if a == config.Drain {
		return "**drain**"
	}
	return string(a)
}

func columns(r Row) string {
	meaning := strings.TrimRight(r.Meaning, ": ")
	if r.Doubt != "" {
		meaning += ". Doubt: " + r.Doubt
	}
	return fmt.Sprintf("| [%s](findings.md#%s) | %s | %s | %s |", r.Code, strings.ToLower(string(r.Code)), meaning,
		r.Asks, shipped(r))
}

// ranges writes numbers in order, runs of three and more as "126-135".
func ranges(numbers []int) string {
	var out []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if j-i < 2 {
			j = i
			out = append(out, fmt.Sprint(numbers[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", numbers[i], numbers[j]))
		}
		i = j + 1
	}
	return strings.Join(out, ", ")
}
