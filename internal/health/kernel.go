package health

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// xids judges the lines of the kernel's log on one card: all of one number are one finding.
func (in Input) xids(c finding.Card, now gpu.Health) []finding.Finding {
	var out []finding.Finding
	told := map[int]bool{}
	for _, x := range in.Kernel.Xids {
		if x.BusID != c.Device.BusID || told[x.Code] {
			continue
		}
		told[x.Code] = true
		other := func(y gpu.Xid) bool { return y.BusID != x.BusID || y.Code != x.Code }
		out = append(out, in.xid(c, now, slices.DeleteFunc(slices.Clone(in.Kernel.Xids), other)))
	}
	return out
}

func (in Input) xid(c finding.Card, now gpu.Health, alike []gpu.Xid) finding.Finding {
	r, _ := XidRow(alike[0].Code)
	f := r.finding(in.describe(r.Meaning, alike))
	f.Xid = alike[0].Code
	if in.KernelDoubt != "" {
		f.Doubts = append(f.Doubts, in.KernelDoubt)
	}
	if f.Code == code.XidFatal && known(now, gpu.RecoveryAction) == "none" {
		f.Doubts = append(f.Doubts, "the driver itself asks for no recovery of the GPU")
	}
	if f.Code == code.XidFatal && alike[0].Code != fallenOffTheBus && in.Blind {
		f.Doubts = append(f.Doubts, "the driver did not say whether the GPU recovered")
	}
	if c.Device.Parent != "" && !slices.ContainsFunc(alike, func(x gpu.Xid) bool { return x.Instance == "" }) {
		f.Unknown = fmt.Sprintf("Xid %d (%s) in the kernel log is of MIG %s: whether that is this job's cannot be told",
			alike[0].Code, r.Meaning, strings.Join(instances(alike), ", "))
	}
	return f
}

// fallenOffTheBus is the Xid after which no driver says anything of the card any more.
const fallenOffTheBus = 79

const (
	mostProcesses = 4
	mostText      = 120 // bytes
)

// describe says what was seen: number, meaning, how often and when by the log's own clock, as dmesg shows it; then the
// processes, by number, and whether the job's where that is known; then the driver's words of the last line.
func (in Input) describe(meaning string, alike []gpu.Xid) string {
	first, last := alike[0], alike[len(alike)-1]
	written := 0 // lines, kept or not
	for _, x := range alike {
		written += 1 + x.More
	}
	s := fmt.Sprintf("%s (%s)", gpu.Error(first.Code), meaning)
	if written == 1 {
		s += fmt.Sprintf(" at %.6f s of the kernel log", first.At.Seconds())
	} else {
		s += fmt.Sprintf(", %d times from %.6f to %.6f s of the kernel log", written, first.At.Seconds(),
			last.At.Seconds())
	}
	for _, more := range [][]string{in.processes(alike), instances(alike)} {
		if len(more) > 0 {
			s += ", " + strings.Join(more, ", ")
		}
	}
	if last.Text != "" {
		s += ": " + last.Text[:min(len(last.Text), mostText)]
	}
	return s
}

func (in Input) processes(alike []gpu.Xid) []string {
	all := distinct(alike, func(x gpu.Xid) string {
		own, known := in.Own[x.PID]
		switch {
		case x.PID == 0:
			return ""
		case known && own:
			return fmt.Sprintf("PID %d of this job", x.PID)
		case known:
			return fmt.Sprintf("PID %d of another job", x.PID)
		}
		return fmt.Sprintf("PID %d", x.PID)
	})
	if len(all) > mostProcesses {
		all = append(all[:mostProcesses], fmt.Sprintf("%d more", len(all)-mostProcesses))
	}
	return all
}

func instances(alike []gpu.Xid) []string {
	return distinct(alike, func(x gpu.Xid) string { return x.Instance })
}

func distinct(alike []gpu.Xid, word func(gpu.Xid) string) []string {
	var out []string
	for _, x := range alike {
		if w := word(x); w != "" && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}
