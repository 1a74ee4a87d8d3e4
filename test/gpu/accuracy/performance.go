package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/test/gpu/record"
)

// yardstick begins the name of the program that the others are compared with.
const yardstick = "nvidia-smi --query-gpu"

// performance renders the page of timings.
func performance(files []record.File) string {
	var b strings.Builder
	b.WriteString(head("performance"))
	for _, f := range files {
		m, t := f.Machine, f.Timings
		if t == nil {
			continue
		}
		fmt.Fprintf(&b, "\n## %d × %s, %s\nDriver %s, kernel %s, %s, Bookend %s; %d rounds.", m.GPUs, m.GPU,
			f.Date.Format("2006-01-02 15:04"), m.Driver, m.Kernel, m.System, m.Bookend, t.Rounds)
		if !t.Idle {
			b.WriteString(" **The GPUs were not idle afterwards: do not trust these.**")
		}
		b.WriteString("\n\n" + plain(timings(*t)+pairs(*t)))
		fmt.Fprintf(&b, "\n`%s`\n", f.Command)
	}
	return b.String()
}

// pairs renders what was measured against a bare program.
func pairs(t record.Timings) string {
	var b strings.Builder
	for _, p := range t.Pairs {
		ratios := p.Ratios()
		if len(ratios) == 0 {
			continue
		}
		goal := fmt.Sprintf("at most %.2f: %s", p.Limit, map[bool]string{true: "held", false: "**not held**"}[p.Held()])
		fmt.Fprintf(&b, "| %s: %s | %.1f ms | %.1f ms | %.3f | %.3f | %.3f | %s |\n", p.Name, p.What, p.Ours.Median(),
			p.Bare.Median(), p.Ratio(), slices.Min(ratios), slices.Max(ratios), goal)
	}
	return under("pair", b.String())
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
