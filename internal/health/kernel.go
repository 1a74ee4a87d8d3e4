package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// xids judges the lines of the kernel's log on one card: all of one number are one finding.
func xids(c finding.Card, now gpu.Health, log []gpu.Xid) []finding.Finding {
	var out []finding.Finding
	told := map[int]bool{}
	for _, x := range log {
		if x.BusID != c.Device.BusID || told[x.Code] {
			continue
		}
		told[x.Code] = true
		alike := slices.DeleteFunc(slices.Clone(log), func(y gpu.Xid) bool { return y.BusID != x.BusID || y.Code != x.Code })
		out = append(out, xid(c, now, alike))
	}
	return out
}

func xid(c finding.Card, now gpu.Health, alike []gpu.Xid) finding.Finding {
	r, _ := xidRow(alike[0].Code)
	f := r.finding(answer{observed: describe(r.Meaning, alike)})
	if f.Code == code.XidFatal && asksNothing(now) {
		f.Doubts = append(f.Doubts, "the driver itself asks for no recovery of the card")
	}
	if c.Device.Parent != "" && !slices.ContainsFunc(alike, func(x gpu.Xid) bool { return x.GI == nil }) {
		f.Unknown = fmt.Sprintf("Xid %d (%s) in the kernel log is of MIG %s: whether that is this job's cannot be told",
			alike[0].Code, r.Meaning, strings.Join(instances(alike), ", "))
	}
	return f
}

// Bounds of what one finding tells.
const (
	mostProcesses = 4
	mostText      = 120 // bytes
)

// describe says what was seen: number, meaning, how often and when by the log's own clock, as dmesg shows it; then the
// processes, by number only, as whose they are is not known here; then the driver's words of the last line.
func describe(meaning string, alike []gpu.Xid) string {
	first, last := alike[0], alike[len(alike)-1]
	s := fmt.Sprintf("Xid %d (%s)", first.Code, meaning)
	if len(alike) == 1 {
		s += " at " + stamp(first.At) + " s of the kernel log"
	} else {
		s += fmt.Sprintf(", %d times from %s to %s s of the kernel log", len(alike), stamp(first.At), stamp(last.At))
	}
	for _, more := range [][]string{processes(alike), causes(alike), instances(alike)} {
		if len(more) > 0 {
			s += ", " + strings.Join(more, ", ")
		}
	}
	if last.Text != "" {
		s += ": " + last.Text[:min(len(last.Text), mostText)]
	}
	return s
}

func stamp(at time.Duration) string {
	return fmt.Sprintf("%d.%06d", at/time.Second, at%time.Second/time.Microsecond)
}

func processes(alike []gpu.Xid) []string {
	all := distinct(alike, func(x gpu.Xid) string {
		if x.PID == 0 {
			return ""
		}
		return fmt.Sprintf("PID %d", x.PID)
	})
	if len(all) > mostProcesses {
		all = append(all[:mostProcesses], fmt.Sprintf("%d more", len(all)-mostProcesses))
	}
	return all
}

func causes(alike []gpu.Xid) []string {
	return distinct(alike, func(x gpu.Xid) string {
		if x.After == 0 {
			return ""
		}
		return fmt.Sprintf("after Xid %d", x.After)
	})
}

func instances(alike []gpu.Xid) []string {
	return distinct(alike, func(x gpu.Xid) string {
		switch {
		case x.GI == nil:
			return ""
		case x.CI == nil:
			return fmt.Sprintf("GPU-I %d", *x.GI)
		}
		return fmt.Sprintf("GPU-I %d GPU-CI %d", *x.GI, *x.CI)
	})
}

// distinct returns each word once, in order.
func distinct(alike []gpu.Xid, word func(gpu.Xid) string) []string {
	var out []string
	for _, x := range alike {
		if w := word(x); w != "" && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}
