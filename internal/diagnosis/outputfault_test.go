package diagnosis

import (
	"slices"
	"strings"
	"testing"

	"bookend/internal/oomlog"
	"bookend/internal/record"
	"bookend/test/must"
)

// What oomlog takes for a fault has a row that says what it means, and each text of a row is one that oomlog knows: the
// last row is no place for what was forgotten.
func TestEveryFaultHasItsRow(t *testing.T) {
	var signs []string
	in := false
	for line := range strings.Lines(must.Read(t, "../oomlog/words.txt")) {
		line = strings.Trim(strings.TrimSuffix(line, "\n"), `"`)
		if head, begins := strings.CutPrefix(line, "== "); begins {
			in = strings.HasPrefix(head, "sign: fault")
		} else if in && line != "" && line[0] != '#' {
			signs = append(signs, line)
		}
	}
	must.Not(t, len(signs) < 50, "only %d signs", len(signs))
	within := func(text string) func(string) bool {
		return func(sign string) bool { return strings.Contains(sign, strings.ToLower(text)) }
	}
	for _, sign := range signs {
		row := outputFault(record.Message{Kind: record.KindFault, Line: sign})
		says := func(text string) bool { return within(text)(sign) }
		must.Not(t, !slices.ContainsFunc(row.Says, says), "no row of faults.txt for %q", sign)
	}
	for _, row := range OutputFaults() {
		for _, text := range row.Says {
			must.Not(t, !row.is("device") && !slices.ContainsFunc(signs, within(text)), "oomlog finds no %q", text)
		}
		must.Not(t, len(row.Means+" Try: "+strings.ReplaceAll(row.Try, "NODE", "a-name-of-a-node-01")) > 220, "%q: too long for a line", row.Claim)
	}
}

// After an error that is not the program's own, neither that error nor what it speaks for is ruled out, and what the job
// needed is not proven; after the program's own everything stays as it was.
func TestWhatTheOutputContradicts(t *testing.T) {
	const oom = "RuntimeError: CUDA error: out of memory"
	for text, want := range map[string]struct {
		open   []record.CauseName // not ruled out
		means  string
		blamed bool // on the job's own use
	}{
		"RuntimeError: CUDA error: uncorrectable ECC error encountered\n" + oom:                                      {[]record.CauseName{record.CauseFault}, "not your code", false},
		"RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable\n" + oom:                         {[]record.CauseName{record.CauseFault, record.CauseOthers}, "compute mode", false},
		"ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.":               {[]record.CauseName{record.CauseOthers}, "far less free memory", false},
		"RuntimeError: CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server\n" + oom: {[]record.CauseName{record.CauseFault}, "MPS daemon", false},
		"RuntimeError: CUDA error: device-side assert triggered\n" + oom:                                             {nil, "error of your program", true},
	} {
		for _, given := range []record.Message{itself, torch(20, 10, 0, 0)} {
			in := well(1)
			in.Messages = oomlog.Find([]byte(text + "\n"))
			if strings.Contains(text, oom) {
				in.Messages = append(in.Messages, given)
			}
			d := Why(in)
			for _, n := range want.open {
				must.Not(t, d.Cause(n).Answer == record.No && n != record.CauseOthers, "%s: %s is ruled out", text, n)
			}
			blamed := strings.Contains(d.Headline, "your job itself") || strings.Contains(d.Headline, "your job needed")
			must.Not(t, blamed && !want.blamed, "%s: %s", text, d.Headline)
			must.Not(t, !strings.Contains(strings.Join(d.Reported, " "), want.means), "%s: %q", text, d.Reported)
		}
	}
}
