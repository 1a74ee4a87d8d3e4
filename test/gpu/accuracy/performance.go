package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/test/gpu/record"
)

const performanceHead = `# Performance
Wall times of whole programs on clean, idle cards: what a job pays for Bookend, beside what sites run instead. The
programs ran in turn, round by round, so that all saw the same machine; hooks were started with the environment that
slurmd gives them, and every one of their looks was checked to be whole and clean.

This page is made by ` + "`go run ./test/gpu/accuracy`" + ` from the [raw records](../test/gpu/records) alone. ` + "`make gpu-test`" + `
makes such records.
`

// yardstick begins the name of the program that the others are compared with.
const yardstick = "nvidia-smi --query-gpu"

// performance renders the page of timings.
func performance(files []record.File, scans, scripts, searches []string) string {
	files = slices.DeleteFunc(slices.Clone(files), func(f record.File) bool { return f.Timings == nil })
	var b strings.Builder
	b.WriteString(performanceHead)
	if len(files) == 0 {
		return b.String() + noRecords
	}
	for _, f := range files {
		m, t := f.Machine, f.Timings
		fmt.Fprintf(&b, "\n## %d × %s, %s\nDriver %s, kernel %s, %s, Bookend %s; %d rounds.", m.GPUs, m.GPU,
			f.Date.Format("2006-01-02 15:04"), m.Driver, m.Kernel, m.System, m.Bookend, t.Rounds)
		if !t.Idle {
			b.WriteString(" **The cards were not idle afterwards: do not trust these.**")
		}
		b.WriteString("\n\n" + timings(*t) + pairs(*t))
		fmt.Fprintf(&b, "\n`%s`\n", f.Command)
	}
	return b.String() + verbatim(scanHead, scans) + verbatim(scriptHead, scripts) + verbatim(searchHead, searches)
}

// verbatim shows outputs below a heading, which is left out if there are none.
func verbatim(head string, outputs []string) string {
	var b strings.Builder
	for _, text := range outputs {
		b.WriteString("\n```\n" + strings.TrimSpace(text) + "\n```\n")
	}
	if b.Len() == 0 {
		return ""
	}
	return head + b.String()
}

const scriptHead = `
## The scripts in slurm.conf
The shell stays while the hook runs, so that a hook that cannot run drains nothing. Compared with a script that execs the
hook, that is one fork and an exit. Both scripts ran in turn, the first of each pair changing, for a job without GPUs;
x-exec is the median of the pairs' own ratios. A hook that asks a driver takes some 35 ms (above), so there it is one to two percent.
`

const searchHead = `
## Search of a failed job's output
The processor time of searching 16 MiB for messages about memory, which is done only if the job failed and the last 64 KiB of its
outputs name no shortage of memory. The first three and the last are usual text. The others are the worst, where each line is
looked at in earnest: there the search stops after half of ` + "`deadlines.epilog.append`" + `, 0.5 s by default. It runs beside the rest of the epilog.
`

const scanHead = `
## Search for holders
What an epilog pays where memory is unexplained or a listed process is gone: every descriptor and mapping of every
process of the node, and nothing where all is clean. No rival searches. ` + "`make bench-scan`" + ` measures it.
`

const pairHead = `Two programs in turn, the first of each round changing; each from before its start to after its end. The claim is the ratio:
the median of the rounds' own.

| what | Bookend's, median | bare program, median | ratio, median | least | most | goal |
| --- | --- | --- | --- | --- | --- | --- |
`

// pairs renders what was measured against a bare program.
func pairs(t record.Timings) string {
	var b strings.Builder
	for _, p := range t.Pairs {
		var ratios []float64
		for i := range min(len(p.Ours.Millis), len(p.Bare.Millis)) {
			ratios = append(ratios, p.Ours.Millis[i]/p.Bare.Millis[i])
		}
		if len(ratios) == 0 {
			continue
		}
		goal := fmt.Sprintf("at most %.2f: held", p.Limit)
		if !p.Held() {
			goal = fmt.Sprintf("at most %.2f: **not held**", p.Limit)
		}
		fmt.Fprintf(&b, "| %s: %s | %.1f ms | %.1f ms | %.3f | %.3f | %.3f | %s |\n", p.Name, p.What, p.Ours.Median(),
			p.Bare.Median(), p.Ratio(),
			slices.Min(ratios), slices.Max(ratios), goal)
	}
	if b.Len() == 0 {
		return ""
	}
	return pairHead + b.String()
}

func timings(t record.Timings) string {
	if len(t.Programs) == 0 {
		return ""
	}
	var base float64
	for _, p := range t.Programs {
		if strings.HasPrefix(p.Name, yardstick) {
			base = p.Median()
		}
	}
	var b strings.Builder
	b.WriteString("| program | what | median | least | most | × one nvidia-smi query |\n| --- | --- | --- | --- | " +
		"--- | --- |\n")
	for _, p := range t.Programs {
		if len(p.Millis) == 0 {
			continue
		}
		ratio := "-"
		if base > 0 {
			ratio = fmt.Sprintf("%.2f", p.Median()/base)
		}
		fmt.Fprintf(&b, "| %s | %s | %.1f ms | %.1f ms | %.1f ms | %s |\n", p.Name, p.What, p.Median(),
			slices.Min(p.Millis), slices.Max(p.Millis), ratio)
	}
	return b.String() + "\n"
}
