package condition

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
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

// action is what the shipped policy of an end, enforced, does with a finding.
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
	for _, r := range factRows() {
		if !strings.Contains(all, r.Meaning) {
			t.Errorf("no test of %s, %s: put a line into testdata/facts.txt", r.Fact, r.Value)
		}
	}
}

// What could not be read is no finding.
func TestUnknownFacts(t *testing.T) {
	for _, r := range factRows() {
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

// unnumbered are lines of errors without a number.
var unnumbered = map[int]string{
	gpu.AMDUncorrected:  "amdgpu 0000:1b:00.0: amdgpu: {7}socket: 0, die: 0, 2 new uncorrectable hardware errors detected",
	gpu.AMDReset:        "amdgpu 0000:1b:00.0: amdgpu: GPU reset begin!. Source:  1",
	gpu.AMDPageFault:    "amdgpu 0000:1b:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3)",
	gpu.AMDNotGivenBack: "amdgpu 0000:1b:00.0: VM memory stats for proc a(28374) task b(28320) is non-zero when fini",
	gpu.AMDHang:         "amdgpu 0000:1b:00.0: amdgpu: MES(0) failed to respond to msg=REMOVE_QUEUE",
	gpu.AMDGone:         "amdgpu 0000:1b:00.0: amdgpu: SMU: response:0xFFFFFFFF for index:18",
	gpu.AMDHung:         "amdgpu 0000:1b:00.0: amdgpu: GPU reset end with ret = -110",
	gpu.AMDRecovered:    "amdgpu 0000:1b:00.0: amdgpu: GPU reset(2) succeeded!",
	gpu.AMDReplace:      "amdgpu 0000:1b:00.0: amdgpu: RAS EEPROM: Number of bad pages exceeds threshold 10",
	gpu.AMDCorrected:    "amdgpu 0000:1b:00.0: amdgpu: 5 correctable hardware errors detected in total in umc block",
	gpu.AMDDriverFault:  "amdgpu 0000:1b:00.0: amdgpu: [mmhub0] page fault (src_id:0 ring:173 vmid:0 pasid:0)",
	gpu.BusLost:         "NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.",
	gpu.NotStarted:      "NVRM: GPU 0000:1b:00.0: rm_init_adapter failed, device minor number 3",
	gpu.Removed:         "NVRM: Attempting to remove device 0000:1b:00.0 with non-zero usage count!",
	gpu.PortDown:        "pcieport 0000:64:01.0: DPC: containment event, status:0x1f01 source:0x0000",
	gpu.PCIeFatal:       "pcieport 0000:64:01.0: AER: Uncorrected (Fatal) error message received from 0000:1b:00.0",
}

func lineOf(code int) string {
	switch {
	case code > gpu.FirstSXid:
		return fmt.Sprintf("nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): %d, Fatal, Link 30", code-gpu.FirstSXid)
	case unnumbered[code] != "":
		return unnumbered[code]
	}
	return fmt.Sprintf("NVRM: Xid (PCI:0000:1b:00): %d, pid=7, name=x, text", code)
}

// Every row of the table from its line to the verdict: the line is parsed, and gives the row's code, meaning and cause.
// Only these drain, by NVIDIA's guidance, and only these are a program's.
func TestEveryXid(t *testing.T) {
	drain := []int{46, 48, 62, 64, 79, 95, 110, 119, 120, 136, 140, 143, 156, 158, 167, 169, 171, 172, gpu.BusLost}
	program := []int{13, 31, 43, 45, gpu.AMDPageFault}
	for number := range 177 {
		if _, known := catalog.LookupXid(number); known != (number > 0) {
			t.Errorf("Xid %d is known: %v", number, known)
		}
	}
	for _, e := range catalog.DriverErrors() {
		for _, number := range e.Numbers {
			x, ok := gpu.ParseKernelLine(lineOf(number))
			if gpu.IsEvent(number) { // of which there is no line
				x, ok = gpu.Xid{BusID: busA, Code: number}, true
			}
			found := Judge(logged(x))
			if !ok || x.Code != number || len(found) != 1 || found[0].Code != e.Code || found[0].Xid != number ||
				found[0].Cause() != e.Cause || !strings.Contains(found[0].Observed, e.Meaning) {
				t.Errorf("%s: %+v, %+v", gpu.Error(number), x, found)
				continue
			}
			want := config.Warn
			if slices.Contains(drain, number) {
				want = config.Drain
			} else if e.Noted() || number == 45 || number == gpu.PortDown {
				want = config.Note
			}
			if got := action(found[0]); got != want || catalog.OfProgram(number) != slices.Contains(program, number) {
				t.Errorf("%s: %s, a program's: %v", gpu.Error(number), got, catalog.OfProgram(number))
			}
		}
	}
}

// All lines of one number are one finding: testdata/xids.txtar has what it says.
func TestXidsOfOneNumberAreOneFinding(t *testing.T) {
	golden.Archive(t, *update, "testdata/xids.txtar", func(given string) (said string) {
		var log []gpu.Xid
		for line := range strings.Lines(given) {
			seconds, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if strings.HasPrefix(text, "(") {
				text = "NVRM: Xid " + text
			}
			x, is := gpu.ParseKernelLine(text)
			x.At = must.Have(time.ParseDuration(seconds + "s"))(t)
			if log = append(log, x); !is {
				t.Errorf("no Xid: %s", line)
			}
		}
		in := logged(log...)
		for _, f := range Judge(in) {
			said += fmt.Sprintf("%s, %s: %s\n", f.Code, action(f), f.Observed)
			for _, why := range append(f.Doubts, f.NoteOnly) {
				said += strings.TrimSuffix("  "+why+"\n", "  \n")
			}
			if f.Unknown != "" || f.GPU != gpuA && f.Code != catalog.KernelLog {
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
	rows := slices.Clone(factRows())
	for _, r := range rows {
		must.Not(t, r.judge == nil, "facts.txt: %s %s has no rule", r.Fact, r.Value)
	}
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
		if entry, ok := catalog.Lookup(r.Code); !ok || entry.Scope != catalog.Card && r.Code != catalog.KernelLog {
			t.Errorf("%s: %s is no finding on a GPU", key, r.Code)
		}
	}
}

// The catalogue has Bookend's own codes without package gpu, which has them too.
func TestOwnCodes(t *testing.T) {
	for code, meaning := range map[int]string{
		gpu.AMDUncorrected: "uncorrectable hardware error", gpu.AMDReset: "the driver reset the GPU",
		gpu.AMDPageFault: "memory page fault", gpu.AMDNotGivenBack: "the driver counts memory of an ended program",
		gpu.AMDHang: "the GPU hung: work", gpu.AMDGone: "the GPU's power controller", gpu.AMDHung: "the GPU hung, and",
		gpu.AMDRecovered: "the GPU works again", gpu.AMDReplace: "more bad memory", gpu.AMDCorrected: "corrected memory",
		gpu.AMDDriverFault: "memory page fault in work of the driver's own",
		gpu.BusLost:        "the GPU has fallen off", gpu.NotStarted: "the driver could not start", gpu.PortDown: "a PCIe port",
		gpu.Removed: "the GPU was taken out", gpu.PCIeFatal: "uncorrected PCIe", gpu.FirstSXid + 20034: "fatal error of an",
		gpu.EventDRAMRetired: "bad memory was", gpu.EventDRAMNotRetired: "remapping or retiring", gpu.EventPoison: "contained memory",
		gpu.EventFatalPoison: "uncontained memory", gpu.EventUnavailable: "the GPU became", gpu.EventRecovery: "the driver changed",
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
	for _, r := range factRows() {
		facts += fmt.Sprintf("| %s | %s %s\n", r.Fact, r.Value, columns(r, ""))
	}
	for _, e := range slices.SortedFunc(slices.Values(catalog.DriverErrors()),
		func(a, b catalog.DriverError) int { return cmp.Compare(a.Numbers[0], b.Numbers[0]) }) {
		xids += fmt.Sprintf("| %s | %s %s\n", names(e), e.Cause, columns(row(e), noteOnly([]gpu.Xid{{Code: e.Numbers[0]}})))
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
	first := gpu.Error(e.Numbers[0])
	switch {
	case strings.HasPrefix(first, "Xid "):
		return ranges(e.Numbers)
	case strings.HasPrefix(first, "SXid "):
		var numbers []int
		for _, n := range e.Numbers {
			numbers = append(numbers, n-gpu.FirstSXid)
		}
		return "SXid " + ranges(numbers)
	}
	return first
}

// row is an error as a line of the table.
func row(e catalog.DriverError) Row {
	return Row{Fact: "Xid", Value: fmt.Sprint(e.Numbers), Code: e.Code, Meaning: e.Meaning, Asks: e.Asks, Doubt: e.Doubt}
}

// shipped is what the shipped policy of an end does with a row's finding in enforce mode: the policy itself is asked.
func shipped(r Row, note string) string {
	f := finding(r.Code, "x", r.Doubt)
	f.NoteOnly = note
	a := action(f)
	if a == config.Drain {
		return "**drain**"
	}
	return string(a)
}

func columns(r Row, note string) string {
	meaning := r.Meaning
	if r.Doubt != "" {
		meaning += ". Doubt: " + r.Doubt
	}
	return fmt.Sprintf("| [%s](findings.md#%s) | %s | %s | %s |", r.Code, strings.ToLower(string(r.Code)), meaning,
		r.Asks, shipped(r, note))
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

// Entries of the kernel's log as drivers write them, with the right answer for each: its number, what causes it, and what a
// job's end makes of it. testdata/lines.txt has that in words.
func TestKernelLines(t *testing.T) {
	causes := map[string]catalog.Cause{"program": catalog.ByProgram, "hardware": catalog.ByHardware,
		"driver": catalog.ByDriver, "link": catalog.ByLink, "unknown": catalog.Unclear}
	said := ""
	for line := range strings.Lines(must.Read(t, "testdata/lines.jsonl")) {
		var want struct {
			Text, Kind, Whose string
			Number            int
		}
		must.Do(t, json.Unmarshal([]byte(line), &want))
		said += "-- " + want.Text + "\n"
		x, ok := gpu.ParseKernelLine(want.Text)
		stamped := gpu.PastedErrors("Nov 29 16:42:51 n1 kernel: [12345.678901] " + want.Text + "\n")
		if _, isMismatch := gpu.NVIDIA.Mismatch(want.Text); isMismatch != (want.Kind == "version mismatch") ||
			ok == (isMismatch || want.Kind == "notice") || ok != (len(stamped) == 1) || ok && !reflect.DeepEqual(x, stamped[0]) {
			t.Errorf("%s: %+v, %v, with a stamp %+v", want.Text, x, ok, stamped)
		}
		if !ok {
			continue
		}
		number := x.Code
		if number > gpu.FirstSXid {
			number -= gpu.FirstSXid
		} else if number > 9999 {
			number = 0
		}
		in := logged(x)
		in.Cards = []record.Assigned{{Device: gpu.Device{ID: gpuA, BusID: cmp.Or(x.BusID, busA)}}}
		found := Judge(in)
		if len(found) != 1 || number != want.Number || found[0].Cause() != causes[want.Whose] {
			t.Errorf("%s: %+v", want.Text, found)
			continue
		}
		said += fmt.Sprintf("%s %s, %s: %s\n", found[0].Code, found[0].GPU, action(found[0]), found[0].Observed)
	}
	golden.File(t, *update, "testdata/lines.txt", said)
}
